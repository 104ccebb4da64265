"""``surnn bench`` from the command line to its files, on a CPU and tiny shapes."""

import json
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from unittest.mock import MagicMock

import pytest
import torch

from surnn.bench import cases, contestants, figures, jobs, precompile, results
from surnn.bench.run import random_inputs
from surnn.cli.main import EXIT_SIGINT, main

CASES = {case.name: case for case in cases.smoke_suite()}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "new" / "run"
    assert main(["bench", "--device", "cpu", "--turns", "2", "--out", str(out)]) == 0
    return out


def bench(*words):
    return main(["bench", "--device", "cpu", "--turns", "1", *words])


def record_of(result, contestant):
    return next(r for r in result["records"] if r["contestant"] == contestant)


# ---------------------------------------------------------------------------- the command


def test_help_needs_no_torch():
    code = (
        "import sys; from surnn.cli.main import main\n"
        "try: main(['bench', '--help'])\n"
        "finally: print([m for m in ('torch', 'numpy', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--budget SECONDS" in done.stdout
    assert done.stdout.endswith("[]\n")


def test_module_runs_as_command():
    words = [sys.executable, "-m", "surnn", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("surnn ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "required: COMMAND"),
        (["bench", "--turns", "0"], "must be positive, got 0"),
        (["bench", "--turns", "two"], "invalid positive int value: 'two'"),
    ],
)
def test_bad_words_say_what_is_wrong(words, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


def test_without_a_gpu_it_says_what_to_do(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench", "--out", str(tmp_path / "run")]) == 2
    assert "surnn bench --device cpu" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--suite", "full"], "needs a GPU"),
        (["--case", "gruu-*"], "'gruu-*'"),
        (["--plot", "nowhere"], "no result.json in nowhere"),
    ],
)
def test_wrong_wishes_are_refused(words, message, tmp_path, capsys):
    assert bench("--out", str(tmp_path / "run"), *words) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_results_are_never_overwritten(tmp_path, capsys):
    (tmp_path / "result.json").write_text("precious")
    assert bench("--out", str(tmp_path)) == 2
    assert "not an empty folder" in capsys.readouterr().err
    assert (tmp_path / "result.json").read_text() == "precious"


# ---------------------------------------------------------------------------- what it writes


def test_every_contestant_is_recorded(smoke):
    found = results.read(smoke)
    expected = {(case.name, c.name) for case in CASES.values() for c in case.contestants}
    assert {(r["case"], r["contestant"]) for r in found["records"]} == expected
    for record in found["records"]:
        assert record["mode"] == "eager"
        if record["error"] is None:
            assert min(record["fwd_turns_ms"] + record["fwd_bwd_turns_ms"]) > 0
            assert len(record["fwd_turns_ms"]) == (1 if "events" in record["contestant"] else 2)
        else:  # peers that are not installed
            assert record["kind"] == "peer"
            assert "is not installed" in record["error"]


def test_rates_and_events_are_the_schedule_s(smoke):
    for record in results.read(smoke)["records"]:
        if record["kind"] != "ours":
            assert record["measured_rate"] is None
        elif record["rate"] == 1:
            assert (record["measured_rate"], record["events"]) == (1, record["T"])
        else:
            assert record["measured_rate"] == pytest.approx(record["rate"], abs=0.5 / record["T"])
            assert 1 <= record["events"] <= record["T"]


def test_environment_names_no_machine(smoke):
    text = (smoke / "result.json").read_text()
    about = json.loads(text)["environment"]
    assert about["command"] == "surnn bench --suite smoke --device cpu --turns 2 --seed 0"
    assert about["torch"] == torch.__version__
    assert str(smoke) not in text
    assert sys.prefix not in text


def test_precision_is_restored(smoke):
    assert torch.get_float32_matmul_precision() == "highest"


def test_table_has_what_json_has(smoke):
    table = (smoke / "table.txt").read_text()
    for title in cases.GROUPS.values():
        assert title in table
    assert "µs per event of the busiest head" in table
    assert "is not installed" in table


def test_figures_are_redrawn_from_json_alone(smoke, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    (tmp_path / "result.json").write_bytes((smoke / "result.json").read_bytes())
    assert main(["bench", "--plot", str(tmp_path)]) == 0
    for name in ("speed.png", "length.png", "events.png"):
        assert (smoke / name).read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / name).stat().st_size > 10_000
    assert capsys.readouterr().out.count("wrote") == 3


def test_without_matplotlib_it_says_how_to_get_it(smoke, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["bench", "--plot", str(smoke)]) == 2
    assert "pip install 'surnn[plot]'" in capsys.readouterr().err
    with pytest.raises(figures.NoMatplotlib):
        figures.draw(results.read(smoke), smoke)


# ---------------------------------------------------------------------------- trouble


def test_one_failure_is_told_and_the_rest_goes_on(monkeypatch, tmp_path, capsys):
    def turn(self):
        if len(self.fwd_ms) == 1 and self.layer.events is not None:
            raise MemoryError("no room in /home/someone/secret/file")
        return honest(self)

    honest = jobs.EagerJob.turn
    monkeypatch.setattr(jobs.EagerJob, "turn", turn)
    out = ["--turns", "3", "--out", str(tmp_path)]
    assert bench("--case", "gru-24x4", "--case", "snn-*", *out) == 0
    for record in results.read(tmp_path)["records"]:
        if record["kind"] == "torch":
            assert (record["error"], len(record["fwd_turns_ms"])) == (None, 3)
        else:
            assert record["error"] == "MemoryError: no room in .../file"
            assert len(record["fwd_turns_ms"]) == 1
    assert "MemoryError: no room" in capsys.readouterr().out


def test_outputs_that_are_not_finite_are_no_result(monkeypatch, tmp_path):
    monkeypatch.setattr(jobs.EagerJob, "_outputs", lambda self: self.x * float("nan"))
    assert bench("--case", "gru-24x4", "--out", str(tmp_path)) == 0
    record = record_of(results.read(tmp_path), "torch nn.GRU")
    assert record["fwd_ms"] is None
    assert "not finite" in record["error"]


def test_out_of_budget(tmp_path, capsys):
    assert bench("--budget", "1e-9", "--out", str(tmp_path)) == 0
    assert {r["error"] for r in results.read(tmp_path)["records"]} == {"not run: out of budget"}
    assert "not run: out of budget" in capsys.readouterr().out


def test_a_killed_run_keeps_what_it_had(monkeypatch, tmp_path):
    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("surnn.bench.report.headline", die)  # after the first case was written
    assert bench("--out", str(tmp_path)) == EXIT_SIGINT
    assert {r["case"] for r in results.read(tmp_path)["records"]} == {"gru-24x4"}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


# ---------------------------------------------------------------------------- pieces


class FakeGraph:
    """What a CUDA graph does for a job, without CUDA: it remembers that it was replayed."""

    def __init__(self):
        self.replays = 0

    def pool(self):
        return "pool"

    def replay(self):
        self.replays += 1


def test_graph_job_captures_a_step_that_writes_gradients(monkeypatch):
    captures = []

    @contextmanager
    def capture(graph, pool=None, stream=None):
        captures.append((pool, job.x.grad is not None))
        yield

    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", MagicMock())
    monkeypatch.setattr(jobs, "_capture_cuda_stream", MagicMock())
    case = CASES["gru-24x4"]
    x, grad_y = random_inputs(case, "float32", torch.device("cpu"), seed=0)
    layer = contestants.build(case, case.contestants[2], x, fixed_room=True, seed=0)
    assert layer.module.max_rate == pytest.approx(1.3 * 0.17, abs=0.02)
    job = jobs.GraphJob(layer, x, grad_y, turns=2)
    job.prepare()
    job.turn()
    # The step is captured without gradients, which it then makes; forward shares its memory.
    assert captures == [(None, False), ("pool", True)]
    assert (job.step_graph.replays, job.forward_graph.replays) == (3, 1)
    assert all(p.grad is not None for p in layer.module.parameters())


def test_line():
    line = results.fit_line([1, 2, 3, 4], [5, 7, 9, 11])
    assert (line.a, line.b, line.r2) == pytest.approx((3, 2, 1))
    noisy = results.fit_line([0, 1, 2], [0, 1, 0])
    assert (noisy.a, noisy.b, noisy.r2) == pytest.approx((1 / 3, 0, 0))
    assert results.fit_line([1, 1], [2, 3]) is None


def test_ratio_is_to_the_rival_in_the_same_mode():
    def record(name, mode, ms):
        return {"case": "c", "contestant": name, "mode": mode, "fwd_bwd_ms": ms, "against": "r"}

    records = [record("r", "eager", 8.0), record("r", "graph", 6.0), record("o", "graph", 2.0)]
    assert results.ratio(records[2], results.baseline(records[2], records)) == 3
    records[1]["fwd_bwd_ms"] = None
    assert results.ratio(records[2], results.baseline(records[2], records)) == 4


def test_suites_are_sound():
    for make in cases.SUITES.values():
        suite = make()
        assert len({case.name for case in suite}) == len(suite)
        for case in suite:
            assert case.group in cases.GROUPS
            names = {c.name for c in case.contestants}
            assert {c.against for c in case.contestants} <= names | {None}
    assert [case.name for case in cases.select(cases.full_suite(), ["lstm*", "long-*"])] == [
        "lstm-4096x256",
        "long-65536x16",
    ]


def test_kernels_are_compiled_once_for_each_kind_of_layer():
    groups = precompile.configurations(cases.full_suite())
    assert len(groups) == 10
    shapes = [(case.steps, case.batch) for case, _ in groups[0]]
    assert len(shapes) == len(set(shapes)) == 10
    assert all(contestant.rate < 1 for group in groups for _, contestant in group)


@pytest.mark.skipif(torch.cuda.is_available(), reason="fails only without a GPU")
def test_compiling_ahead_tells_of_failures():
    (problem,) = precompile.compile_ahead([CASES["gru-24x4"]], processes=2, seed=0)
    assert problem.startswith("SuGRU 2x16 p=0.17: ")
