"""The example that listens: it trains, exports, streams and reports, on a tiny set."""

import runpy
import sys
from dataclasses import replace

import numpy as np
import pytest

import surnn
from helpers.engines import export_stream
from helpers.paths import ROOT
from helpers.tiny_sets import write_sounds
from surnn.tasks.spoken_digits import SpokenDigits

EXAMPLE = ROOT / "examples" / "spoken_digits.py"


@pytest.fixture
def example():
    return runpy.run_path(str(EXAMPLE))


def run(example, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["spoken_digits.py", *map(str, words)])
    example["main"]()


def test_it_trains_and_listens(example, tmp_path, monkeypatch, capsys):
    write_sounds(tmp_path)
    config = example["CONFIG"]
    small = replace(
        config,
        task=SpokenDigits(seconds=0.5),
        model=replace(config.model, width=16),
        train=replace(config.train, steps=2, evaluate_every=2, batch=4),
    )
    monkeypatch.setitem(example["train"].__globals__, "CONFIG", small)
    words = ("--data", tmp_path, "--digits", 3, "--out", tmp_path / "run")
    run(example, monkeypatch, *words)
    told = capsys.readouterr().out
    for part in ("int8", "of 3 digits right", "of those of noise", "skipped", "times real time"):
        assert part in told
    with pytest.raises(SystemExit, match="run"):  # it is there already
        run(example, monkeypatch, *words)
    run(example, monkeypatch, "--data", tmp_path, "--digits", 2, "--run", tmp_path / "run")
    assert "of 2 digits right" in capsys.readouterr().out


def test_missing_data_are_told(example, tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match="surnn data get fsdd"):
        run(example, monkeypatch, "--out", tmp_path / "run", "--data", tmp_path)


def test_bursts_of_updates_are_digits(example, tmp_path):
    """A gate that opens above 0: two bursts, and a crackle that is too short."""
    gate = surnn.Threshold(0.0, granularity="layer")
    engine = export_stream(surnn.SuGRU(1, 8, gate=gate), tmp_path).engine
    frames = np.full((200, 1), -1.0, np.float32)
    frames[20:40] = frames[100:130] = frames[70:72] = 1.0
    heard, rates, skipped = example["stream_through"](engine, frames)
    assert [(h.begin, h.end) for h in heard] == [
        (pytest.approx(0.20), pytest.approx(0.39)), (pytest.approx(1.0), pytest.approx(1.29))
    ]  # fmt: skip
    assert all(1 / 8 <= h.certainty < 1 for h in heard)
    assert np.array_equal(rates, (frames[:, 0] > 0).astype(float))
    assert skipped == pytest.approx(1 - 52 / 200, abs=0.05)
    lines = example["timeline"]([(0.2, heard[0].digit), (1.6, 3)], heard)
    assert [("nothing" in line) for line in lines] == [False, True, True]
