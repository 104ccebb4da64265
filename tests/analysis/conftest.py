"""Small runs that the tests of figures share."""

from dataclasses import replace

import pytest

from helpers.drawing import SMALL, train_run
from surnn.cli.main import main
from surnn.config import RhythmConfig
from surnn.tasks.copying import Copying
from surnn.tasks.mackey_glass import MackeyGlass

CHAOS = MackeyGlass(horizons=(2, 5), length=130, series=16)


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Small runs of tasks that need no data."""
    folder = tmp_path_factory.mktemp("runs")
    runs = {
        "sugru": train_run(folder / "a", Copying(delay=10)),
        "again": train_run(folder / "b", Copying(delay=10), seed=1),
        "learned": train_run(folder / "l", Copying(delay=10), gate=RhythmConfig(rate=0.3)),
        "gru": train_run(folder / "c", Copying(delay=10), "gru"),
        "attention": train_run(
            folder / "t", Copying(delay=10), "transformer", model=replace(SMALL, block="residual")
        ),
        "chaos": train_run(folder / "d", CHAOS),
        "calm": train_run(folder / "e", CHAOS, "gru"),
    }
    for name in ("sugru", "again", "gru"):
        assert main(["eval", str(runs[name]), "--split", "test"]) == 0
    return runs
