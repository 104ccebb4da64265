"""When units updated: rates, intervals between updates, rasters."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .recording import LayerRecord, Recording


def update_rates(recording: Recording) -> Float[Tensor, "L"]:
    """Share of (step, unit) pairs that update, for each layer, over the steps that exist."""
    return torch.stack([unit_rates(layer, recording.lengths).mean() for layer in recording.layers])


def unit_rates(layer: LayerRecord, lengths: Int[Tensor, "B"] | None = None) -> Float[Tensor, "H"]:
    """Share of steps at which each unit updates."""
    batch, steps, _ = layer.gate.shape
    alive = batch * steps if lengths is None else int(lengths.sum())
    return (layer.gate != 0).sum((0, 1)).double() / alive


def intervals(layer: LayerRecord) -> Int[Tensor, "T"]:
    """Histogram of the steps between a unit's successive updates: its timescales.

    Entry d counts the pairs of updates d steps apart, over all units and sequences; entry 0 is 0.
    What is before a unit's first update and after its last is not counted.
    """
    steps = layer.gate.shape[1]
    unit, time = _updates(layer.gate)
    same = unit[1:] == unit[:-1]
    return torch.bincount((time[1:] - time[:-1])[same], minlength=steps)[:steps]


def interval_bins(counts: Int[Tensor, "T"]) -> list[int]:
    """Edges of bins that widen, whole numbers from 1 on, for what :func:`intervals` counted."""
    edges = [1]
    while edges[-1] < len(counts):
        edges.append(max(edges[-1] + 1, round(edges[-1] * 1.25)))
    return edges


def median_interval(counts: Int[Tensor, "T"]) -> int | None:
    """Of what :func:`intervals` counted; None if that is nothing."""
    total = int(counts.sum())
    return int(torch.searchsorted(counts.cumsum(0), (total + 1) // 2)) if total else None


def raster(layer: LayerRecord, sequence: int = 0) -> Bool[Tensor, "G T"]:
    """Which gates were open when, in one sequence: a row for each gate, not for each unit."""
    return layer.by_gate[sequence].T != 0


def _updates(gate: Float[Tensor, "B T H"]) -> tuple[Tensor, Tensor]:
    """Number of the unit (of all sequences) and step of each update, unit by unit in order."""
    rows = (gate != 0).transpose(1, 2).flatten(0, 1)
    unit, time = rows.nonzero().unbind(1)
    return unit, time
