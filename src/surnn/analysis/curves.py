"""Numbers that a run has on record, as arrays."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
