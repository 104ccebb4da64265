"""Runs as ``surnn reproduce`` leaves them, for tests of their records."""

import json

from helpers.paths import ROOT
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunFolder
from surnn_recipes import RECIPES


def unfinished_run(path, row, seed=0, flags="", **train):
    """A run as ``surnn reproduce`` begins it."""
    config = config_to_dict(RECIPES[row]())
    config["train"] |= {"seed": seed, **train}
    folder = RunFolder.create(path, config)
    how = {"device": "a GPU", "command": f"surnn reproduce {row}{flags}"}
    (path / "environment.json").write_text(json.dumps({**folder.environment(), **how}))
    return folder


def finished_run(path, seed, accuracy, steps=50, row="copying-1000"):
    folder = unfinished_run(path, row, seed, steps=steps)
    for step, seconds in ((10, 2.0), (20, 3.0), (30, 10.0), (40, 17.0), (50, 18.0)):
        folder.log(kind="train", step=step, loss=1.0, seconds=seconds, peak_memory=step * 10**8)
        if step in (20, 30):
            folder.log(kind="valid", step=step, accuracy=accuracy)
    by_kind = [{"data": 0.8, "delay": 0.1}, {"data": 0.6}]
    metrics = {"accuracy": accuracy, "update_rate": [0.1, 0.3], "update_rate_by_kind": by_kind}
    what = {"split": "test", "checkpoint": "best", "step": 50}
    folder.log_evaluation(**what, overrides={"task.delay": 7}, metrics={"accuracy": 0.25})
    folder.log_evaluation(**what, overrides={}, metrics=metrics)
    return path


def recorded_seeds():
    return sorted((ROOT / "results" / "rows").glob("*/seed*"))
