"""Times of updates: rates, intervals between updates, rasters."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from .recording import LayerRecord, Recording


def update_rates(recording: Recording) -> Float[Tensor, "L"]:
    """Share of (time step, unit) pairs that update, for each layer, without padding."""
    return torch.stack([unit_rates(layer, recording.lengths).mean() for layer in recording.layers])


def unit_rates(layer: LayerRecord, lengths: Int[Tensor, "B"] | None = None) -> Float[Tensor, "H"]:
    """Share of time steps at which each unit updates."""
    batch, steps, _ = layer.gate.shape
    alive = batch * steps if lengths is None else int(lengths.sum())
    return (layer.gate != 0).sum((0, 1)).double() / alive


def intervals(layer: LayerRecord) -> Int[Tensor, "T"]:
    """Histogram of the time steps between successive updates of a unit: its timescales.

    Entry d counts pairs of successive updates d time steps apart, over all units and sequences;
    entry 0 is 0. Time before a unit's first update and after its last is not counted.
    """
    steps = layer.gate.shape[1]
    unit, time = _updates(layer.gate)
    same = unit[1:] == unit[:-1]
    return torch.bincount((time[1:] - time[:-1])[same], minlength=steps)[:steps]


def interval_bins(counts: Int[Tensor, "T"]) -> list[int]:
    """Integer edges, from 1, of bins of growing width for the counts of :func:`intervals`."""
    edges = [1]
    while edges[-1] < len(counts):
        edges.append(max(edges[-1] + 1, round(edges[-1] * 1.25)))
    return edges


def median_interval(counts: Int[Tensor, "T"]) -> int | None:
    """The median of the intervals that :func:`intervals` counted; None if there are none."""
    total = int(counts.sum())
    return int(torch.searchsorted(counts.cumsum(0), (total + 1) // 2)) if total else None


def raster(layer: LayerRecord, sequence: int = 0) -> Bool[Tensor, "G T"]:
    """Open gates of one sequence: one row for each gate, not for each unit."""
    return layer.by_gate[sequence].T != 0


def _updates(gate: Float[Tensor, "B T H"]) -> tuple[Tensor, Tensor]:
    """Unit (over all sequences) and time step of each update, sorted by unit, then by time."""
    rows = (gate != 0).transpose(1, 2).flatten(0, 1)
    unit, time = rows.nonzero().unbind(1)
    return unit, time
