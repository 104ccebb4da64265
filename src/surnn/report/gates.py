"""Pictures of a trained model's gates over time.

Gates that depend on time alone can be shown without data. Gates that depend on the input are shown
on sequences of the validation set.
"""

import base64
import struct
import time
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surnn.analysis import (
    LayerRecord,
    Recording,
    interval_bins,
    intervals,
    median_interval,
    pixel_order,
    record,
)
from surnn.analysis.inputs import CPU, blank, sees_input, why_not_prepared
from surnn.config import OURS
from surnn.data.locate import find
from surnn.runs.loading import Trained
from surnn.tasks.base import Batch, Task, Tokens

Say = Callable[[str], None]
MAX_SHOWN = 3
"""Sequences to choose from on the page, if gates depend on the input."""
MAX_SEQUENCES = 16
"""Sequences that rates and intervals are computed from."""
MAX_VALUES = 64_000_000
"""Recorded gate values and states; limits memory."""
MAX_ROWS, MAX_COLUMNS = 256, 4096
"""Size of one picture."""
MAX_CELLS = 4_000_000
"""Size of all pictures of a run."""
TRIAL_STEPS = 64
"""Time steps of the trial run that estimates the duration."""


class NoGates(Exception):
    """There are no pictures; the message says why."""


def gate_pictures(trained: Trained, data: Path | None, say: Say) -> dict[str, Any]:
    """Rasters, update rates and intervals between updates of every layer."""
    model, task, config = trained.model, trained.task, trained.config
    if config.model.kind not in OURS:
        raise NoGates(
            f"{config.model.kind} has no gates: all its units update at every time step; models "
            f"with gates: {', '.join(OURS)}"
        )
    layers = model.selective_layers()
    seeing = sees_input(model)
    width = sum(layer.state_size * len(layer.gates) for layer in layers)
    count = max(1, min(MAX_SEQUENCES, MAX_VALUES // (task.steps * width))) if seeing else 1
    batch, real = _sequences(task, count, seeing, data, say)
    recording = _record(trained, batch, say)
    shown = min(len(_lengths(recording)), MAX_SHOWN if seeing else 1)
    steps = int(_lengths(recording)[:shown].max())
    cells = MAX_CELLS // (len(recording.layers) * shown)
    order = pixel_order(task)
    return {
        "checkpoint_step": trained.step,
        "sees_input": seeing,
        "sequences": len(recording.layers[0].gate),
        "lengths": _lengths(recording)[:shown].tolist(),
        "real": real,
        "side": int(len(order) ** 0.5) if order is not None else None,
        "order": None if order is None else order.tolist(),
        "kinds": list(task.kinds),
        "inputs": [_input(task, batch, each, steps) for each in range(shown)] if real else [],
        "layers": [_layer(layer, recording, shown, cells) for layer in recording.layers],
    }


def prepare(task: Task, data: Path | None, say: Say) -> str | None:
    """Load the task's data. Returns None, or why they cannot be loaded."""
    if type(task).prepare is not Task.prepare:
        say(f"loading the data of {task.name}")
    return why_not_prepared(task, data)


def is_available(task: Task, data: Path | None) -> bool:
    """Whether the data can be loaded without downloading or generating them."""
    if type(task).prepare is Task.prepare:
        return True
    return bool(task.needs) and all(find(name, data) is not None for name in task.needs)


# ---------------------------------------------------------------------------- running the model


def _sequences(
    task: Task, count: int, needed: bool, data: Path | None, say: Say
) -> tuple[Batch, bool]:
    """Validation sequences, and True; or zeros, and False, if real data are not ``needed`` and
    either not available or shorter than the task's longest sequence."""
    if needed or is_available(task, data):
        why = prepare(task, data, say)
        if why is None:
            batch = task.batch("valid", 0, count, 0, CPU)
            if needed or batch.lengths is None or int(batch.lengths.min()) == task.steps:
                return batch, True
        elif needed:
            raise NoGates(f"these gates depend on the input, and the data cannot be loaded: {why}")
    return blank(task), False


def _record(trained: Trained, batch: Batch, say: Say) -> Recording:
    """Run the model on these sequences, after a trial run that estimates the duration."""
    axis = 2 if trained.task.output.pairs else 1
    steps = batch.x.shape[axis]
    if steps > TRIAL_STEPS:
        short = batch.x.narrow(axis, 0, TRIAL_STEPS)
        record(trained.model, short)  # warm-up
        begin = time.perf_counter()
        record(trained.model, short)
        expected = (time.perf_counter() - begin) * steps / TRIAL_STEPS
        say(f"running the model on {len(batch.x)} x {steps} time steps, about {expected:.0f} s")
    return record(trained.model, batch.x, batch.lengths)


def _lengths(recording: Recording) -> torch.Tensor:
    batch, steps, _ = recording.layers[0].gate.shape
    whole = torch.full((batch,), steps)
    return whole if recording.lengths is None else recording.lengths


# ---------------------------------------------------------------------------- pictures


def _layer(layer: LayerRecord, recording: Recording, shown: int, cells: int) -> dict[str, Any]:
    gate = layer.by_gate.numpy()
    lengths = _lengths(recording).numpy()
    rates = gate.sum((0, 1), dtype=float) / lengths.sum()
    rows = min(gate.shape[-1], MAX_ROWS)
    columns = max(MAX_COLUMNS // 16, min(MAX_COLUMNS, cells // rows))
    return {
        "name": layer.name,
        "units": layer.gate.shape[-1],
        "units_per_gate": layer.group,
        "soft": layer.soft,
        "rate": float(rates.mean()),
        "rates": rates.tolist(),
        "intervals": histogram(intervals(layer) // layer.group),
        "rasters": [raster(gate[each, : lengths[each]].T, rows, columns) for each in range(shown)],
    }


def histogram(counts: torch.Tensor) -> dict[str, Any]:
    """Intervals between updates in widening bins. ``counts[d]`` is the number of intervals of d
    time steps.

    Example:
        >>> histogram(torch.tensor([0, 5, 0, 1]))["counts"]
        [5, 0, 1]
    """
    longest = max(counts.nonzero().flatten().tolist(), default=None)
    bins = [(a, b - 1) for a, b in pairwise(interval_bins(counts)) if a <= (longest or 0)]
    return {
        "bins": bins,
        "counts": [int(counts[a : b + 1].sum()) for a, b in bins],
        "median": median_interval(counts),
        "longest": longest,
    }


def raster(gate: np.ndarray, rows: int, columns: int) -> dict[str, Any]:
    """Gates [G, T] as a picture with at most so many rows and columns, each cell the mean over the
    gates and time steps it covers, and the mean of each column."""
    tall, wide = (-(-size // most) for size, most in zip(gate.shape, (rows, columns), strict=True))
    small = _pool(_pool(gate.astype(np.float32), tall, 0), wide, 1)
    return {
        "png": png(np.rint(255 * small).astype(np.uint8)),
        "rows": small.shape[0],
        "columns": small.shape[1],
        "gates_per_row": tall,
        "steps_per_column": wide,
        "mean": [round(float(v), 5) for v in _pool(gate.mean(0, keepdims=True), wide, 1)[0]],
    }


def _pool(values: np.ndarray, size: int, axis: int) -> np.ndarray:
    """Means of ``size`` neighbours along an axis; the last mean may have fewer."""
    if size == 1:
        return values
    starts = np.arange(0, values.shape[axis], size)
    counts = np.diff([*starts, values.shape[axis]])
    return np.add.reduceat(values, starts, axis) / np.expand_dims(counts, 1 - axis)


def _input(task: Task, batch: Batch, sequence: int, steps: int) -> dict[str, Any] | None:
    """A sequence's input, a row for each feature, and the time steps at which the kind of token
    changes."""
    x = batch.x.flatten(0, 1) if task.output.pairs else batch.x
    values = x[sequence, :steps].reshape(steps, -1).T.double().numpy()
    wide = -(-steps // MAX_COLUMNS)
    if len(values) > MAX_ROWS:
        return None
    low, high = (0, task.input.vocabulary - 1) if isinstance(task.input, Tokens) else (0.0, 0.0)
    if high == low:
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
    scaled = np.nan_to_num((_pool(values, wide, 1) - low) / ((high - low) or 1.0))
    picture = {
        "png": png(np.rint(255 * scaled).astype(np.uint8)), "rows": len(values),
        "columns": scaled.shape[1], "steps_per_column": wide, "low": low, "high": high,
        "tokens": isinstance(task.input, Tokens),
    }  # fmt: skip
    if batch.kinds is not None:
        kinds = batch.kinds[sequence, :steps].numpy()
        changes = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist()]
        picture["kinds"] = [[begin, int(kinds[begin])] for begin in changes]
    return picture


def png(grey: np.ndarray) -> str:
    """An image [rows, columns] of bytes as a grey PNG in base64."""
    rows, columns = grey.shape
    header = struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0)
    unfiltered = b"".join(b"\0" + row.tobytes() for row in grey)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(unfiltered, 9)), (b"IEND", b"")
    packed = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + packed).decode()
