"""Signals stop a run at a checkpoint."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from helpers.paths import TESTS
from helpers.training import fit_until, record, resumed, same, trainer
from surnn.runs.folder import RunFolder
from surnn.tasks.copying import Copying


@pytest.fixture(autouse=True)
def _interruptible():
    """Also where Ctrl-C is ignored, as in the background of a shell script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


SCRIPT = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from helpers.training import *
    t = trainer(Path(sys.argv[1]), steps=100_000, checkpoint_every=2, evaluate_every=100_000)
    t.fit()
    sys.exit(3 if t.interrupted else 0)
    """
)


def test_sigterm_checkpoints_and_exits(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(tests=str(TESTS)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, script, tmp_path / "run"], env=environment)
    deadline = time.monotonic() + 600  # a guard against waiting forever
    while not (tmp_path / "run" / "previous").exists():
        assert process.poll() is None, "the trainer ended by itself"
        assert time.monotonic() < deadline, "no checkpoint came"
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(600) == 3
    folder = RunFolder.open(tmp_path / "run")
    assert folder.load("last")[1]["step"] == folder.metrics()[-1]["step"]


def interrupting(original, times: int):
    def score(*arguments):
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    return score


def test_a_signal_in_an_evaluation_puts_it_off(tmp_path, monkeypatch):
    whole = trainer(tmp_path / "whole")
    whole.fit()
    run = trainer(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Copying, "score", interrupting(Copying.score, 1))
        run.fit()
    assert run.interrupted
    assert (run.step, run.evaluated_step) == (4, 0)
    run = resumed(tmp_path / "run")
    fit_until(run, 4)  # evaluated and on record, but not in a checkpoint
    run.folder.unlock()
    again = resumed(tmp_path / "run")
    again.fit()
    assert same(whole, again)
    assert record(tmp_path / "run") == record(tmp_path / "whole")


def test_a_second_signal_ends_at_once(tmp_path, monkeypatch):
    run = trainer(tmp_path / "run")
    monkeypatch.setattr("surnn.train.signals.ECHO_SECONDS", -1.0)
    monkeypatch.setattr(Copying, "score", interrupting(Copying.score, 2))
    with pytest.raises(KeyboardInterrupt):
        run.fit()
    assert run.folder.load("last")[1]["step"] == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_comes_twice_at_once_is_one(monkeypatch):
    run = trainer()
    monkeypatch.setattr(Copying, "score", interrupting(Copying.score, 2))
    run.fit()
    assert run.interrupted


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
