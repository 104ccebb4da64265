"""Large sets on disk: parsed once, then memory-mapped."""

import hashlib
import json
import os
import tempfile
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import numpy as np

from surnn.data import DataError
from surnn.data.locate import cache_root

from .base import Columns, Series
from .read import fingerprint, labels_path, list_files, read_series

LARGE = 256 << 20
"""Bytes of values from which on a set is memory-mapped."""
Stamp = tuple[tuple[str, int, int], ...]
"""Name, size and time of change of each file."""


def load_series(path: Path, columns: Columns) -> tuple[Series, dict[str, int | str]]:
    """The sequences of a file or folder, and its fingerprint.

    Sets above LARGE bytes are stored in the cache and memory-mapped, so that they need not fit in
    memory. The last two sets stay in memory until their files change.
    """
    return _load(path, columns, _stamp(path, columns))


def _stamp(path: Path, columns: Columns) -> Stamp:
    files, labels = list_files(path, columns), labels_path(path, columns)
    if labels and labels.is_file():
        files.append(labels)
    return tuple((str(f), (about := f.stat()).st_size, about.st_mtime_ns) for f in files)


@lru_cache(maxsize=2)
def _load(path: Path, columns: Columns, stamp: Stamp) -> tuple[Series, dict[str, int | str]]:
    about = fingerprint(path, columns)
    if sum(size for _, size, _ in stamp) <= LARGE // 8:  # too small to become large
        return read_series(path, columns), about
    key = json.dumps([about["sha256"], asdict(columns)], sort_keys=True)
    folder = cache_root() / "series" / f"{hash_of(key)}"
    if (folder / "values.npy").is_file():
        return _open(folder), about
    series = read_series(path, columns)
    if series.values.nbytes < LARGE or isinstance(series.values.base, np.memmap):
        return series, about
    try:
        _write(folder, series)
    except OSError as error:
        raise DataError(
            f"{path} is large and is stored for memory-mapping, but {folder} cannot be written: "
            f"{error}; set SURNN_CACHE=FOLDER in the environment to a folder with room"
        ) from error
    return _open(folder), about


def hash_of(text: str) -> str:
    """A short name for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _write(folder: Path, series: Series) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        draft = Path(name) / "series"
        draft.mkdir()
        np.save(draft / "values.npy", series.values)
        optional = {"target": series.target, "groups": series.groups}
        arrays = {n: a for n, a in optional.items() if a is not None}
        np.savez(
            draft / "rest.npz",
            lengths=series.lengths,
            channels=np.array(series.channels),
            target_names=np.array(series.target_names, dtype=str),
            per_step=np.array(series.per_step),
            names=np.array(series.names),
            rate=np.array(series.rate),
            **arrays,  # type: ignore[arg-type]
        )
        if not folder.exists():
            os.rename(draft, folder)


def _open(folder: Path) -> Series:
    with np.load(folder / "rest.npz", allow_pickle=False) as rest:
        return Series(
            np.load(folder / "values.npy", mmap_mode="r", allow_pickle=False),
            rest["lengths"],
            tuple(rest["channels"].tolist()),
            rest["target"] if "target" in rest.files else None,
            bool(rest["per_step"]),
            tuple(rest["target_names"].tolist()),
            rest["groups"] if "groups" in rest.files else None,
            rest["names"].tolist(),
            int(rest["rate"]) if "rate" in rest.files else 0,  # stored by 0.1.0
        )
