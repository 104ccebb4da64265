"""Plans of several runs: reading, running at once, resuming, reporting."""

import signal
import sys
import tarfile
from pathlib import Path

import pytest

from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunFolder
from surnn_recipes import RECIPES
from surnn_recipes import run_plan as plans

SMALL = (
    "--train.device cpu --task.delay 2 --model.width 32 --train.batch 50 --train.log-every 2 "
    "--train.evaluate-every 2 --train.evaluation-batches 1"
)
PLAN = f"""
copying-100 0 --train.steps 4 {SMALL}  # soon done
! --task.noise uniform
# and this takes too long
long: copying-100 1 --train.steps 100000 {SMALL}
"""


def test_a_plan_is_recipes_seeds_and_flags():
    first, second = plans.read_plan(PLAN)
    assert (first.name, first.recipe, first.seed) == ("copying-100-seed0", "copying-100", "0")
    assert first.flags[:2] == ["--train.steps", "4"]
    assert first.tests == [["--task.noise", "uniform"]]
    assert (second.name, second.seed, second.tests) == ("long", "1", [])


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("! --task.noise uniform", "line 1"),
        ("\ncopying 0", "line 2: .*'copying 0'"),
        ("copying-100 --train.steps 4", "line 1: .*a seed"),
        ("x: copying-100", "line 1: .*a seed"),
        ("copying-100 0\ncopying-100 0 --train.steps 4", "copying-100-seed0"),
        ("../x: copying-100 0", "line 1: .*name of a folder"),
        ("/x: copying-100 0", "line 1: .*name of a folder"),
        ("..: copying-100 0", "line 1: .*name of a folder"),
    ],
)
def test_errors_of_a_plan_name_the_line(plan, said):
    with pytest.raises(plans.PlanError, match=said):
        plans.read_plan(plan)


def test_a_plan_trains_first_and_tests_later(tmp_path, monkeypatch, capsys):
    """One run through all stages: --train-only, the same again, its tests, the same again."""
    monkeypatch.chdir(tmp_path)
    Path("plan").write_text("\n".join(PLAN.splitlines()[:3]))
    monkeypatch.setattr(sys, "argv", ["run_plan.py", "plan", "--train-only"])
    plans.main()
    assert "copying-100-seed0: done\n" in capsys.readouterr().out
    folder = RunFolder.open(Path("runs/copying-100-seed0"))
    assert (folder.test_metrics(), folder.evaluations()) == (None, [])
    with monkeypatch.context() as patch:
        patch.setattr(plans, "start", None)  # nothing is left to start
        plans.main()
    assert "copying-100-seed0: already done\n" in capsys.readouterr().out

    (run, _) = plans.read_plan(PLAN)
    run.flags[1] = "8"  # a finished run is not trained for longer
    first, second = (words[3:] for words in plans.commands(run, Path("runs"), []))
    assert first == ["eval", "runs/copying-100-seed0", "--split", "test"]
    assert second == [*first, "--task.noise", "uniform"]

    monkeypatch.setattr(sys, "argv", ["run_plan.py", "plan", "--pack", "all.tgz"])
    plans.main()
    out = capsys.readouterr().out
    assert "copying-100-seed0: done\n" in out
    plain, noisy = folder.evaluations()
    assert [plain["overrides"], noisy["overrides"]] == [{}, {"task.noise": "uniform"}]
    for line in (plain, noisy):
        assert f"  test         accuracy {line['metrics']['accuracy']:.4g}, best weights" in out
    assert ", task.noise uniform\n" in out
    assert "results add copying-100 runs/copying-100-seed0 --other-runs 0\n" in out
    with tarfile.open("all.tgz") as packed:
        assert set(packed.getnames()) == {
            "copying-100-seed0.log",
            *(f"copying-100-seed0/{name}.json" for name in ("config", "environment")),
            *(f"copying-100-seed0/{name}.jsonl" for name in ("metrics", "evaluations")),
        }
    assert plans.commands(run, Path("runs"), []) == []  # it has been tested


STANDS_IN = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(3))
print(*sys.argv[1:], flush=True)
while "runs/long" in sys.argv:
    time.sleep(0.05)
"""


def let_time_pass(monkeypatch, is_over) -> None:
    """A clock that stands still until a condition holds, and is then past any end."""
    monkeypatch.setattr(plans.time, "monotonic", lambda: 1e6 if is_over() else 0.0)


def lines_of(name: str) -> list[str]:
    path = Path(f"runs/{name}.log")
    return path.read_text().splitlines() if path.exists() else []


def test_runs_at_once_end_with_the_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plans, "SURNN", (sys.executable, "-c", STANDS_IN))
    short, long = plans.read_plan(PLAN)
    let_time_pass(monkeypatch, lambda: short.outcome == "done" and len(lines_of("long")) == 1)
    plans.run_plan([short, long], Path("runs"), ["--data", "d"], at_once=2, seconds=6)
    assert (short.outcome, short.other_runs) == ("done", 1)
    assert (long.outcome, long.other_runs) == ("stopped: the time was over", 1)
    first, second = lines_of("copying-100-seed0")
    assert first.startswith("reproduce copying-100 --train.seed 0 --out runs/copying-100-seed0 ")
    assert second.startswith("eval runs/copying-100-seed0 --split test --data d --task.noise")
    alone, never = plans.read_plan(
        PLAN.replace("copying-100 0", "long: copying-100 0").replace(
            "long: copying-100 1", "other: copying-100 1"
        )
    )
    let_time_pass(monkeypatch, lambda: len(lines_of("long")) == 2)
    plans.run_plan([alone, never], Path("runs"), [], at_once=1, seconds=2)
    assert (alone.outcome, alone.other_runs) == ("stopped: the time was over", 0)
    assert never.outcome == "not started"


def test_runs_of_a_plan_in_the_background_stop_too(tmp_path, monkeypatch):
    """A background job of a shell ignores SIGINT; its children must not inherit that."""
    monkeypatch.chdir(tmp_path)
    asks = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    monkeypatch.setattr(plans, "SURNN", (sys.executable, "-c", asks))
    short, _ = plans.read_plan(PLAN)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        plans.run_plan([short], Path("runs"), [], at_once=1, seconds=60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert set(Path("runs/copying-100-seed0.log").read_text().split()) == {"False"}


def test_ctrl_c_is_passed_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plans, "SURNN", (sys.executable, "-c", STANDS_IN))
    _, long = plans.read_plan(PLAN)
    sleep = plans.time.sleep

    def interrupt(seconds):
        sleep(seconds)
        if Path("runs/long.log").read_text():  # it has begun
            monkeypatch.setattr(plans.time, "sleep", sleep)
            raise KeyboardInterrupt

    monkeypatch.setattr(plans.time, "sleep", interrupt)
    plans.run_plan([long], Path("runs"), [], at_once=1, seconds=600)
    assert long.outcome == "stopped: Ctrl-C"


def test_an_error_leaves_no_run_behind(tmp_path, monkeypatch):
    """They are in sessions of their own, and nobody would end them when the time is over."""
    wait = "import time; time.sleep(100)"
    todo = {"a": [[sys.executable, "-c", "pass"]], "b": [[sys.executable, "-c", wait]]}
    monkeypatch.setattr(plans, "commands", lambda run, *_, **__: todo[run.name])
    started = []
    popen = plans.subprocess.Popen
    monkeypatch.setattr(
        plans.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1]
    )

    def full():
        raise OSError("no space left on device")

    runs = plans.read_plan("a: copying-100 0\nb: copying-100 1")
    try:
        with pytest.raises(OSError, match="no space"):
            plans.run_plan(runs, tmp_path, [], 2, 90, ended=full)
        assert [process.poll() is None for process in started] == [False, False]
        assert runs[1].outcome == "stopped: an error"
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_missing_plan(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run_plan.py", "nowhere.txt"])
    with pytest.raises(SystemExit, match=r"nowhere\.txt"):
        plans.main()


def test_nothing_at_once_is_refused(tmp_path):
    with pytest.raises(plans.PlanError, match="--at-once"):
        plans.run_plan([], tmp_path, [], at_once=0, seconds=1)


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "long").mkdir()
    with pytest.raises(plans.PlanError, match="another name"):
        plans.commands(plans.read_plan(PLAN)[1], tmp_path, [])


def test_a_plan_resumes_its_runs(tmp_path):
    config = config_to_dict(RECIPES["copying-100"]())
    RunFolder.create(tmp_path / "long", config)
    _, long = plans.read_plan(PLAN)
    resume, test = (words[3:] for words in plans.commands(long, tmp_path, ["--data", "d"]))
    trained = " ".join(long.flags).replace("--task.delay 2 --model.width 32 ", "").split()
    assert trained[:2] == ["--train.steps", "100000"]
    assert resume == ["resume", f"{tmp_path}/long", "--data", "d", *trained]
    assert test == ["eval", f"{tmp_path}/long", "--split", "test", "--data", "d"]


def test_only_options_of_training_are_passed_on_when_resuming():
    flags = "--train.no-compile --model.width 32 --train.start runs/a --train.anneal 0.1 0.2"
    kept = ["--train.no-compile", "--train.anneal", "0.1", "0.2"]
    assert plans.without([*flags.split(), "--gate.rate", "-1"], plans.is_fixed) == kept
    spelled = ["--train.start=runs/a", "--train.lr=1e-3"]
    assert plans.without(spelled, plans.is_fixed) == ["--train.lr=1e-3"]


def test_a_failing_run_is_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("plan").write_text("copying-100 0 --train.no-such-flag 4")
    monkeypatch.setattr(sys, "argv", ["run_plan.py", "plan"])
    plans.main()
    told = capsys.readouterr().out
    assert "copying-100-seed0: ended with 2, see runs/copying-100-seed0.log" in told
    assert "no-such-flag" in Path("runs/copying-100-seed0.log").read_text()


def test_train_only_resumes_without_tests(tmp_path):
    RunFolder.create(tmp_path / "long", config_to_dict(RECIPES["copying-100"]()))
    _, long = plans.read_plan(PLAN)
    ((*_, first), *more) = ([*words[3:4]] for words in plans.commands(long, tmp_path, []))
    assert (first, more) == ("resume", [["eval"]])
    ((*_, only),) = ([*words[3:4]] for words in plans.commands(long, tmp_path, [], train_only=True))
    assert only == "resume"
