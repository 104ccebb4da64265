"""The data of a task about a user's sequences: read, divided, encoded, ready for batches."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from surnn.data.series import Series

from .base import Batch, Split
from .sequence_goals import IGNORED
from .sequence_splits import Spans

Missing = Literal["error", "previous", "mean"]
CHUNK = 1 << 16
"""Time steps that are read at a time for statistics."""


@dataclass(frozen=True)
class SequenceData:
    """Sequences, with their parts for training, validation and test."""

    series: Series
    windows: dict[Split, Spans]
    """The rows of batches, for each part."""
    target: np.ndarray
    """Encoded: int64 [N] or [S] classes, float32 [N, K] or [S, K] numbers."""
    per: Literal["sequence", "step"]
    ahead: int = 0
    """Time steps from an input to its target."""

    def batch(
        self, split: Split, rows: Tensor, device: torch.device, steps: int | None = None
    ) -> Batch:
        """The windows ``rows``, padded on the right to ``steps`` or to the longest."""
        at = rows.numpy()
        spans = self.windows[split]
        starts, lengths = spans.starts[at], spans.lengths[at]
        inside = np.arange(steps or lengths.max())
        index = starts[:, None] + inside
        padding = inside >= lengths[:, None]
        x = self.series.values[np.minimum(index, len(self.series.values) - 1)]
        x[padding] = 0
        if self.per == "sequence":
            target = self.target[spans.sequence[at]]
        else:
            target = self.target[np.minimum(index + self.ahead, len(self.target) - 1)]
            target[padding] = IGNORED if target.dtype == np.int64 else np.nan
        same = not padding.any()
        return Batch(
            torch.from_numpy(x).to(device),
            torch.from_numpy(target).to(device),
            None if same else torch.from_numpy(lengths).to(device),
        )

    def absent_classes(self, split: Split, count: int) -> list[int]:
        """Those of ``count`` classes that do not occur in a part; none of an empty part."""
        part = self.windows[split]
        if self.per == "sequence":
            labels = self.target[part.sequence]
        else:
            pairs = zip(part.starts, part.lengths, strict=True)
            labels = np.concatenate([self.target[:0], *(self.target[s : s + n] for s, n in pairs)])
        known = np.unique(labels)
        return [number for number in range(count) if number not in known] if len(labels) else []

    def input_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of each feature over the training part."""
        return moments(self.series.values, self.windows["train"])


def match_channels(series: Series, channels: tuple[str, ...]) -> Series:
    """The series with the features ``channels`` in their order; any features if there are none."""
    if not channels or series.channels == channels:
        return series
    if sorted(series.channels) == sorted(channels):
        index = [series.channels.index(name) for name in channels]
        return replace(series, values=series.values[:, index], channels=channels)
    have, expected = (", ".join(names[:12]) for names in (series.channels, channels))
    hint = "choose columns with --task.features"
    if len(series.channels) == len(channels):
        hint += f", or if only the names differ, add --task.channels {' '.join(series.channels)}"
    raise ValueError(
        f"the data have {len(series.channels)} features {have}, and the task has {expected} "
        f"({len(channels)}): {hint}"
    )


def moments(values: np.ndarray, spans: Spans) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each column over spans, ignoring NaN; read in chunks.

    A constant column has deviation 1.
    """
    count = np.zeros(values.shape[1])
    total, squares = np.zeros_like(count), np.zeros_like(count)
    shift = None
    for part in chunks(values, spans):
        known = ~np.isnan(part)
        if shift is None:  # sums of differences from a typical value lose no digits
            shift = np.where(known.any(0), np.nan_to_num(part).sum(0) / known.sum(0).clip(1), 0.0)
        centred = np.where(known, part - shift, 0.0)
        count += known.sum(0)
        total += centred.sum(0)
        squares += (centred**2).sum(0)
    mean = total / count.clip(1)
    variance = np.maximum(squares / count.clip(1) - mean**2, 0)
    size = np.abs(mean + (0 if shift is None else shift))
    std = np.sqrt(variance)
    return mean + (0 if shift is None else shift), np.where(std > 1e-7 * size.clip(1e-30), std, 1.0)


def chunks(values: np.ndarray, spans: Spans) -> Iterator[np.ndarray]:
    """The values of all spans in float64, several short spans at a time."""
    held: list[np.ndarray] = []
    size = 0
    for start, length in zip(spans.starts.tolist(), spans.lengths.tolist(), strict=True):
        for begin in range(start, start + length, CHUNK):
            held.append(values[begin : min(begin + CHUNK, start + length)])
            size += len(held[-1])
            if size >= CHUNK:
                yield np.concatenate(held).astype(np.float64)
                held, size = [], 0
    if held:
        yield np.concatenate(held).astype(np.float64)


def fill_missing(series: Series, train: Spans, how: Missing) -> Series:
    """The series without missing values; infinite ones are an error."""
    if all(np.isfinite(part).all() for part in chunks(series.values, _all(series))):
        return series
    values = np.array(series.values)
    if np.isinf(values).any():
        raise ValueError(
            f"{_place(series, np.isinf(values), 'is infinite')}; remove or correct that value"
        )
    missing = np.isnan(values)
    if how == "error":
        raise ValueError(
            f"{_place(series, missing, 'is missing')} ({missing.sum():,} missing in all); fill "
            "gaps with --task.missing previous (the value before) or mean (of the training part)"
        )
    if how == "previous":
        last = np.where(missing, -1, np.arange(len(values))[:, None])
        first = np.repeat(series.starts, series.lengths)[:, None]
        last = np.maximum.accumulate(last, 0)
        known = last >= first
        values = np.where(known, np.take_along_axis(values, np.maximum(last, 0), 0), np.nan)
        missing = ~known
    mean = moments(series.values, train)[0].astype(np.float32)
    return replace(series, values=np.where(missing, mean, values))


def _all(series: Series) -> Spans:
    return Spans(series.starts, series.lengths, np.arange(len(series.lengths)))


def _place(series: Series, bad: np.ndarray, what: str) -> str:
    step, feature = np.argwhere(bad)[0]
    row = int(np.searchsorted(series.starts, step, side="right")) - 1
    return (
        f"feature {series.channels[feature]!r} {what} at index {step - series.starts[row]} of "
        f"{series.names[row]}"
    )
