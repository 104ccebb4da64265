"""surnn report: the page carries what was logged and what the gates did, whatever a run is like."""

import base64
import json
import shutil
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from reports import TINY, Parsed, fresh_run, points, train_run
from surnn import analysis
from surnn.cli import main
from surnn.config import GateConfig, ModelConfig, RunConfig
from surnn.recipes import RECIPES
from surnn.report import gates as gates_module
from surnn.report import gather, names, page, write
from surnn.report.curves import MOST_POINTS, curves, speed, thin
from surnn.report.gates import histogram, png, raster
from surnn.report.gathering import paper
from surnn.report.writing import embedded
from surnn.runs import RunFolder
from surnn.tasks.copying import Copying
from surnn.tasks.listops import ListOps
from surnn.tasks.mnist import PermutedMnist, SequentialMnist
from surnn.tasks.stored import keep
from surnn.trained import load
from tiny_sets import write_mnist
from training import CONFIG


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    return train_run(tmp_path_factory.mktemp("runs") / "ours", CONFIG)


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(trained, tmp_path / "ours"))


@pytest.fixture
def nothing_here(tmp_path, monkeypatch) -> Path:
    """A machine without data sets."""
    empty = tmp_path / "no data"
    empty.mkdir()
    monkeypatch.setenv("SURNN_CACHE", str(empty))
    monkeypatch.delenv("SURNN_DATA", raising=False)
    return empty


def shown(*paths: Path, **options) -> dict:
    """What the page about these runs holds."""
    found = [gather(path, **options) for path in paths]
    return Parsed(page(found)).data


def pixels(picture: dict) -> np.ndarray:
    """What an embedded picture shows."""
    raw = base64.b64decode(picture["png"])
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    wide, tall = struct.unpack(">II", raw[16:24])
    begin = raw.index(b"IDAT")
    (length,) = struct.unpack(">I", raw[begin - 4 : begin])
    rows = np.frombuffer(zlib.decompress(raw[begin + 4 :][:length]), np.uint8)
    return rows.reshape(tall, wide + 1)[:, 1:]


# ---------------------------------------------------------------------------- what was logged


def test_the_page_holds_what_was_logged(trained):
    (about,) = shown(trained)["runs"]
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["kind"] == "train"]
    valid = [line for line in lines if line["kind"] == "valid"]
    steps = [line["step"] for line in train]
    assert len(train) == 12
    assert len(valid) == 3
    for name in ("loss", "gradient_norm", "learning_rate"):
        assert points(about, name, "train") == [steps, [line[name] for line in train]]
    for name in ("loss", "accuracy", "loss of recall"):
        assert points(about, name, "valid")[1] == [line[name] for line in valid]
    rates = points(about, "update rate", "train", "layer 1")
    assert rates == [steps, [line["update_rate"][0] for line in train]]
    kind = points(about, "update rate by kind of token", "valid", "delay", "layer 1")
    assert kind[1] == [line["update_rate_by_kind"][0]["delay"] for line in valid]
    assert about["clock"] == [steps, [line["seconds"] for line in train]]
    best = max(valid, key=lambda line: line["accuracy"])
    assert about["metric"]["best"] == {"step": best["step"], "value": best["accuracy"]}
    assert about["metric"]["last"]["value"] == valid[-1]["accuracy"]
    assert about["metric"]["chance"] == 1 / 8
    assert about["status"]["status"] == "finished"
    assert about["seconds"] == train[-1]["seconds"]
    assert about["update_rate"] == valid[-1]["update_rate"]
    weights = load(trained).model.parameters()
    assert about["parameters"] == sum(p.numel() for p in weights)
    assert about["config"]["task.delay"] == 10
    assert about["defaults"]["task.delay"] == 1000
    assert about["environment"]["torch"] == torch.__version__


def test_the_mean_over_layers_is_shown_too():
    lines = [{"kind": "train", "step": s, "seconds": s, "update_rate": [0.2, 0.4]} for s in (1, 2)]
    found = {(c["part"]): c["points"] for c in curves(lines) if c["chart"] == "update rate"}
    assert found["mean of layers"] == ([1, 2], pytest.approx([0.3, 0.3]))
    assert found["layer 2"] == ([1, 2], [0.4, 0.4])


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


def test_evaluations_and_sessions_are_told(run):
    RunFolder(run).evaluated(split="test", metrics={"accuracy": 0.25})
    RunFolder(run).note(step=6, data={"mnist": "/somewhere/private"})
    (about,) = shown(run, gates=False)["runs"]
    assert about["evaluations"][0]["metrics"] == {"accuracy": 0.25}
    assert about["sessions"][0]["step"] == 6
    assert "private" not in json.dumps(about)


def test_a_run_of_another_version_is_shown_as_far_as_it_can_be(run):
    config = json.loads((run / "config.json").read_text())
    config["model"]["wings"] = 2
    (run / "config.json").write_text(json.dumps(config))
    (about,) = shown(run)["runs"]
    assert "wings" in about["notes"][0]
    assert about["config"]["model.wings"] == 2
    assert points(about, "loss", "train")


def test_a_damaged_record_is_spoken_of(run):
    (run / "environment.json").write_text("{")
    for name in ("best", "last"):
        (run / name / "model.safetensors").write_bytes(b"spoilt")
    (about,) = shown(run)["runs"]
    assert "environment.json" in about["notes"][0]
    spoilt = "model.safetensors is not what it was"
    assert spoilt in about["notes"][1]
    assert about["gates"]["missing"].count(spoilt) == 2


def test_speed_leaves_evaluations_out():
    def line(kind: str, step: int, seconds: float) -> dict:
        return {"kind": kind, "step": step, "seconds": seconds}

    lines = [line("train", 10, 1.0), line("train", 20, 2.0), line("valid", 20, 9.0)]
    lines += [line("train", 30, 10.0), line("train", 40, 12.0)]
    assert speed(lines) == ([20, 40], [10.0, 5.0])
    assert speed([lines[1], lines[2], lines[3]]) == ([30], [10 / 8])  # better than nothing


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


def test_a_long_run_makes_a_small_page(run):
    lines = [
        {"kind": "train", "step": s, "loss": 1 / s, "seconds": s / 9, "update_rate": [0.1] * 8}
        for s in range(1, 20_001)
    ]
    lines[10_000]["loss"] = 77.0
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "metrics.jsonl").write_text(text)
    made = page([gather(run, gates=False)])
    assert len(made) < 1_500_000
    (about,) = Parsed(made).data["runs"]
    steps, losses = points(about, "loss", "train")
    assert len(steps) <= MOST_POINTS
    assert losses[steps.index(10_001)] == 77.0
    loss = next(curve for curve in about["curves"] if curve["chart"] == "loss")
    assert loss["logged"] == 20_000
    assert about["clock"][0][-1] == 20_000


# ---------------------------------------------------------------------------- gates


def test_rasters_and_rates_are_those_of_the_model(trained):
    (about,) = shown(trained)["runs"]
    found = about["gates"]
    model, task, *_ = load(trained)
    batch = task.batch("valid", 0, 1, 0, torch.device("cpu"))
    (layer,) = analysis.record(model, batch.x).layers
    assert not found["sees_input"]
    (picture,) = found["layers"][0]["rasters"]
    expected = analysis.raster(layer).numpy()
    assert 0 < expected.mean() < 1
    assert (pixels(picture) == 255 * expected).all()
    assert picture["mean"] == pytest.approx(expected.mean(0), abs=1e-5)
    assert found["layers"][0]["rates"] == pytest.approx(expected.mean(1))
    assert found["layers"][0]["units_per_gate"] == 4
    assert found["inputs"][0]["rows"] == task.input.features
    assert found["inputs"][0]["kinds"] == [[0, 0], [10, 1], [19, 2]]


def test_intervals_of_a_known_schedule(tmp_path):
    fresh_run(tmp_path / "run", Copying(delay=20), gate=GateConfig("every_n", n=4))
    (about,) = shown(tmp_path / "run")["runs"]
    for layer in about["gates"]["layers"]:
        told = layer["intervals"]
        assert told["bins"][told["counts"].index(max(told["counts"]))] == [4, 4]
        assert sum(told["counts"]) == 2 * 9  # two gates, ten updates each in 40 steps
        assert told["median"] == told["longest"] == 4
        assert layer["rate"] == 0.25


def test_the_histogram_counts_all():
    counts = np.zeros(1001, int)
    counts[[1, 2, 40, 41, 1000]] = 3, 1, 5, 5, 1
    told = histogram(counts)
    assert sum(told["counts"]) == 15
    assert told["median"] == 40
    assert told["longest"] == 1000
    assert all(b + 1 == c for (_, b), (c, _) in zip(told["bins"], told["bins"][1:], strict=False))
    assert histogram(np.zeros(5, int)) == {
        "bins": [], "counts": [], "median": None, "longest": None
    }  # fmt: skip


def test_a_large_raster_is_averaged():
    gate = (np.arange(10 * 21).reshape(10, 21) % 3 == 0).astype(np.float32)
    small = raster(gate, 4, 5)
    assert (small["gates_per_row"], small["steps_per_column"]) == (3, 5)
    assert (small["rows"], small["columns"]) == (4, 5)
    cells = pixels(small)
    assert cells[0, 0] == round(255 * gate[:3, :5].mean())
    assert cells[3, 4] == round(255 * gate[9:, 20:].mean())
    assert small["mean"][4] == pytest.approx(gate[:, 20:].mean(), abs=1e-5)


def test_a_picture_is_kept_byte_for_byte():
    picture = np.arange(256, dtype=np.uint8).reshape(8, 32)
    assert (pixels({"png": png(picture)}) == picture).all()


def test_clock_gates_need_no_data(tmp_path, nothing_here):
    fresh_run(tmp_path / "run", PermutedMnist())
    (about,) = shown(tmp_path / "run")["runs"]
    found = about["gates"]
    assert not found["real"]
    assert found["inputs"] == []
    assert found["side"] == 28
    assert found["order"] == PermutedMnist().order().tolist()
    assert pixels(found["layers"][1]["rasters"][0]).shape == (2, 784)


def test_no_data_are_made_that_are_not_needed(tmp_path, monkeypatch):
    made: list[str] = []

    def prepare(self, *_: object) -> None:
        made.append(self.name)
        keep(self, (None, torch.tensor([1, 1, 1, 2])))

    monkeypatch.setattr(ListOps, "prepare", prepare)
    fresh_run(tmp_path / "run", ListOps())
    (about,) = shown(tmp_path / "run")["runs"]
    assert made == []
    assert about["metric"]["chance"] is None
    assert "takes the data of listops" in about["notes"][0]
    assert len(about["gates"]["layers"]) == 2


def test_chance_is_taken_from_data_at_hand(tmp_path, monkeypatch):
    monkeypatch.setattr(ListOps, "prepare", lambda s, *_: keep(s, (0, torch.tensor([1, 1, 1, 2]))))
    monkeypatch.setattr("surnn.report.gathering.at_hand", lambda *_: True)
    fresh_run(tmp_path / "run", ListOps(), ModelConfig(kind="gru", width=8), GateConfig())
    (about,) = shown(tmp_path / "run")["runs"]
    assert about["metric"]["chance"] == 0.75
    assert about["notes"] == []


def test_input_gates_say_what_data_they_lack(tmp_path, nothing_here):
    fresh_run(tmp_path / "run", SequentialMnist(), gate=GateConfig("input"))
    (about,) = shown(tmp_path / "run")["runs"]
    assert "surnn data get mnist" in about["gates"]["missing"]


def test_input_gates_are_shown_on_several_sequences(tmp_path, nothing_here):
    write_mnist(nothing_here)
    fresh_run(tmp_path / "run", SequentialMnist(), gate=GateConfig("ssm", rate=0.5))
    (about,) = shown(tmp_path / "run", data=nothing_here)["runs"]
    found = about["gates"]
    assert found["real"]
    assert len(found["inputs"]) == len(found["lengths"]) == gates_module.SHOWN
    assert found["sequences"] == 6  # all that this tiny set has for validation
    first, second = (pixels(picture) for picture in found["layers"][0]["rasters"][:2])
    assert (first != second).any()
    task = load(tmp_path / "run").task
    task.prepare(torch.device("cpu"), nothing_here)
    x = task.batch("valid", 0, 1, 0, torch.device("cpu")).x[0, :, 0]
    given = found["inputs"][0]
    scaled = given["low"] + pixels(given)[0] / 255 * (given["high"] - given["low"])
    assert scaled == pytest.approx(x.numpy(), abs=1 / 255)


def test_padding_is_not_shown(tmp_path):
    task = Copying(delay=20, variable=True)
    fresh_run(tmp_path / "run", task, gate=GateConfig("input"))
    (about,) = shown(tmp_path / "run")["runs"]
    batch = task.batch("valid", 0, 16, 0, torch.device("cpu"))
    assert batch.lengths is not None
    lengths = batch.lengths[:3].tolist()
    assert len(set(lengths)) > 1
    assert about["gates"]["lengths"] == lengths
    assert [r["columns"] for r in about["gates"]["layers"][0]["rasters"]] == lengths
    recording = analysis.record(load(tmp_path / "run").model, batch.x, batch.lengths)
    expected = analysis.unit_rates(recording.layers[0], batch.lengths)[::4]
    assert about["gates"]["layers"][0]["rates"] == pytest.approx(expected.tolist())


def test_clocks_are_shown_to_their_end(tmp_path):
    task = Copying(delay=20, variable=True)  # of which few sequences are that long
    fresh_run(tmp_path / "run", task)
    found = shown(tmp_path / "run")["runs"][0]["gates"]
    assert found["lengths"] == [40]
    assert not found["real"]


def test_a_stack_that_reads_both_ways(tmp_path):
    model = ModelConfig(width=8, heads=2, layers=2, block="stack", bidirectional=True)
    fresh_run(tmp_path / "run", Copying(delay=5), model)
    layers = shown(tmp_path / "run")["runs"][0]["gates"]["layers"]
    assert [layer["name"] for layer in layers][1] == "layer 1, backwards"
    assert len(layers) == 4


def test_soft_gates_are_told_as_such(tmp_path):
    fresh_run(tmp_path / "run", Copying(delay=5), gate=GateConfig(mode="soft"))
    found = shown(tmp_path / "run")["runs"][0]["gates"]
    assert found["soft"]
    assert 0 < found["layers"][0]["rate"] < 1


def test_baselines_have_no_gates(tmp_path):
    fresh_run(tmp_path / "run", Copying(delay=5), ModelConfig(kind="gru", width=8), GateConfig())
    (about,) = shown(tmp_path / "run")["runs"]
    assert "gru has no gates" in about["gates"]["missing"]
    assert about["update_rate"] is None


def test_long_sequences_are_foretold(tmp_path):
    fresh_run(tmp_path / "run", Copying(delay=200), replace(TINY, layers=1))
    said: list[str] = []
    gather(tmp_path / "run", say=said.append)
    assert any("1 x 220 steps, about" in text for text in said)


# ---------------------------------------------------------------------------- the paper


def test_the_papers_number_is_that_of_its_row():
    row = RECIPES["copying-2000"]()
    told = paper(row)
    assert told is not None
    assert (told["value"], told["recipe"], told["other"]) == (0.8531, "copying-2000", [])
    shorter = replace(row, train=replace(row.train, steps=9, seed=3))
    assert paper(shorter) == told | {"other": ["steps"]}
    assert paper(replace(row, model=replace(row.model, width=32))) is None


# ---------------------------------------------------------------------------- the page itself


def test_the_page_is_whole_and_asks_for_nothing(trained):
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
    assert not set("<>&") & set(embedded(about["environment"]))


def test_embedded_json_is_strict():
    assert json.loads(embedded({"a": [float("nan"), -float("inf"), 1.5]})) == {
        "a": ["nan", "-inf", 1.5]
    }


def test_runs_are_called_so_that_one_can_tell_them_apart():
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
    with pytest.raises(FileExistsError, match="no report of surnn's"):
        write(text, place)
    assert "precious" in place.read_text()


# ---------------------------------------------------------------------------- the command


def test_the_command_writes_beside_the_run(run, capsys):
    assert main(["report", str(run)]) == 0
    assert Parsed((run / "report.html").read_text()).data["runs"][0]["name"] == "ours"
    out = capsys.readouterr().out
    assert "report.html" in out
    assert "made in" in out


def test_the_command_compares(run, tmp_path):
    config = RunConfig(CONFIG.task, ModelConfig(kind="gru", width=8), GateConfig(), CONFIG.train)
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
    out = tmp_path / "notes.txt"
    out.write_text("mine")
    assert main(["report", str(run), "--no-gates", "--out", str(out)]) == 2
    assert "--out" in capsys.readouterr().err


def test_the_command_opens_a_browser(run, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["report", str(run), "--no-gates", "--open"]) == 0
    assert opened == [(run / "report.html").resolve().as_uri()]
