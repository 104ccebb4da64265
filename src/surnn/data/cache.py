"""Generated data sets that take minutes: generated once, stored on disk.

A file holds arrays and a header with their parameters. It is written atomically; a file that is
damaged or has another header is generated again. If nothing can be written, a set is generated in
every process.
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

from .locate import cache_root

Arrays = dict[str, np.ndarray]
Progress = Callable[[int, int], None]
"""Called with (done, total) from time to time."""
EVERY = 5.0
"""Seconds between two lines of progress."""

logger = logging.getLogger("surnn")


def load_or_make(
    name: str,
    header: dict[str, int | str],
    make: Callable[[Progress], Arrays],
    data: Path | None = None,
    progress: Progress | None = None,
) -> Arrays:
    """The arrays of file ``name``, from the folder ``data``, the cache, or else ``make``.

    ``make`` is called with ``progress``, by default :func:`lines_about`.
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
        probe(path.parent)  # fail before minutes of work
    except OSError as error:
        _warn_not_stored(path, error)
        return make(progress or lines_about(name))
    logger.warning("generating %s, once", path)
    arrays = make(progress or lines_about(name))
    try:
        write(path, header, arrays)
    except OSError as error:
        _warn_not_stored(path, error)
    return arrays


def _warn_not_stored(path: Path, error: OSError) -> None:
    logger.warning(
        "%s cannot be stored (%s) and is generated again in every run; set SURNN_CACHE=FOLDER in "
        "the environment to a writable folder with room",
        path,
        error,
    )


def lines_about(name: str) -> Progress:
    """Progress as lines on the standard error, one every few seconds."""
    begin = last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY and done:
            last = now
            left = (now - begin) * (total - done) / done
            print(f"{name}: {done:,} of {total:,}, {left:.0f} s left", file=sys.stderr, flush=True)

    return report


def read(path: Path, header: dict[str, int | str]) -> Arrays:
    """All arrays of a file; zip verifies their checksums."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        actual = json.loads(str(stored["header"]))
        if actual != header:
            raise ValueError(f"it holds {actual}, expected {header}")
        return {name: stored[name] for name in stored.files if name != "header"}


def probe(folder: Path) -> None:
    """Raise OSError if no file can be written there."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"\0")


def write(path: Path, header: dict[str, int | str], arrays: Arrays) -> None:
    """Write to a temporary file and rename it, so that the file is never incomplete."""
    stored: dict[str, Any] = {"header": np.array(json.dumps(header)), **arrays}
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **stored)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
