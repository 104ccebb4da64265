"""Numbers that a run has on record, as arrays."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..runs import RunError, RunFolder


class Curve(NamedTuple):
    """A number of a run, against its updates."""

    step: Int[Tensor, "N"]
    value: Float[Tensor, "N"]


def learning_curve(run: str | Path, number: str = "loss", kind: str = "train") -> Curve:
    """What a run has logged under a name, ``"loss"`` or a metric, in training or validation.

    Args:
        run: its folder.
        number: the name.
        kind: ``"train"`` or ``"valid"``.
    """
    lines = [line for line in RunFolder.open(Path(run)).metrics() if line["kind"] == kind]
    found = [(line["step"], line[number]) for line in lines if _is_number(line.get(number))]
    if not found:
        known = sorted({name for line in lines for name in line if _is_number(line[name])})
        told = f"it has {', '.join(known)}" if known else "it has no such lines at all"
        raise RunError(f"{run} has no {number!r} in its {kind} lines; {told}")
    steps, values = zip(*found, strict=True)
    return Curve(torch.tensor(steps), torch.tensor(values, dtype=torch.float64))


class TimedCurve(NamedTuple):
    """A number of a run, against the time that training had taken."""

    step: Int[Tensor, "N"]
    seconds: Float[Tensor, "N"]
    """Of all that was done till then, compilation and checkpoints too, but no validations."""
    value: Float[Tensor, "N"]


def timed_curve(run: str | Path, number: str) -> TimedCurve:
    """A number of validations, by the clock when they began, which stood still in those before.

    Logs of earlier versions do not say either. There, time between two lines of training is a
    straight line, with validations in it.

    Args:
        run: its folder.
        number: the name: ``"loss"`` or a metric.
    """
    found = learning_curve(run, number, "valid")
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
        pairs = zip(times, np.interp(found.step.numpy(), *steps), strict=True)
        times = [guess if time is None else time for time, guess in pairs]
    return TimedCurve(found.step, torch.tensor(times, dtype=torch.float64), found.value)


def seconds_to(curve: TimedCurve, target: float, higher_is_better: bool = True) -> float | None:
    """When a curve first reached a value, at one of its points; None if it never did."""
    reached = curve.value >= target if higher_is_better else curve.value <= target
    return float(curve.seconds[reached][0]) if reached.any() else None


class Band(NamedTuple):
    """Several curves as one."""

    step: Int[Tensor, "N"]
    mean: Float[Tensor, "N"]
    deviation: Float[Tensor, "N"]
    """Standard deviation; 0 of a single curve."""


def band(curves: Sequence[Curve]) -> Band:
    """Mean and spread of curves at the updates that all of them have."""
    common = curves[0].step
    for curve in curves[1:]:
        common = common[torch.isin(common, curve.step)]
    values = torch.stack([curve.value[torch.isin(curve.step, common)] for curve in curves])
    spread = values.std(0) if len(curves) > 1 else torch.zeros_like(values[0])
    return Band(common, values.mean(0), spread)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
