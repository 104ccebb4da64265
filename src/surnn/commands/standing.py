"""Where a run stands, and what can be done next: what its folder tells without training."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..config import RunConfig, TrainConfig
from ..runs import RunFolder
from ..schedule import time_used
from ..tasks.base import Task
from .show import part


class Standing(NamedTuple):
    """How far a run has come."""

    status: str
    """running, finished, stopped or crashed; of a checkpoint that cannot be read, damaged; record
    if the checkpoints are gone."""
    step: int
    """Updates so far; if nobody trains, those of the checkpoint; of a record those it tells of."""
    why: str
    """In words."""
    more: str = ""
    """What ``surnn resume`` must be told for a finished run to go on."""
    process: str = ""
    """The one that trains, or that came to no good end."""


def standing(folder: RunFolder, config: RunConfig, checkpoint: str = "last") -> Standing:
    """Of a run that may go on from ``checkpoint`` with this configuration."""
    running, process = folder.holder()
    if running:
        return Standing(
            "running", folder.reached(), f"process {process} trains it", process=process
        )
    step = 0
    if folder.has_checkpoint():
        _, state = folder.load(checkpoint)
        step, end = state["step"], ending(config.train, state)
        if end is not None:
            return Standing("finished", step, *end)
    if folder.is_record():
        return Standing("record", folder.reached(), "its checkpoints are gone, its log is here")
    if process:
        why = f"process {process} was killed, or met an error"
        return Standing("crashed", step, why, process=process)
    return Standing("stopped", step, "it was asked to")


def ending(train: TrainConfig, state: dict[str, Any]) -> tuple[str, str] | None:
    """Why training ends with this state, and what would make it go on; None if it does not end."""
    step = state["step"]
    if step > state["evaluated"]:  # stopped before its last number was there
        return None
    if step >= train.steps:
        return "all updates are made", f"--train.steps {2 * step}"
    seconds = state["seconds"], state["starting"], state["evaluation_seconds"]
    if train.minutes is not None and time_used(train, *seconds) >= 1:
        return f"{train.minutes:g} minutes are over", f"--train.minutes {2 * train.minutes:g}"
    if train.patience is not None and state["since_best"] >= train.patience:
        why = f"no improvement in {train.patience} evaluations"
        return why, f"--train.patience {2 * train.patience}"
    return None


def best_of(metrics: list[dict[str, Any]], task: Task) -> dict[str, Any] | None:
    """The best validation; one on a part of the set only if there is no other."""
    lines = [m for m in metrics if m["kind"] == "valid" and math.isfinite(m[task.metric])]
    whole = [line for line in lines if "of" not in line]
    best = max if task.higher_is_better else min
    return best(whole or lines, key=lambda line: line[task.metric], default=None)


def in_words(best: dict[str, Any] | None, task: Task) -> str:
    """The best validation."""
    if best is None:
        return "none yet"
    return f"best {task.metric} {best[task.metric]:.4g}{part(best)} (update {best['step']})"


def what_next(path: Path, status: str, more: str, process: str = "") -> Iterator[tuple[str, str]]:
    """What can be done with a run, and the command for it."""
    if status == "running":
        yield "stop it", f"kill {process}, which leaves a checkpoint"
        return
    if status in ("damaged", "record"):
        return
    if status == "finished":
        yield "test it", f"surnn eval {path} --split test"
    yield "go on", f"surnn resume {path} {more}".strip()
