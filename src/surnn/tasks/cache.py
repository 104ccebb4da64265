"""Data sets that take minutes to make: made once, kept on disk.

A file holds arrays and a header that says what they are. It appears complete or not at all, and
one that is damaged or holds something else is made again.
"""

import json
import logging
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..data.where import cache_root

Arrays = dict[str, np.ndarray]
Progress = Callable[[int, int], None]
"""Called with (done, total) now and then."""

logger = logging.getLogger("surnn")


def load_or_make(
    name: str, header: dict[str, int | str], make: Callable[[], Arrays], data: Path | None = None
) -> Arrays:
    """The arrays of file ``name``, from the folder ``data`` or the cache, or else made."""
    for folder in [cache_root()] if data is None else [data, cache_root()]:
        path = folder / name
        if path.exists():
            try:
                return read(path, header)
            except (zipfile.BadZipFile, ValueError, KeyError, EOFError) as error:
                logger.warning("%s cannot be used (%s)", path, error)
    path = cache_root() / name
    logger.warning("making %s; this happens once", path)
    arrays = make()
    write(path, header, arrays)
    return arrays


def read(path: Path, header: dict[str, int | str]) -> Arrays:
    """All arrays of a file, whose checksums zip verifies."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        found = json.loads(str(stored["header"]))
        if found != header:
            raise ValueError(f"it holds {found}, expected {header}")
        return {name: stored[name] for name in stored.files if name != "header"}


def write(path: Path, header: dict[str, int | str], arrays: Arrays) -> None:
    """Write beside, then rename: nobody ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stored: dict[str, Any] = {"header": np.array(json.dumps(header)), **arrays}
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **stored)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
