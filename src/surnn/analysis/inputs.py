"""Input sequences for looking at a model, with or without its data."""

from pathlib import Path

import torch

from surnn.errors import SurnnError
from surnn.models.model import SequenceModel
from surnn.tasks.base import Batch, Task, Tokens

CPU = torch.device("cpu")


def why_not_prepared(task: Task, data: Path | None) -> str | None:
    """Load the task's data; returns the reason if that fails.

    The task comes from a run's folder, which may name any file of this machine. A page or figure
    shows the data, so that such files are read only from the folder ``data`` that the user names.
    """
    for named in task.named_files():
        if not _is_inside(named, data):
            return (
                f"task.path is {named!r}; pages and figures show data, so they read it only if you "
                "name its folder with --data FOLDER"
            )
    try:
        task.prepare(CPU, data)
    except (SurnnError, ValueError, OSError) as error:
        return str(error)
    return None


def _is_inside(named: str, folder: Path | None) -> bool:
    """Whether a task would read ``named`` from inside of ``folder``."""
    if folder is None:
        return False
    path = Path(named).expanduser()
    path = path if path.exists() else folder / path
    return path.resolve().is_relative_to(folder.expanduser().resolve())


def sees_input(model: SequenceModel) -> bool:
    """Whether any gate sees the input."""
    return any(gate.sees_input for layer in model.selective_layers() for gate in layer.gates)


def blank(task: Task) -> Batch:
    """One sequence of zeros of full length: sufficient for gates that depend on time alone."""
    shape = (1, 2, task.steps) if task.output.pairs else (1, task.steps)
    lengths = torch.full(shape[:-1], task.steps) if task.output.pairs else None
    inputs = task.input
    if isinstance(inputs, Tokens):
        return Batch(torch.zeros(shape, dtype=torch.int64), torch.zeros(1), lengths)
    return Batch(torch.zeros(*shape, inputs.features), torch.zeros(1), lengths)
