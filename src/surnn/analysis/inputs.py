"""Sequences to look at a model with, whether its data are here or not."""

from pathlib import Path

import torch

from ..cli import CommandError
from ..models import SequenceModel
from ..tasks.base import Batch, Task, Tokens

CPU = torch.device("cpu")


def why_not_prepared(task: Task, data: Path | None) -> str | None:
    """Load the task's data; why that cannot be done, if it cannot."""
    try:
        task.prepare(CPU, data)
    except (CommandError, ValueError, OSError) as error:
        return str(error)
    return None


def sees_input(model: SequenceModel) -> bool:
    """Whether any gate does; clocks do not."""
    return any(gate.sees_input for layer in model.selective_layers() for gate in layer.gates)


def blank(task: Task) -> Batch:
    """One sequence of zeros, as long as they get: enough for gates that go by the clock."""
    shape = (1, 2, task.steps) if task.output.pairs else (1, task.steps)
    lengths = torch.full(shape[:-1], task.steps) if task.output.pairs else None
    given = task.input
    if isinstance(given, Tokens):
        return Batch(torch.zeros(shape, dtype=torch.int64), torch.zeros(1), lengths)
    return Batch(torch.zeros(*shape, given.features), torch.zeros(1), lengths)
