"""A run outlives whoever reads what it says; a terminal that is gone stops it as SIGTERM does."""

import contextlib
import os
import signal

from surnn.cli import main
from surnn.commands import show
from surnn.config import TrainConfig
from surnn.runs import RunFolder
from surnn.tasks.copying import Copying
from test_commands import SIZES
from training import trainer


@contextlib.contextmanager
def unread(monkeypatch):
    """Standard output is a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as file, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", file)
        yield file


def test_a_run_that_nobody_listens_to_comes_to_its_end(tmp_path, monkeypatch):
    with unread(monkeypatch):
        assert main(["train", "copying", *SIZES, "--out", str(tmp_path / "run")]) == 0
    assert RunFolder.open(tmp_path / "run").load("last")[1]["step"] == 4


def test_a_live_line_that_nobody_sees(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    pace = show.Pace(TrainConfig(steps=9), 0, 0.0)
    with unread(monkeypatch), show.LiveReporter(pace, soft=False) as live:
        live.update(1, {"loss": 1.0})
        live.message("still here")


def raising(number: int):
    original = Copying.score

    def score(*arguments):
        signal.raise_signal(number)
        return original(*arguments)

    return score


def test_a_lost_terminal_leaves_a_checkpoint(tmp_path, monkeypatch):
    run = trainer(tmp_path / "run", checkpoint_every=100)
    monkeypatch.setattr(Copying, "score", raising(signal.SIGHUP))
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        run.fit()
        assert run.interrupted
        assert run.folder.load("last")[1]["step"] == 4
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup surnn train
        run = trainer(tmp_path / "other")
        run.fit()
        assert run.step == 12
    finally:
        signal.signal(signal.SIGHUP, before)
