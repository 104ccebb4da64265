"""Finds data sets on this machine."""

import os
from dataclasses import dataclass
from pathlib import Path

from .registry import DataError, DataSet, Layout, look_up


@dataclass(frozen=True)
class StoredSet:
    """A data set on disk: its layout, and its files in the layout's order."""

    entry: DataSet
    layout: Layout
    paths: tuple[Path, ...]

    @property
    def kind(self) -> str:
        return self.layout.kind

    @property
    def folder(self) -> Path:
        return self.paths[0].parent


def cache_root() -> Path:
    """``$SURNN_CACHE``, or ``~/.cache/surnn``: files that can be generated or downloaded again."""
    return Path(os.environ.get("SURNN_CACHE") or "~/.cache/surnn").expanduser()


def cache_folder() -> Path:
    """The folder of downloads."""
    return cache_root() / "data"


def places(data: Path | None = None) -> list[Path]:
    """The folders to search, in order. A named folder that does not exist is an error."""
    named = [("--data", data)]
    if os.environ.get("SURNN_DATA"):
        named.append(("SURNN_DATA", Path(os.environ["SURNN_DATA"])))
    folders = []
    for source, folder in named:
        if folder is not None:
            folders.append(folder.expanduser())
            if not folders[-1].is_dir():
                raise DataError(f"{source} names {folders[-1]}, which is not a folder")
    return [*folders, cache_folder()]


def find(name: str, data: Path | None = None) -> StoredSet | None:
    """The set of this name from the first folder that has all its files, in any layout; or None."""
    entry = look_up(name)
    for place in places(data):
        for inside in ("", name, *entry.folders, *(f"{name}/{sub}" for sub in entry.folders)):
            for layout in entry.layouts:
                paths = _match(place / inside, layout)
                if paths is not None:
                    return StoredSet(entry, layout, paths)
    return None


def need(name: str, data: Path | None = None) -> StoredSet:
    """Like :func:`find`, but raises a DataError with instructions if the set is missing."""
    stored = find(name, data)
    if stored is None:
        raise DataError(missing(look_up(name), places(data)))
    return stored


def missing(entry: DataSet, looked_in: list[Path]) -> str:
    """Instructions for a missing set."""
    canonical = [f.name for f in entry.remotes] if not entry.unpack else entry.layouts[0].files
    return (
        f"data set {entry.name!r} ({entry.title}) was not found in "
        f"{', '.join(str(place) for place in looked_in)}.\n"
        f"  fetch it:        surnn data get {entry.name}   ({size_text(entry.size)})\n"
        f"  or put it there: {', '.join(canonical)} into {cache_folder() / entry.name}\n"
        f"  or say where:    --data FOLDER, or SURNN_DATA=FOLDER in the environment"
    )


def size_text(count: float) -> str:
    """A number of bytes with its unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            return f"{count:.0f} {unit}" if unit in ("B", "kB") else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError


def _match(folder: Path, layout: Layout) -> tuple[Path, ...] | None:
    paths = []
    for pattern in layout.files:
        hits = sorted(folder.glob(pattern)) if "*" in pattern else [folder / pattern]
        if not hits or not hits[-1].exists():
            return None
        paths.append(hits[-1])
    return tuple(paths)
