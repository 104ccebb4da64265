"""Progress of training as text, also when its reader disappears."""

import contextlib
import os

import pytest

from helpers.commands import SIZES
from surnn.cli.main import main
from surnn.config import TrainConfig
from surnn.runs.folder import RunFolder
from surnn.runs.time_budget import format_duration
from surnn.train import progress
from surnn.train.progress import LiveReporter, PlainReporter, SpeedMeter


@contextlib.contextmanager
def unread(monkeypatch):
    """Standard output is a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as file, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", file)
        yield file


def test_a_run_without_a_reader_comes_to_its_end(tmp_path, monkeypatch):
    with unread(monkeypatch):
        assert main(["train", "copying", *SIZES, "--out", str(tmp_path / "run")]) == 0
    assert RunFolder.open(tmp_path / "run").load("last")[1]["step"] == 4


def test_a_live_line_without_a_reader(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    speed = SpeedMeter(TrainConfig(steps=9), 0, 0.0)
    with unread(monkeypatch), LiveReporter(speed, soft=False) as live:
        live.report(1, {"loss": 1.0})
        live.message("still here")


def test_time_left_respects_the_budget(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    free = SpeedMeter(TrainConfig(steps=1000), 0, 0.0)
    hurried = SpeedMeter(TrainConfig(steps=1000, minutes=10), 0, 300.0)
    now[0] = 10.0
    assert free.measure(10) == "1/s, 16 min 30 s left"
    assert hurried.measure(10) == "1/s, 4 min 50 s left"


def test_plain_lines_have_a_least_interval(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    lines = PlainReporter(SpeedMeter(TrainConfig(steps=100), 0, 0.0), soft=False)
    for step in range(10, 101, 10):
        now[0] += 0.5
        lines.report(step, {"loss": 1.0, "update_rate": [0.1, 0.3], "seconds": 1.0})
    lines.report(100, {"valid accuracy": 0.5})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "step 10/100  loss 1  update rate 20.0%  20/s, 4 s left"
    assert [line.split()[1] for line in printed] == [
        "10/100",
        "50/100",
        "90/100",
        "100/100",
        "100/100",
    ]
    assert printed[-1] == "step 100/100  valid accuracy 0.5"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (float("inf"), "?")],
)
def test_durations(seconds, text):
    assert format_duration(seconds) == text
