"""Evaluate a trained run on a split of its task, and record the result in its folder."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from surnn.config import RunConfig
from surnn.errors import ConfigError, RunError, option_errors
from surnn.runs.folder import RunFolder
from surnn.runs.loading import load
from surnn.runs.rate_format import format_layer_rates
from surnn.tasks.base import Split, Task

from .devices import pick_device
from .evaluate import evaluate, float32_products


class Evaluation(NamedTuple):
    """The result of :func:`evaluate_run`."""

    about: dict[str, Any]
    """Task, changed options, split, checkpoint, step, and the chance level of the metric."""
    metrics: dict[str, Any]
    config: RunConfig
    """The run's options, with the task that was evaluated."""
    record_error: RunError | None
    """Why the result could not be recorded; None if it was."""


def evaluate_run(
    path: Path,
    split: Split,
    checkpoint: str = "best",
    *,
    change_task: Callable[[Any], Any] = lambda task: task,
    device: str = "auto",
    data: Path | None = None,
    batch: int | None = None,
    seconds: float = math.inf,
) -> Evaluation:
    """Evaluate a run and append the result to its evaluations.jsonl.

    Args:
        path: the run's folder.
        split: valid or test.
        checkpoint: best, last or previous.
        change_task: returns the task to evaluate, given the task of training.
        device: auto, cpu or cuda.
        data: a folder with data sets.
        batch: sequences at a time; None is as in validation.
        seconds: no batch starts after this time; the metrics are then of a part of the split.
    """
    place = pick_device(device)
    model, original, config, step = load(path, checkpoint, place)
    with option_errors():
        config = replace(config, task=change_task(original))
        task, train = config.task, config.train
        changes = task_changes(original, task)
        # Gates keep the clock that was trained, whatever the length is now.
        check_model_fits(original, task, changes)
        task.prepare(place, data)
        if not any(name.endswith("path") for name in changes):  # another file was asked for
            task.check_data_unchanged(path)
    end = time.perf_counter() + seconds
    with float32_products(place, train.tf32):
        metrics = evaluate(
            model, task, split, batch or train.evaluation_batch or train.batch, place,
            precision=train.precision, may_continue=lambda: time.perf_counter() < end,
        )  # fmt: skip
    weights = {"split": split, "checkpoint": checkpoint, "step": step}
    about = {"task": task.name, **changes, **weights, "chance": task.chance}
    try:
        RunFolder(path).log_evaluation(**weights, overrides=changes, metrics=metrics)
    except RunError as error:  # perhaps another user's folder: the metrics are valid all the same
        return Evaluation(about, metrics, config, error)
    return Evaluation(about, metrics, config, None)


def task_changes(original: Any, task: Any) -> dict[str, Any]:
    """Options of the task that differ from those of training."""
    before, now = asdict(original), asdict(task)
    return {f"task.{name}": value for name, value in now.items() if value != before[name]}


def check_model_fits(original: Task, task: Task, changes: dict[str, Any]) -> None:
    """Raise unless the model's input and output are those of training."""
    for before, now in ((original.input, task.input), (original.output, task.output)):
        if before != now:
            options = ", ".join(f"{name} {value}" for name, value in changes.items())
            raise ConfigError(
                f"with {options} the task has {now}, and the model was trained for {before}. "
                "Change only options that keep these, or train another model"
            )


def evaluation_lines(evaluation: Evaluation) -> list[str]:
    """An evaluation as text."""
    about, metrics, config, _ = evaluation
    options = [f"{name} {value}" for name, value in about.items() if name.startswith("task.")]
    lines = [
        f"{', '.join((about['task'], *options))}: {about['split']}, {about['checkpoint']} weights "
        f"(step {about['step']})"
    ]
    for name, value in metrics.items():
        if isinstance(value, int | float):
            chance = f"  (chance {about['chance']:.4g})" if name == config.task.metric else ""
            lines.append(f"  {name:24} {value:.5g}{chance}")
    for layer, (name, value) in enumerate(format_layer_rates(metrics, config), 1):
        lines.append(f"  {f'layer {layer} {name}':24} {value}")
    return lines
