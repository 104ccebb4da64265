"""The command ``surnn plot``: files, messages and refusals."""

import errno
import os
import sys

import pytest

from helpers.drawing import draw, texts, train_run
from helpers.paths import ROOT
from surnn.analysis.figures import PLOTS
from surnn.cli.main import main
from surnn.config import InputGateConfig
from surnn.tasks import load_task

pytest.importorskip("matplotlib")


def test_a_figure_without_room_leaves_the_old_one(runs, tmp_path, capsys, monkeypatch):
    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / "curves.png"
    out.write_text("mine")
    monkeypatch.setattr(os, "fsync", full)
    assert main(["plot", "learning-curves", str(runs["sugru"]), "--out", str(out)]) == 2
    assert f"{out} could not be written: [Errno 28] No space left" in capsys.readouterr().err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_command_writes_what_the_ending_says(ending, runs, tmp_path, capsys):
    out = tmp_path / "new" / f"curves.{ending}"
    assert main(["plot", "learning-curves", str(runs["sugru"]), "--out", str(out)]) == 0
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert out.read_bytes().startswith(begins)
    said = capsys.readouterr().out.splitlines()
    assert "this will take a moment" in said[0]
    assert said[-1] == f"wrote {out}"


@pytest.mark.parametrize(("theme", "dark"), [("light", False), ("dark", True)])
def test_a_figure_fits_the_page_around_it(theme, dark, runs, tmp_path):
    image = pytest.importorskip("matplotlib.image")
    out = tmp_path / "curves.png"
    words = [str(runs["sugru"]), "--theme", theme, "--out", str(out)]
    assert main(["plot", "learning-curves", *words]) == 0
    assert (image.imread(out)[0, 0, :3].mean() < 0.5) == dark


@pytest.fixture(scope="module")
def lost(tmp_path_factory):
    """Runs on a text that is gone: one with clocks, one with gates that see the input."""
    folder = tmp_path_factory.mktemp("lost")
    text = folder / "text.txt"
    text.write_bytes(b"all work and no play " * 40)
    task = load_task("text_file")(path=str(text), context=16)
    train_run(folder / "clock", task)
    train_run(folder / "input", task, gate=InputGateConfig(rate=0.3))
    text.unlink()
    return folder


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("gate-raster", "% open"),
        ("timescales", "layer 2, median"),
        ("effective-depth", "every step (dense)"),
        ("paths", "over 16 steps"),
        ("update-rates", " → "),
    ],
)
def test_clocks_are_shown_without_data(name, shown, lost, tmp_path, capsys):
    assert shown in texts(draw(name, lost / "clock"))
    out = str(tmp_path / "x.png")
    assert main(["plot", name, str(lost / "clock"), "--out", out]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "task.path" in said[-2]
    assert main(["plot", name, str(lost / "input"), "--out", out]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "without its data: task.path" in error


@pytest.mark.parametrize("words", [["trajectories"], ["gradients"], ["gate-raster", "--example=1"]])
def test_data_that_are_gone_are_told_in_one_line(words, lost, capsys):
    name, *options = words
    assert main(["plot", name, str(lost / "clock"), *options]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "without its data: task.path" in error


def test_the_list_has_all_figures(capsys):
    assert main(["plot", "list"]) == 0
    said = capsys.readouterr().out
    assert all(f"{name} " in said for name in PLOTS)


@pytest.mark.parametrize("name", ["run-time", "latency"])
def test_figures_of_benchmarks(name, tmp_path, capsys):
    folder = {"run-time": "gpu_bench", "latency": "engine_bench"}
    out = tmp_path / "figure.png"
    assert main(["plot", name, str(ROOT / "results" / folder[name]), "--out", str(out)]) == 0
    assert out.stat().st_size > 10_000
    other = {"run-time": "engine_bench", "latency": "gpu_bench"}[name]
    assert main(["plot", name, str(ROOT / "results" / other), "--out", str(out)]) == 2
    assert "is not a result of surnn bench" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gate-rasta"], "there is no figure 'gate-rasta'; did you mean 'gate-raster'?"),
        (["gate-raster"], "one run, got 0"),
        (["gate-raster", "sugru", "gru"], "one run, got 2"),
        (["timescales"], "which runs?"),
        (["timescales", "gru"], "is a GRU, which has no gates"),
        (["proposition-1", "gru"], "Proposition 1"),
        (["gate-raster", "attention"], "has no recurrent layer to record"),
        (["gradients", "attention"], "step by step"),
        (["copying-loss", "chaos"], "this figure needs copying"),
        (["image-updates", "sugru"], "does not read images"),
        (["gate-raster", "nothing-here"], "there is no folder nothing-here"),
        (["gate-raster", "sugru", "--out", "x.gif"], "x.gif must end in .png, .svg, .pdf"),
        (["gate-raster", "sugru", "--example", "-1"], "--example counts from 0, got -1"),
        (["gate-raster", "sugru", "--example", "1000"], "copying has 1000 valid sequences"),
        (["run-time", "sugru"], "cannot be read"),
    ],
)
def test_what_cannot_be_drawn_is_said(words, said, runs, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plot", *(str(runs.get(word, word)) for word in words)]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_it_says_how_to_get_it(runs, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.chdir(tmp_path)
    assert main(["plot", "gate-raster", str(runs["sugru"])]) == 2
    assert "pip install 'surnn[plot]'" in capsys.readouterr().err
