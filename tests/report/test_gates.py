"""Gate pictures of surnn report: those of the model, with data and without."""

import base64
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.reports import TINY, fresh_run, shown
from helpers.tiny_sets import write_mnist
from helpers.training import SMALL, TASK
from surnn import analysis
from surnn.config import EveryNConfig, InputGateConfig, ModelConfig, RhythmConfig, SSMGateConfig
from surnn.report import gates as gates_module
from surnn.report import gather
from surnn.report.gates import histogram, png, raster
from surnn.runs.loading import load
from surnn.tasks.batching import set_data
from surnn.tasks.copying import Copying
from surnn.tasks.listops import ListOps
from surnn.tasks.mnist import PermutedMnist, SequentialMnist
from surnn.tasks.text_file import TextFile


@pytest.fixture
def nothing_here(tmp_path, monkeypatch) -> Path:
    """A machine without data sets."""
    empty = tmp_path / "no data"
    empty.mkdir()
    monkeypatch.setenv("SURNN_CACHE", str(empty))
    monkeypatch.delenv("SURNN_DATA", raising=False)
    return empty


def pixels(picture: dict) -> np.ndarray:
    """What an embedded picture shows."""
    raw = base64.b64decode(picture["png"])
    assert raw[:8] == b"\x89PNG\r\n\x1a\n"
    wide, tall = struct.unpack(">II", raw[16:24])
    begin = raw.index(b"IDAT")
    (length,) = struct.unpack(">I", raw[begin - 4 : begin])
    rows = np.frombuffer(zlib.decompress(raw[begin + 4 :][:length]), np.uint8)
    return rows.reshape(tall, wide + 1)[:, 1:]


def test_rasters_and_rates_are_those_of_the_model(tmp_path):
    fresh_run(tmp_path / "run", TASK, SMALL)
    (about,) = shown(tmp_path / "run")["runs"]
    found = about["gates"]
    model, task, *_ = load(tmp_path / "run")
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
    fresh_run(tmp_path / "run", Copying(delay=20), gate=EveryNConfig(n=4))
    (about,) = shown(tmp_path / "run")["runs"]
    for layer in about["gates"]["layers"]:
        told = layer["intervals"]
        assert told["bins"][told["counts"].index(max(told["counts"]))] == [4, 4]
        assert sum(told["counts"]) == 2 * 9  # two gates, ten updates each in 40 steps
        assert told["median"] == told["longest"] == 4
        assert layer["rate"] == 0.25


def test_the_histogram_counts_all():
    counts = torch.zeros(1001, dtype=torch.int64)
    counts[[1, 2, 40, 41, 1000]] = torch.tensor([3, 1, 5, 5, 1])
    told = histogram(counts)
    assert sum(told["counts"]) == 15
    assert told["median"] == 40
    assert told["longest"] == 1000
    assert all(b + 1 == c for (_, b), (c, _) in zip(told["bins"], told["bins"][1:], strict=False))
    assert histogram(torch.zeros(5, dtype=torch.int64)) == {
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


def test_no_unneeded_data_are_generated(tmp_path, monkeypatch):
    prepared: list[str] = []

    def prepare(self, *_: object) -> None:
        prepared.append(self.name)
        set_data(self, (None, torch.tensor([1, 1, 1, 2])))

    monkeypatch.setattr(ListOps, "prepare", prepare)
    fresh_run(tmp_path / "run", ListOps())
    (about,) = shown(tmp_path / "run")["runs"]
    assert prepared == []
    assert about["metric"]["chance"] is None
    assert "listops" in about["notes"][0]
    assert len(about["gates"]["layers"]) == 2


def test_chance_is_computed_from_available_data(tmp_path, monkeypatch):
    monkeypatch.setattr(
        ListOps, "prepare", lambda s, *_: set_data(s, [(0, torch.tensor([1, 1, 1, 2]))])
    )
    monkeypatch.setattr("surnn.report.run_data.is_available", lambda *_: True)
    fresh_run(tmp_path / "run", ListOps(), ModelConfig(kind="gru", width=8), RhythmConfig())
    (about,) = shown(tmp_path / "run")["runs"]
    assert about["metric"]["chance"] == 0.75
    assert about["notes"] == []


def test_input_gates_say_what_data_they_lack(tmp_path, nothing_here):
    fresh_run(tmp_path / "run", SequentialMnist(), gate=InputGateConfig())
    (about,) = shown(tmp_path / "run")["runs"]
    assert "surnn data get mnist" in about["gates"]["missing"]


def test_input_gates_whose_text_is_gone(tmp_path):
    task = TextFile(path=str(tmp_path / "gone.txt"), context=16)
    fresh_run(tmp_path / "run", task, gate=InputGateConfig(rate=0.3))
    (about,) = shown(tmp_path / "run")["runs"]
    assert "gone.txt" in about["gates"]["missing"]


def test_input_gates_are_shown_on_several_sequences(tmp_path, nothing_here):
    write_mnist(nothing_here)
    fresh_run(tmp_path / "run", SequentialMnist(), gate=SSMGateConfig(rate=0.5))
    (about,) = shown(tmp_path / "run", data=nothing_here)["runs"]
    found = about["gates"]
    assert found["real"]
    assert len(found["inputs"]) == len(found["lengths"]) == gates_module.MAX_SHOWN
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
    fresh_run(tmp_path / "run", task, gate=InputGateConfig())
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


def test_soft_gates_are_marked_soft(tmp_path):
    model = replace(TINY, ungated_layers=1)
    fresh_run(tmp_path / "run", Copying(delay=5), model, RhythmConfig(mode="soft"))
    layers = shown(tmp_path / "run")["runs"][0]["gates"]["layers"]
    assert [layer["soft"] for layer in layers] == [False, True]
    assert layers[0]["rate"] == 1
    assert 0 < layers[1]["rate"] < 1


def test_baselines_have_no_gates(tmp_path):
    fresh_run(tmp_path / "run", Copying(delay=5), ModelConfig(kind="gru", width=8), RhythmConfig())
    (about,) = shown(tmp_path / "run")["runs"]
    assert "gru has no gates" in about["gates"]["missing"]
    assert about["update_rate"] is None


def test_the_duration_of_long_sequences_is_estimated(tmp_path):
    fresh_run(tmp_path / "run", Copying(delay=200), replace(TINY, layers=1))
    said: list[str] = []
    gather(tmp_path / "run", say=said.append)
    assert any("1 x 220 time steps" in text for text in said)
