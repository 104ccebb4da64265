"""The logged numbers of a run, as arrays."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from surnn.runs.folder import RunError, RunFolder


class Curve(NamedTuple):
    """A number of a run against optimizer steps."""

    step: Int[Tensor, "N"]
    value: Float[Tensor, "N"]


def learning_curve(run: str | Path, number: str = "loss", kind: str = "train") -> Curve:
    """The numbers that a run logged under one name, in training or validation.

    Args:
        run: the run's folder.
        number: the name: ``"loss"`` or a metric.
        kind: ``"train"`` or ``"valid"``.
    """
    lines = [line for line in RunFolder.open(Path(run)).metrics() if line["kind"] == kind]
    points = [(line["step"], line[number]) for line in lines if _is_number(line.get(number))]
    if not points:
        known = sorted({name for line in lines for name in line if _is_number(line[name])})
        names = f"it has {', '.join(known)}" if known else "it has no such lines"
        raise RunError(f"{run} has no {number!r} in its {kind} lines; {names}")
    steps, values = zip(*points, strict=True)
    return Curve(torch.tensor(steps), torch.tensor(values, dtype=torch.float64))


class TimedCurve(NamedTuple):
    """A number of a run against training time."""

    step: Int[Tensor, "N"]
    seconds: Float[Tensor, "N"]
    """Time since the start with compilation and checkpoints, without validations."""
    value: Float[Tensor, "N"]


def timed_curve(run: str | Path, number: str) -> TimedCurve:
    """A number of the validations against the training time when each of them started.

    Logs of earlier versions lack the times of validations. For these, the time is interpolated
    between the training lines, and includes validations.

    Args:
        run: the run's folder.
        number: the name: ``"loss"`` or a metric.
    """
    curve = learning_curve(run, number, "valid")
    times: list[float | None] = []
    validated = 0.0
    for line in RunFolder.open(Path(run)).metrics():
        if line["kind"] == "valid":
            if _is_number(line.get(number)):
                times.append(line["seconds"] - validated if "took" in line else None)
            validated += line.get("took", 0.0)
    if None in times:
        clock = learning_curve(run, "seconds")
        steps = np.array([0, *clock.step]), np.array([0.0, *clock.value])
        pairs = zip(times, np.interp(curve.step.numpy(), *steps), strict=True)
        times = [guess if time is None else time for time, guess in pairs]
    return TimedCurve(curve.step, torch.tensor(times, dtype=torch.float64), curve.value)


def seconds_to(curve: TimedCurve, target: float, higher_is_better: bool = True) -> float | None:
    """The time of the first point that reaches ``target``; None if no point does."""
    reached = curve.value >= target if higher_is_better else curve.value <= target
    return float(curve.seconds[reached][0]) if reached.any() else None


class Band(NamedTuple):
    """Mean and spread of several curves."""

    step: Int[Tensor, "N"]
    mean: Float[Tensor, "N"]
    deviation: Float[Tensor, "N"]
    """Standard deviation; 0 for a single curve."""


def band(curves: Sequence[Curve]) -> Band:
    """Mean and spread of curves at the optimizer steps that all of them have."""
    common = curves[0].step
    for curve in curves[1:]:
        common = common[torch.isin(common, curve.step)]
    values = torch.stack([curve.value[torch.isin(curve.step, common)] for curve in curves])
    spread = values.std(0) if len(curves) > 1 else torch.zeros_like(values[0])
    return Band(common, values.mean(0), spread)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
