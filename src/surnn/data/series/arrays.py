"""Arrays [N, T, F] in .npz and .npy files, with labels."""

from pathlib import Path

import numpy as np

from surnn.data import DataError
from surnn.data.archives import PADDING, npz

from .base import Columns, Series, check_resolution

INPUTS = ("x", "X", "values", "data", "inputs")
TARGETS = ("y", "Y", "labels", "label", "target", "targets")


def read_arrays(path: Path, columns: Columns) -> Series:
    """The sequences of one file."""
    if path.suffix.lower() == ".npz":
        arrays = npz(path)
    else:
        arrays = {"x": load_array(path)}
        if columns.labels:
            arrays["y"] = load_array(path.parent / Path(columns.labels))
    x = _array(arrays, columns.features[0] if columns.features else "", INPUTS, "features", path)
    assert x is not None
    named = columns.target[0] if columns.target else ""
    y = _array(arrays, named, TARGETS, "target", path, needed=bool(columns.target))
    group = _array(arrays, columns.group, (), "group", path, needed=bool(columns.group))
    return from_arrays(x, y, arrays.get("lengths"), group, str(path))


def from_arrays(
    x: np.ndarray,
    y: np.ndarray | None = None,
    lengths: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    name: str = "x",
) -> Series:
    """Sequences [N, T] or [N, T, F], with targets [N], [N, K], [N, T] or [N, T, K].

    Targets of two dimensions are per time step if the second is T. Time steps at the end that are
    NaN in all features are padding.
    """
    if x.ndim not in (2, 3) or x.dtype.kind not in "fiub":
        raise DataError(
            f"{name}: expected numbers [sequences, time steps, features], got {x.dtype} of shape "
            f"{list(x.shape)}"
        )
    x = x if x.ndim == 3 else x[:, :, None]
    count, steps, features = x.shape
    for other, what in ((y, "targets"), (lengths, "lengths"), (groups, "groups")):
        if other is not None and len(other) != count:
            raise DataError(f"{name}: there are {len(other)} {what} for {count} sequences")
    if lengths is None:
        lengths = _padded_lengths(x)
    lengths = np.asarray(lengths, np.int64)
    if len(lengths) and (lengths.min() < 0 or lengths.max() > steps):
        raise DataError(f"{name}: lengths must be from 0 to {steps}, the time steps of the array")
    whole = bool((lengths == steps).all())
    inside = np.arange(steps) < lengths[:, None]
    values = x.reshape(-1, features) if whole else x[inside]
    per_step, target = False, None
    if y is not None:
        per_step = y.ndim == 3 or (y.ndim == 2 and y.shape[1] == steps and steps > 1)
        if per_step:
            y = y.reshape(count, steps, -1)[inside]
        target = y.reshape(len(y), -1)
        target = target.astype(np.float64) if target.dtype.kind in "fiub" else target.astype(str)
    channels = tuple(map(str, range(features)))
    check_resolution(values, channels, name)
    if values.dtype != np.float32:
        with np.errstate(over="ignore"):  # what becomes infinite is refused with its place
            values = values.astype(np.float32)
    return Series(
        values,
        lengths,
        channels,
        target,
        per_step,
        () if target is None else tuple(f"y{k}" for k in range(target.shape[1])),
        None if groups is None else np.asarray(groups).astype(str),
        [f"{name}[{number}]" for number in range(count)],
    )


def _padded_lengths(x: np.ndarray) -> np.ndarray:
    """The length of each sequence without time steps at the end that are NaN in all features."""
    count, steps, _ = x.shape
    lengths = np.full(count, steps, np.int64)
    if x.dtype.kind != "f":
        return lengths
    for number in np.flatnonzero(np.isnan(np.asarray(x[:, -1])).all(-1)):
        inside = np.flatnonzero(~np.isnan(x[number]).all(-1))
        lengths[number] = inside[-1] + 1 if len(inside) else 0
    return lengths


def load_array(path: Path) -> np.ndarray:
    """An array of a .npy file, memory-mapped."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {path}") from error
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{path} cannot be read as a .npy array of numbers: {error}. Arrays of Python objects "
            f"are not read: {PADDING}"
        ) from error


def _array(
    arrays: dict[str, np.ndarray],
    named: str,
    usual: tuple[str, ...],
    option: str,
    path: Path,
    needed: bool = True,
) -> np.ndarray | None:
    for name in (named,) if named else usual:
        if name in arrays:
            return arrays[name]
    if not needed:
        return None
    what = f"no array {named!r}" if named else f"none of the arrays {', '.join(usual)}"
    raise DataError(f"{path} has {what}; it has {', '.join(arrays)}: name one with --task.{option}")
