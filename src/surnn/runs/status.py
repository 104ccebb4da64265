"""The status of a run, read from its folder without training, and the commands that can follow."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from surnn.config import RunConfig, TrainConfig
from surnn.errors import RunError
from surnn.tasks.base import Task

from .folder import RunFolder
from .time_budget import time_used

STATUS = {
    "evaluated_step", "seconds", "startup_seconds", "evaluation_seconds", "evaluations_since_best"
}  # fmt: skip
"""Entries of a checkpoint's state that say whether training has ended."""


class RunStatus(NamedTuple):
    """How far a run has come."""

    status: str
    """running, finished, stopped or crashed; damaged if the checkpoint cannot be read; record if
    the checkpoints were deleted."""
    step: int
    """Optimizer steps so far: of the log while a process trains or only the record is left,
    otherwise of the checkpoint."""
    why: str
    """The reason, as text."""
    resume_flags: str = ""
    """Flags with which ``surnn resume`` continues a finished run."""
    process: str = ""
    """The id of the process that trains, or that ended with an error."""


class TrainingEnd(NamedTuple):
    """Why a run is finished."""

    reason: str
    resume_flags: str
    """Flags with which ``surnn resume`` continues it."""


def run_status(folder: RunFolder, config: RunConfig, checkpoint: str = "last") -> RunStatus:
    """The status of a run that would resume from ``checkpoint`` with this configuration."""
    running, process = folder.lock_holder()
    if running:
        reason = f"process {process} is training it"
        return RunStatus("running", folder.last_step(), reason, process=process)
    step = 0
    if folder.has_checkpoint():
        _, state = folder.load(checkpoint)
        step, end = state["step"], training_end(config.train, state)
        if end is not None:
            return RunStatus("finished", step, *end)
    if folder.is_record():
        reason = "its checkpoints were deleted, its log is left"
        return RunStatus("record", folder.last_step(), reason)
    if process:
        reason = f"process {process} was killed, or ended with an error"
        return RunStatus("crashed", step, reason, process=process)
    return RunStatus("stopped", step, "stopped on request")


def training_end(train: TrainConfig, state: dict[str, Any]) -> TrainingEnd | None:
    """Why training ends in this state of a checkpoint; None if it does not."""
    missing = STATUS - set(state)
    if missing:
        raise RunError(
            f"the checkpoint has no {', '.join(sorted(missing))}: it is damaged, or no process of "
            "surnn train wrote it; use another one (--checkpoint)"
        )
    step = state["step"]
    if step > state["evaluated_step"]:  # stopped before the last evaluation
        return None
    if step >= train.steps:
        return TrainingEnd("all steps are done", f"--train.steps {2 * step}")
    times = state["seconds"], state["startup_seconds"], state["evaluation_seconds"]
    if train.minutes is not None and time_used(train, *times) >= 1:
        flags = f"--train.minutes {2 * train.minutes:g}"
        return TrainingEnd(f"{train.minutes:g} minutes are over", flags)
    if train.patience is not None and state["evaluations_since_best"] >= train.patience:
        reason = f"no improvement in {train.patience} evaluations"
        return TrainingEnd(reason, f"--train.patience {2 * train.patience}")
    return None


def best_validation(metrics: list[dict[str, Any]], task: Task) -> dict[str, Any] | None:
    """The best validation, of equal ones the last; one on a part of the set only if there is no
    other."""
    values = [(m, m.get(task.metric)) for m in metrics if m["kind"] == "valid"]
    lines = [m for m, v in values if isinstance(v, int | float) and math.isfinite(v)]
    whole = [line for line in lines if "of" not in line]
    best = max if task.higher_is_better else min
    return best(reversed(whole or lines), key=lambda line: line[task.metric], default=None)


def format_best(best: dict[str, Any] | None, task: Task) -> str:
    """The best validation as text."""
    if best is None:
        return "none yet"
    value = f"{best[task.metric]:.4g}{partial_note(best)}"
    return f"best {task.metric} {value} (step {best['step']})"


def next_commands(
    path: Path, status: str, resume_flags: str, process: str = ""
) -> Iterator[tuple[str, str]]:
    """The possible next steps of a run, each with its command."""
    if status == "running":
        yield "stop", f"kill {process}, which leaves a checkpoint"
        return
    if status in ("damaged", "record"):
        return
    if status == "finished":
        yield "test", f"surnn eval {path} --split test"
    yield "resume", f"surnn resume {path} {resume_flags}".strip()


def partial_note(metrics: dict[str, Any]) -> str:
    """' on 8 of 1000 sequences' if an evaluation was cut short, otherwise nothing."""
    return f" on {metrics['sequences']} of {metrics['of']} sequences" if "of" in metrics else ""
