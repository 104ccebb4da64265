"""Values of wrong types in a run's files: commands show an error in a line, never a traceback.

Each case changes some values of one file at random. ``SURNN_DAMAGED_VALUES`` sets the number.
"""

import copy
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from helpers.training import trainer
from surnn.cli.main import main
from surnn.runs import files
from surnn.runs.values import fits, is_metric

CASES = int(os.environ.get("SURNN_DAMAGED_VALUES", "36"))
VALUES = (
    None, True, -1, 0, 1, 10**30, 1e308, float("nan"), "", "x", "\x1b[31m", [], {}, [[]], [1, 2],
    {"a": 1}, 3.7,
)  # fmt: skip
NAMES = (
    "config.json", "environment.json", "metrics.jsonl", "evaluations.jsonl", "resumed.jsonl",
    "last/state.pt",
)  # fmt: skip
EVALUATION = {
    "time": "t", "split": "test", "checkpoint": "best", "overrides": {}, "step": 4,
    "metrics": {"accuracy": 0.5, "loss": 1.0},
}  # fmt: skip
SESSION = {"time": "t", "device": "cpu", "changes": {"train.steps": [1, 2]}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = trainer(tmp_path_factory.mktemp("runs") / "run", steps=4, checkpoint_every=2)
    run.fit()
    run.close()
    path = run.folder.path
    (path / "evaluations.jsonl").write_text(json.dumps(EVALUATION) + "\n")
    (path / "resumed.jsonl").write_text(json.dumps(SESSION) + "\n")
    return path


def places(value: Any, at: tuple = ()) -> Iterator[tuple]:
    """Where values are in nested dictionaries and lists."""
    inside = value.items() if isinstance(value, dict) else []
    inside = enumerate(value[:3]) if isinstance(value, list) else inside
    for key, each in inside:
        yield (*at, key)
        yield from places(each, (*at, key))


def damaged(value: Any, dice: random.Random) -> Any:
    value = copy.deepcopy(value)
    for _ in range(dice.choice((1, 1, 2, 3))):
        *path, last = dice.choice(list(places(value)))
        holder = value
        for key in path:
            holder = holder[key]
        if dice.random() < 0.2:
            del holder[last]
        else:
            holder[last] = dice.choice(VALUES)
    return value


def damage(path: Path, name: str, dice: random.Random) -> None:
    file = path / name
    if name.endswith(".json"):
        file.write_text(json.dumps(damaged(json.loads(file.read_text()), dice)))
    elif name.endswith(".jsonl"):
        lines = [damaged(json.loads(line), dice) for line in file.read_text().splitlines()]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        torch.save(damaged(torch.load(file, weights_only=True), dice), file)
        manifest = file.with_name("manifest.json")
        sums = json.loads(manifest.read_text()) | {file.name: files.checksum(file)}
        manifest.write_text(json.dumps(sums))


@pytest.mark.parametrize("name", NAMES)
def test_no_value_ends_a_command_with_a_traceback(finished, tmp_path, name, capsys):
    for number in range(-(-CASES // len(NAMES))):
        path = Path(shutil.copytree(finished, tmp_path / f"{number}"))
        damage(path, name, random.Random(f"{name} {number}"))
        for command in (["info"], ["report", "--no-gates"], ["resume"]):
            words = [command[0], str(path), *command[1:]]
            words += ["--train.steps", "5"] if command == ["resume"] else []
            try:
                main(words)
            except SystemExit:  # a flag that the task does not have
                pass
            except Exception as error:
                raise AssertionError(f"case {number}: surnn {' '.join(words)}") from error
            shown = capsys.readouterr()
            assert "\x1b" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (1, int, True),
        (True, int, False),
        (1.5, int, False),
        (1, float, True),
        ("x", float, False),
        (None, int | None, True),
        ((1, 2), tuple[int, ...], True),
        ((1, "x"), tuple[int, ...], False),
        ("a", Literal["a", "b"], True),
        (1, Literal["a"], False),
        ((1, "x"), tuple[int, str], True),
        ((1,), tuple[int, str], False),
        (object(), Path, True),
        ("x", int | Literal["x"], True),
    ],
)  # fmt: skip
def test_types_of_options(value, kind, expected):
    assert fits(value, kind) is expected


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1}, {"step": 10**30}, {"step": True}, {"kind": 3}, {"loss": "x"},
        {"update_rate": 0.5}, {"update_rate": ["x"]}, {"update_rate_by_kind": [{"a": "x"}]},
        {"update_rate_by_kind": []}, {"seconds": []},
    ],
    ids=str,
)  # fmt: skip
def test_lines_of_wrong_types_are_none(change):
    line = {"kind": "valid", "step": 1, "loss": 1.0, "update_rate": [0.5]}
    assert is_metric(line | {"accuracy": float("nan"), "update_rate_by_kind": [{"a": 0.5}]})
    assert not is_metric(line | change)
