"""surnn report: the page carries what was logged, whatever a run is like."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.reports import TINY, Parsed, fresh_run, points, shown, train_run
from helpers.training import CONFIG
from surnn.cli.main import main
from surnn.config import ModelConfig, RhythmConfig, RunConfig
from surnn.errors import RunError
from surnn.report import gather, names, page, write
from surnn.report.curves import MAX_POINTS, curves, steps_per_second, thin
from surnn.report.html_page import script_json
from surnn.report.run_data import paper
from surnn.runs.folder import RunFolder
from surnn.runs.loading import load
from surnn.tasks.copying import Copying
from surnn_recipes import RECIPES


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return train_run(tmp_path_factory.mktemp("runs") / "ours", CONFIG)


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(trained, tmp_path / "ours"))


# ---------------------------------------------------------------------------- what was logged


def test_the_page_holds_what_was_logged(trained):
    (about,) = shown(trained)["runs"]
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["kind"] == "train"]
    valid = [line for line in lines if line["kind"] == "valid"]
    steps = [line["step"] for line in train]
    assert len(train) == 12
    assert len(valid) == 3
    assert not {"took", "seconds", "sequences"} & {curve["chart"] for curve in about["curves"]}
    for name in ("loss", "gradient_norm", "learning_rate"):
        assert points(about, name, "train") == [steps, [line[name] for line in train]]
    for name in ("loss", "accuracy", "loss of recall"):
        assert points(about, name, "valid")[1] == [line[name] for line in valid]
    rates = points(about, "update rate", "train", "layer 1")
    assert rates == [steps, [line["update_rate"][0] for line in train]]
    kind = points(about, "update rate by kind of token", "valid", "delay", "layer 1")
    assert kind[1] == [line["update_rate_by_kind"][0]["delay"] for line in valid]
    assert about["clock"] == [steps, [line["seconds"] for line in train]]
    best = max(reversed(valid), key=lambda line: line["accuracy"])  # of equal ones the last
    assert about["metric"]["best"] == {"step": best["step"], "value": best["accuracy"]}
    assert about["metric"]["last"]["value"] == valid[-1]["accuracy"]
    assert about["metric"]["chance"] == 1 / 8
    assert about["status"]["status"] == "finished"
    assert about["seconds"] == lines[-1]["seconds"] >= train[-1]["seconds"]
    assert about["update_rate"] == valid[-1]["update_rate"]
    weights = load(trained).model.parameters()
    assert about["parameters"] == sum(p.numel() for p in weights)
    assert about["config"]["task.delay"] == 10
    assert about["defaults"]["task.delay"] == 1000
    assert about["environment"]["torch"] == torch.__version__


def test_the_mean_over_layers_is_shown_too():
    lines = [{"kind": "train", "step": s, "seconds": s, "update_rate": [0.2, 0.4]} for s in (1, 2)]
    found = {
        c["part"]: c["points"] for c in curves(lines, soft=False) if c["chart"] == "update rate"
    }
    assert found["mean of layers"] == ([1, 2], pytest.approx([0.3, 0.3]))
    assert found["layer 2"] == ([1, 2], [0.4, 0.4])


def test_a_single_layer_counts_as_the_mean_next_to_deeper_runs(tmp_path):
    for name, rates in (("one", [0.1]), ("two", [0.2, 0.4])):
        run = fresh_run(tmp_path / name, Copying(delay=5), replace(TINY, layers=len(rates)))
        run.log(kind="train", step=1, seconds=1, loss=1, update_rate=rates)
    one, two = shown(tmp_path / "one", tmp_path / "two", gates=False)["runs"]
    assert points(one, "update rate", "train", "mean of layers") == [[1], [0.1]]
    assert points(two, "update rate", "train", "mean of layers")[1] == pytest.approx([0.3])
    rates = [curve for curve in one["curves"] if curve["chart"] == "update rate"]
    assert [curve["part"] for curve in rates] == ["mean of layers", "layer 1"]  # what is first
    (alone,) = shown(tmp_path / "one", gates=False)["runs"]
    assert len(alone["curves"]) == len(one["curves"]) - 1


def test_how_far_soft_gates_are_open_is_no_rate(tmp_path):
    """Not in one chart with rates; and the page knows which layers are soft."""
    soft, model = RhythmConfig(mode="soft"), replace(TINY, ungated_layers=1)
    for name, gate in (("soft", soft), ("binary", RhythmConfig())):
        run = fresh_run(tmp_path / name, Copying(delay=5), model, gate)
        by_kind = [{"data": 1.0}, {"data": 0.2}]
        run.log(kind="valid", step=1, accuracy=0, update_rate=[1, 0.4], update_rate_by_kind=by_kind)
    told, binary = shown(tmp_path / "soft", tmp_path / "binary", gates=False)["runs"]
    chart = "how far gates are open"
    assert points(told, chart, "valid", "layer 2") == [[1], [0.4]]
    assert points(told, f"{chart} by kind of token", "valid", "data", "layer 2") == [[1], [0.2]]
    rates = {"update rate", "update rate by kind of token"}
    assert not rates & {curve["chart"] for curve in told["curves"]}
    assert rates <= {curve["chart"] for curve in binary["curves"]}
    assert (told["soft"], binary["soft"]) == ([False, True], [False, False])
    assert told["update_rate"] == [1, 0.4]


def test_a_line_that_was_cut_off_is_left_out(run):
    whole = shown(run, gates=False)["runs"][0]
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "step": 13, "lo')
    assert shown(run, gates=False)["runs"][0]["curves"] == whole["curves"]


def test_nothing_logged_yet(tmp_path):
    fresh_run(tmp_path / "run", Copying(delay=5), checkpoint=False)
    (about,) = shown(tmp_path / "run")["runs"]
    assert about["curves"] == []
    assert about["metric"]["best"] is None
    assert about["parameters"] > 0
    assert "holds no checkpoint 'best'" in about["gates"]["missing"]


def test_numbers_that_are_not_finite(run):
    line = {"kind": "valid", "step": 12, "accuracy": float("nan"), "loss": float("inf")}
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    (about,) = shown(run, gates=False)["runs"]  # which is read as strict JSON
    assert points(about, "accuracy", "valid")[1][-1] is None
    assert about["metric"]["last"]["value"] == "nan"


def test_evaluations_and_sessions_are_shown(run):
    RunFolder(run).log_evaluation(split="test", metrics={"accuracy": 0.25})
    RunFolder(run).log_session(step=6, data={"mnist": "/somewhere/private"})
    (about,) = shown(run, gates=False)["runs"]
    assert about["evaluations"][0]["metrics"] == {"accuracy": 0.25}
    assert about["sessions"][0]["step"] == 6
    assert "private" not in json.dumps(about)


def test_a_run_of_another_version_shows_its_log(run):
    config = json.loads((run / "config.json").read_text())
    config["model"]["wings"] = 2
    (run / "config.json").write_text(json.dumps(config))
    (about,) = shown(run)["runs"]
    assert "wings" in about["notes"][0]
    assert about["config"]["model.wings"] == 2
    assert points(about, "loss", "train")


def test_a_damaged_record_is_noted(run):
    (run / "environment.json").write_text("{")
    for name in ("best", "last"):
        (run / name / "model.safetensors").write_bytes(b"spoilt")
    (about,) = shown(run)["runs"]
    assert "environment.json" in about["notes"][0]
    spoilt = "model.safetensors does not match"
    assert spoilt in about["notes"][1]
    assert about["gates"]["missing"].count(spoilt) == 2


def test_speed_leaves_evaluations_out():
    def line(kind: str, step: int, seconds: float) -> dict:
        return {"kind": kind, "step": step, "seconds": seconds}

    lines = [line("train", 10, 1.0), line("train", 20, 2.0), line("valid", 20, 9.0)]
    lines += [line("train", 30, 10.0), line("train", 40, 12.0)]
    assert steps_per_second(lines) == ([20, 40], [10.0, 5.0])
    paused = [lines[1], lines[2], lines[3]]
    assert steps_per_second(paused) == ([30], [10 / 8])  # better than nothing
    assert steps_per_second(paused, with_pauses=False) == ([], [])
    paused[1] = {**paused[1], "took": 6.0}
    assert steps_per_second(paused, with_pauses=False) == ([30], [10 / 2])


# ---------------------------------------------------------------------------- long runs


def test_thinning_keeps_every_peak():
    generator = np.random.default_rng(0)
    values = generator.normal(size=20_001)
    values[[5000, 12345]] = 50.0, -50.0
    values[7000:7003] = np.nan
    steps = list(range(100, 100 + len(values)))
    (places, kept), (_, means) = thin(steps, values.tolist(), 400)
    assert len(kept) <= 400
    assert {50.0, -50.0} <= set(kept)
    assert all(values[place - 100] == value for place, value in zip(places, kept, strict=True))
    assert (places[0], places[-1]) == (steps[0], steps[-1])
    assert places == sorted(places)
    shown = np.array([places, kept])
    longest = 110  # points of a stretch, and a few
    for begin in range(0, len(values), 1000):  # wherever one looks, the extremes are near
        window = values[begin : begin + 1000]
        near = (shown[0] >= begin + 100 - longest) & (shown[0] < begin + 1100 + longest)
        assert np.nanmax(shown[1][near]) >= np.nanmax(window)
        assert np.nanmin(shown[1][near]) <= np.nanmin(window)
    assert np.average(means) == pytest.approx(np.nanmean(values), abs=0.01)


def write_log(run: Path, steps: int) -> None:
    """A log of so many steps of eight layers, with one peak of the loss at 1001."""
    rates = [round(0.1 + layer / 70, 6) for layer in range(8)]
    with (run / "metrics.jsonl").open("w") as file:
        for step in range(1, steps + 1):
            loss = 77.0 if step == 1001 else 2 / step**0.3
            file.write(
                f'{{"kind": "train", "step": {step}, "loss": {loss}, "gradient_norm": {loss / 3}, '
                f'"learning_rate": 0.001, "seconds": {step / 9}, "update_rate": {rates}}}\n'
            )


def test_a_long_log_makes_a_small_page(run):
    write_log(run, 20_000)
    assert main(["report", str(run), "--no-gates"]) == 0
    text = (run / "report.html").read_text()
    assert len(text) < 2_000_000
    (about,) = Parsed(text).data["runs"]
    steps, losses = points(about, "loss", "train")
    assert len(steps) <= MAX_POINTS
    assert losses[steps.index(1001)] == 77.0
    assert len(about["clock"][0]) <= 2 * MAX_POINTS
    assert about["clock"][0][-1] == 20_000
    for curve in about["curves"]:
        assert len(curve["points"][0]) <= MAX_POINTS
        assert curve["logged"] in (20_000, 19_999)  # speed is between lines


def test_work_grows_with_the_log_and_not_with_its_square(run, monkeypatch):
    """Counted: lines parsed, and values read from them."""
    counts: Counter[str] = Counter()
    loads = json.loads

    class CountedLine(dict):
        __hash__ = None

        def __eq__(self, other):
            counts["values"] += 1
            return super().__eq__(other)

        def __getitem__(self, name):
            counts["values"] += 1
            return super().__getitem__(name)

        def get(self, name, default=None):
            counts["values"] += 1
            return super().get(name, default)

        def items(self):
            counts["values"] += len(self)
            return super().items()

    def parse(text: str) -> CountedLine:
        counts["lines"] += 1
        return CountedLine(loads(text))

    work = {}
    for steps in (500, 5000):
        write_log(run, steps)
        counts.clear()
        with monkeypatch.context() as patch:
            patch.setattr(json, "loads", parse)
            page([gather(run, gates=False)])
        work[steps] = dict(counts)
    assert work[5000]["lines"] <= 2 * 5000 + 100
    assert work[5000]["values"] <= 11 * work[500]["values"]


# ---------------------------------------------------------------------------- the paper


def test_the_papers_number_is_that_of_its_row():
    row = RECIPES["copying-2000"]()
    told = paper(row)
    assert told is not None
    assert (told["value"], told["recipe"], told["differences"]) == (0.8531, "copying-2000", [])
    shorter = replace(row, train=replace(row.train, steps=9, seed=3))
    assert paper(shorter) == told | {"differences": ["steps"]}
    assert paper(replace(row, model=replace(row.model, width=32))) is None


# ---------------------------------------------------------------------------- the page itself


def test_the_page_is_complete_and_requests_nothing(trained):
    text = page([gather(trained)])
    parsed = Parsed(text)
    assert {"main", "nav", "header", "footer", "style", "noscript"} <= set(parsed.tags)
    assert len(parsed.scripts) == 2
    assert "@@" not in text
    assert text.isascii()
    for word in ("http://", "https://", "src=", "@import", "url("):
        assert word not in text.replace("http://www.w3.org/2000/svg", ""), word


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"</title>&lt;@@DATA@@', "söta"])
def test_strings_of_a_run_are_only_text(trained, name):
    evil = "</script><script>alert(1)</script><!-- <b>\u2028"
    about = gather(trained, name, gates=False)
    about["environment"]["command"] = evil
    parsed = Parsed(page([about]))
    assert len(parsed.scripts) == 2
    assert "b" not in parsed.tags
    assert parsed.title == f"{name} - surnn report"
    (told,) = parsed.data["runs"]
    assert told["name"] == name
    assert told["environment"]["command"] == evil
    assert not set("<>&") & set(script_json(about["environment"]))


def test_embedded_json_is_strict():
    assert json.loads(script_json({"a": [float("nan"), -float("inf"), 1.5]})) == {
        "a": ["nan", "-inf", 1.5]
    }


def test_runs_have_distinct_names():
    assert names([Path("/a/b/run")]) == ["run"]
    assert names([Path("/a/one/x"), Path("/a/two/x")]) == ["one/x", "two/x"]
    assert names([Path("/a/x"), Path("/a/x")]) == ["x (1)", "x (2)"]


def test_only_reports_are_overwritten(trained, tmp_path):
    text, place = page([gather(trained, gates=False)]), tmp_path / "new" / "page.html"
    write(text, place)
    write(text, place)
    assert place.read_text() == text
    assert [path.name for path in place.parent.iterdir()] == ["page.html"]
    place.write_text("<html>precious</html>")
    with pytest.raises(RunError, match="--out"):
        write(text, place)
    assert "precious" in place.read_text()


# ---------------------------------------------------------------------------- the command


def test_the_command_writes_into_the_run(run, capsys):
    assert main(["report", str(run)]) == 0
    assert Parsed((run / "report.html").read_text()).data["runs"][0]["name"] == "ours"
    out = capsys.readouterr().out
    assert "report.html" in out
    assert "written in" in out


def test_the_command_compares(run, tmp_path):
    config = RunConfig(CONFIG.task, ModelConfig(kind="gru", width=8), RhythmConfig(), CONFIG.train)
    other = train_run(tmp_path / "theirs", config)
    out = tmp_path / "both.html"
    assert main(["report", str(run), str(other), "--no-gates", "--out", str(out)]) == 0
    ours, theirs = Parsed(out.read_text()).data["runs"]
    assert (ours["name"], theirs["name"]) == ("ours", "theirs")
    assert "--no-gates" in ours["gates"]["missing"]
    assert not (run / "report.html").exists()


def test_the_command_says_what_is_wrong(tmp_path, run, capsys):
    assert main(["report", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["report", str(run), str(tmp_path / "none")]) == 2
    found = capsys.readouterr()
    assert "there is no folder" in found.err
    assert found.out == ""  # before any work is done
    out = tmp_path / "notes.txt"
    out.write_text("mine")
    assert main(["report", str(run), "--no-gates", "--out", str(out)]) == 2
    assert "--out" in capsys.readouterr().err


def test_the_command_opens_a_browser(run, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["report", str(run), "--no-gates", "--open"]) == 0
    assert opened == [(run / "report.html").resolve().as_uri()]
