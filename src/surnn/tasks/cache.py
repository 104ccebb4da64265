"""Data sets that take minutes to make: made once, kept on disk.

A file holds arrays and a header that says what they are. It appears complete or not at all, and
one that is damaged or holds something else is made again. Without a place to keep it, a set is
made all the same, and lives as long as the process.
"""

import json
import logging
import os
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..data.where import cache_root

Arrays = dict[str, np.ndarray]
Progress = Callable[[int, int], None]
"""Called with (done, total) now and then."""
EVERY = 5.0
"""Seconds between two lines about what is being made."""

logger = logging.getLogger("surnn")


def load_or_make(
    name: str,
    header: dict[str, int | str],
    make: Callable[[Progress], Arrays],
    data: Path | None = None,
    progress: Progress | None = None,
) -> Arrays:
    """The arrays of file ``name``, from the folder ``data`` or the cache, or else made.

    ``make`` is given ``progress``, or what writes lines about it to the standard error.
    """
    for folder in [cache_root()] if data is None else [data, cache_root()]:
        path = folder / name
        try:
            return read(path, header)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (zipfile.BadZipFile, ValueError, KeyError, EOFError, OSError) as error:
            logger.warning("%s cannot be used (%s)", path, error)
    path = cache_root() / name
    try:
        probe(path.parent)  # before minutes of work, not after
    except OSError as error:
        _warn_not_kept(path, error)
        return make(progress or lines_about(name))
    logger.warning("making %s; this happens once", path)
    arrays = make(progress or lines_about(name))
    try:
        write(path, header, arrays)
    except OSError as error:
        _warn_not_kept(path, error)
    return arrays


def _warn_not_kept(path: Path, error: OSError) -> None:
    logger.warning(
        "%s cannot be kept (%s) and is made anew in every run; name a folder with room that can be "
        "written to: SURNN_CACHE=FOLDER in the environment",
        path,
        error,
    )


def lines_about(name: str) -> Progress:
    """A line on the standard error whenever some seconds have passed."""
    begin = last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY and done:
            last = now
            left = (now - begin) * (total - done) / done
            print(f"{name}: {done:,} of {total:,}, {left:.0f} s left", file=sys.stderr, flush=True)

    return tell


def read(path: Path, header: dict[str, int | str]) -> Arrays:
    """All arrays of a file, whose checksums zip verifies."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        found = json.loads(str(stored["header"]))
        if found != header:
            raise ValueError(f"it holds {found}, expected {header}")
        return {name: stored[name] for name in stored.files if name != "header"}


def probe(folder: Path) -> None:
    """Raise what would keep a file from being written there."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"\0")


def write(path: Path, header: dict[str, int | str], arrays: Arrays) -> None:
    """Write beside, then rename: nobody ever sees half a file."""
    stored: dict[str, Any] = {"header": np.array(json.dumps(header)), **arrays}
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **stored)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
