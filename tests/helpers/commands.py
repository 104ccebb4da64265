"""Small runs for tests of the command line."""

import json

SIZES = [
    *("--task.delay", "5", "--model.width", "16", "--model.layers", "1"),
    *("--train.steps", "4", "--train.batch", "4", "--train.log-every", "2"),
    *("--train.evaluate-every", "4", "--train.evaluation-batches", "1", "--train.device", "cpu"),
]
"""Flags of a run that takes a second."""


def config_of(run) -> dict:
    return json.loads((run / "config.json").read_text())
