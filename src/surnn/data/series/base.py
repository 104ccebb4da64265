"""Sequences of numbers with their targets, and the options that say how to find them in files."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from surnn.data import DataError

Layout = Literal["long", "wide"]
LARGEST_TEXTS = 1 << 30
"""Most bytes of an array of texts."""
FEWEST_LEVELS = 16
"""Fewest values that float32 must have between the least and the largest of a feature."""


@dataclass(frozen=True)
class Columns:
    """How to read files; the fields are described as options of ``surnn train sequences``."""

    id: str = ""
    time: str = ""
    features: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    group: str = ""
    has_target: bool = True
    """False: no column is a target, so that all are features."""
    layout: Layout = "long"
    labels: str = ""
    names: str = ""
    bands: int = 40
    frame: float = 25.0
    hop: float = 10.0


@dataclass(frozen=True)
class Series:
    """N sequences, one after another: S time steps in all."""

    values: np.ndarray
    """[S, F] float32; may be memory-mapped."""
    lengths: np.ndarray
    """[N] int64."""
    channels: tuple[str, ...]
    """[F] names of the features."""
    target: np.ndarray | None = None
    """[N, K] per sequence or [S, K] per time step; float64, or texts with K = 1. A missing target
    is NaN or an empty text."""
    per_step: bool = False
    """Whether targets are per time step."""
    target_names: tuple[str, ...] = ()
    groups: np.ndarray | None = None
    """[N] texts: patients, speakers, machines."""
    names: Sequence[str] = field(default_factory=list)
    """[N] where each sequence comes from, for messages."""
    rate: int = 0
    """Samples a second of wav files; 0 for other data."""

    @property
    def starts(self) -> np.ndarray:
        """[N] first time step of each sequence."""
        return np.cumsum(self.lengths) - self.lengths


class Part(NamedTuple):
    """One sequence, as a reader of single files returns it."""

    values: np.ndarray
    """[T, F]"""
    name: str
    target: str | float | None = None
    group: str | None = None


def join_parts(parts: list[Part], channels: tuple[str, ...]) -> Series:
    """Sequences with at most one target each as one :class:`Series`."""
    width = {part.values.shape[1] for part in parts}
    if len(width) > 1:
        other = next(p for p in parts if p.values.shape[1] != parts[0].values.shape[1])
        raise DataError(
            f"{parts[0].name} has {parts[0].values.shape[1]} features and {other.name} has "
            f"{other.values.shape[1]}; expected the same number in all"
        )
    targets = [part.target for part in parts]
    target = None
    if any(each is not None for each in targets):
        if None in targets:
            raise DataError(f"{parts[targets.index(None)].name} has no label, and others have one")
        target = as_numbers_or_texts(text_array([str(each) for each in targets]))[:, None]
    grouped = parts[0].group is not None
    return Series(
        np.concatenate([part.values for part in parts]).astype(np.float32, copy=False),
        np.array([len(part.values) for part in parts], np.int64),
        channels,
        target,
        target_names=() if target is None else ("label",),
        groups=text_array([part.group or "" for part in parts]) if grouped else None,
        names=[part.name for part in parts],
    )


def check_resolution(values: np.ndarray, channels: Sequence[str], source: str) -> None:
    """Raise if float32, in which models compute, holds hardly any of a feature's changes [S, F]."""
    if values.dtype.itemsize < 8 or not len(values):
        return
    bounds = np.fmin.reduce(values, 0), np.fmax.reduce(values, 0)
    for name, low, high in zip(channels, *(b.tolist() for b in bounds), strict=True):
        largest = max(abs(low), abs(high))
        if not largest <= float(np.finfo(np.float32).max):
            continue  # refused where sequences are used, with its place
        step = float(np.spacing(np.float32(largest)))
        if 0 < high - low < FEWEST_LEVELS * step:
            raise DataError(
                f"{source}: feature {name!r} has values from {low:.12g} to {high:.12g}, and "
                f"float32 resolves {step:g} there; subtract an offset, or leave it out (a time is "
                "no feature: --task.time)"
            )


def text_array(texts: Sequence[str]) -> np.ndarray:
    """The texts as an array. numpy gives each of them the room of the longest, so that a long one
    in a small file could ask for a terabyte: DataError if they need more than LARGEST_TEXTS."""
    longest = max(map(len, texts), default=0)
    if 4 * longest * len(texts) > LARGEST_TEXTS:
        raise DataError(
            f"a text of {longest:,} characters among {len(texts):,} takes too much memory; remove "
            f"or shorten it: {max(texts, key=len)[:40]!r}..."
        )
    return np.array(texts, dtype=str)


def as_texts(column: np.ndarray) -> np.ndarray:
    """A column [R] as texts: whole numbers without a point, missing ones empty."""
    if column.dtype.kind != "f":
        return np.char.strip(column.astype(str))
    values, inverse = np.unique(column, return_inverse=True)
    texts = [
        "" if math.isnan(v) else f"{v:.0f}" if v.is_integer() else str(v) for v in values.tolist()
    ]
    return np.array(texts)[inverse.reshape(-1)]


def as_numbers_or_texts(column: np.ndarray) -> np.ndarray:
    """A column of texts as float64 if all are numbers (or missing), else as texts."""
    if column.dtype.kind not in "US":
        return column
    try:
        return as_numbers(column)
    except ValueError:
        return column


def as_numbers(column: np.ndarray) -> np.ndarray:
    """A column as float64; empty texts and ``?`` are NaN. ValueError if a text is no number."""
    if column.dtype.kind not in "US":
        return column.astype(np.float64)
    stripped = np.char.strip(column)
    missing = np.isin(stripped, ("", "?", "NA", "NaN", "nan", "null", "None"))
    return np.where(missing, "nan", stripped).astype(np.float64)
