"""Sequences that a Python program holds: the task of ``surnn.fit``."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from surnn.data.series import Series
from surnn.data.series.arrays import from_arrays
from surnn.data.series.base import check_resolution
from surnn.data.text_files import read_text

from .sequences import ON_RECORD, Sequences


@dataclass(frozen=True)
class PythonData(Sequences):
    """Sequences that were given to ``surnn.fit`` or to an estimator; they are not on disk.

    Options are those of ``surnn train sequences``.
    """

    name: ClassVar[str] = "python_data"

    def attach(self, train: Series, valid: Series | None, test: Series | None) -> "PythonData":
        """This task with data."""
        object.__setattr__(self, "_series", (train, valid, test))
        return self

    def _read(self, data: Path | None) -> tuple[Series, np.ndarray, dict[str, Any]]:
        if "_series" not in vars(self):
            raise ValueError(
                "the data of this run were Python objects and are not on disk: pass them to "
                "surnn.fit(..., resume=RUN), or use surnn.load(RUN).model"
            )
        parts = [(n, each) for n, each in enumerate(vars(self)["_series"]) if each is not None]
        given = np.concatenate([np.full(len(each.lengths), n) for n, each in parts])
        about = {f"set {n}": _fingerprint(each) for n, each in parts}
        return self._joined([each for _, each in parts]), given, about

    def check_data_unchanged(self, run: Path) -> None:
        if not (run / ON_RECORD).is_file():
            return
        if json.loads(read_text(run / ON_RECORD))["files"] != vars(self)["_about"]:
            raise ValueError(
                f"the data are not those that {run} was trained on: pass the same, or start a new "
                "run without resume"
            )

    def _copy(self, **changes: Any) -> "PythonData":
        copy = super()._copy(**changes)
        if "_series" in vars(self):
            copy.attach(*vars(self)["_series"])
        return copy


def _fingerprint(series: Series) -> dict[str, int | str]:
    digest = hashlib.sha256(series.values.tobytes())
    digest.update(series.lengths.tobytes())
    if series.target is not None:
        digest.update(series.target.tobytes())
    return {"sequences": len(series.lengths), "sha256": digest.hexdigest()}


def series_of(dataset: Any) -> Series:
    """All items of a torch Dataset as sequences.

    An item is x [T] or [T, features], or (x, y): y is a class, a number or text, K numbers, or
    targets at each time step [T] or [T, K].
    """
    items = [dataset[index] for index in range(len(dataset))]
    if not items:
        raise ValueError("the data set is empty; expected items (x, y)")
    pairs = [i if isinstance(i, tuple | list) and len(i) == 2 else (i, None) for i in items]
    xs = [as_array(x) for x, _ in pairs]
    if any(x.ndim not in (1, 2) for x in xs):
        shape = next(x.shape for x in xs if x.ndim not in (1, 2))
        raise ValueError(f"expected x of shape [T] or [T, features], got {list(shape)}")
    xs = [x.reshape(len(x), -1) for x in xs]
    without = [number for number, (_, y) in enumerate(pairs) if y is None]
    if 0 < len(without) < len(pairs):
        raise ValueError(f"item {without[0]} has no target, and others have: leave it out")
    ys = None if without else [as_array(y) for _, y in pairs]
    return join_arrays(xs, ys)


def join_arrays(xs: Sequence[np.ndarray], ys: Sequence[np.ndarray] | None) -> Series:
    """Sequences [T, F] of different lengths, and their targets, as one :class:`Series`."""
    lengths = np.array([len(x) for x in xs], np.int64)
    for number, x in enumerate(xs):
        if x.dtype.kind not in "fiubO":
            raise ValueError(f"sequence {number} has values of type {x.dtype}; expected numbers")
    values = np.concatenate(xs)
    if values.dtype.kind == "O":
        values = values.astype(np.float64)  # None is NaN
    channels = tuple(map(str, range(values.shape[1])))
    check_resolution(values, channels, "x")
    values = values.astype(np.float32)
    if ys is None:
        return Series(values, lengths, channels, names=[f"x[{n}]" for n in range(len(xs))])
    per_step = all(y.ndim > 0 and len(y) == n > 1 for y, n in zip(ys, lengths, strict=True))
    target = np.concatenate([y.reshape(len(y) if per_step else 1, -1) for y in ys])
    target = target.astype(np.float64) if target.dtype.kind in "fiub" else target.astype(str)
    names = tuple(f"y{k}" for k in range(target.shape[1]))
    rows = [f"x[{n}]" for n in range(len(xs))]
    return Series(values, lengths, channels, target, per_step, names, names=rows)


def as_array(value: Any) -> np.ndarray:
    """A tensor or anything like an array; ValueError if values are masked."""
    if np.ma.is_masked(value):
        raise ValueError(
            "an array has masked values, whose numbers mean nothing; fill them, for example with "
            "x.filled(numpy.nan), or leave out those sequences"
        )
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def _check_count(targets: int, sequences: int) -> None:
    if targets != sequences:
        raise ValueError(f"there are {targets} targets for {sequences} sequences")


def series_of_arrays(x: Any, y: Any = None) -> Series:
    """Sequences [N, T] or [N, T, F], or a list of arrays [T] or [T, F]; targets [N] or [N, K]."""
    y = None if y is None else as_array(y)
    if isinstance(x, list | tuple):
        xs = [as_array(each) for each in x]
        xs = [each.reshape(len(each), -1) for each in xs]
        if y is not None:
            _check_count(len(y), len(xs))
        return join_arrays(xs, None if y is None else list(y))
    series = from_arrays(as_array(x))
    if y is None:
        return series
    _check_count(len(y), len(series.lengths))
    labels = join_arrays([np.zeros((1, 1))] * len(y), list(y))
    return Series(
        series.values, series.lengths, series.channels, labels.target, False, labels.target_names,
        names=series.names,
    )  # fmt: skip
