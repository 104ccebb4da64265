"""Read a file or a folder of files, whatever their format."""

import csv
import hashlib
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from surnn.data import DataError

from .arrays import read_arrays
from .base import Columns, Part, Series, join_parts
from .tables import delimiter, read_table
from .ts_format import read_ts
from .waves import read_wave, wave_features

Reader = Callable[[Path, Columns], Series]
Labels = dict[Path, str]
READERS: dict[str, Reader] = {
    ".csv": read_table,
    ".tsv": read_table,
    ".txt": read_table,
    ".parquet": read_table,
    ".npz": read_arrays,
    ".npy": read_arrays,
    ".ts": lambda path, columns: read_ts(path),
    ".wav": lambda path, columns: _waves([path], path.parent, columns),
}
MOST_FIELDS = 6
"""Most fields of ``names``: the time to match grows with their number."""


def read_series(path: Path, columns: Columns) -> Series:
    """The sequences in a file, or in the files of a folder.

    Files must be regular files: a pipe or a device is an error.
    """
    files = list_files(path, columns)
    suffix = files[0].suffix.lower()
    if suffix == ".wav":
        return _waves(files, path if path.is_dir() else path.parent, columns)
    with reading(files[0]):
        if len(files) == 1 and not path.is_dir():
            return READERS[suffix](files[0], columns)
    labels = read_labels(path, columns, files)
    return join_series([_labelled(file, path, columns, labels) for file in files])


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Errors of readers as a DataError that names the file."""
    try:
        yield
    except DataError:
        raise
    except (ValueError, KeyError, EOFError, OSError, csv.Error, zipfile.BadZipFile) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"{path} cannot be read: {reason}") from error


def list_files(path: Path, columns: Columns) -> list[Path]:
    """The file, or the files of a folder that have a known suffix, sorted by name.

    Hidden files and folders are left out: they are copies that other programs made.
    """
    if path.is_file():
        if path.suffix.lower() not in READERS:
            raise DataError(f"{path} has an unknown format; expected {', '.join(READERS)}")
        return [path]
    if not path.is_dir():
        raise DataError(f"there is no file or folder {path}")
    labels = path / columns.labels if columns.labels else None
    files = [f for f in sorted(path.rglob("*")) if f.suffix.lower() in READERS and f.is_file()]
    files = [f for f in files if f != labels and not _is_hidden(f.relative_to(path))]
    if not files:
        raise DataError(f"{path} has no files of a known format: {', '.join(READERS)}")
    kinds = sorted({file.suffix.lower() for file in files})
    if len(kinds) > 1:
        raise DataError(
            f"{path} has files of several formats, {', '.join(kinds)}; expected one: move the "
            "others to another folder"
        )
    return files


def _is_hidden(file: Path) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in file.parts)


def labels_path(path: Path, columns: Columns) -> Path | None:
    """The file of labels in a folder, or beside a file."""
    return (path if path.is_dir() else path.parent) / columns.labels if columns.labels else None


def fingerprint(path: Path, columns: Columns) -> dict[str, int | str]:
    """The number of files, their bytes and the checksum of their names and contents."""
    files, digest, size = list_files(path, columns), hashlib.sha256(), 0
    if labels := labels_path(path, columns):
        if not labels.is_file():
            raise DataError(f"there is no file {labels}, which --task.labels names")
        files.append(labels)
    for file in files:
        with file.open("rb") as content:
            inner = hashlib.file_digest(content, "sha256").digest()
        if path.is_dir():
            digest.update(file.relative_to(path).as_posix().encode() + b"\0")
        digest.update(inner)
        size += file.stat().st_size
    return {"files": len(files), "bytes": size, "sha256": digest.hexdigest()}


# ---------------------------------------------------------------------------- folders


def _labelled(file: Path, root: Path, columns: Columns, labels: Labels) -> Series:
    """The sequences of one file of a folder, with the label and group that its name has."""
    with reading(file):
        inside = replace(columns, group="") if columns.names else columns
        if not columns.target and (labels or "{class}" in columns.names):
            inside = replace(inside, has_target=False)  # no column only because of its name
        series = READERS[file.suffix.lower()](file, inside)
    label, group = _from_name(file, root, columns, labels)
    count = len(series.lengths)
    if series.target is None and label is not None:
        series = replace(
            series, target=np.full((count, 1), label), target_names=("label",), per_step=False
        )
    if series.groups is None and group is not None:
        series = replace(series, groups=np.full(count, group))
    return series


def _from_name(
    file: Path, root: Path, columns: Columns, labels: Labels
) -> tuple[str | None, str | None]:
    """The class and the group of a file: by a table of labels, by ``names``, or by its folder."""
    relative = file.relative_to(root)
    parts = match_name(columns.names, relative.as_posix()) if columns.names else {}
    group = parts.get(columns.group) if columns.group and columns.names else None
    if columns.group and columns.names and group is None:
        raise DataError(f"--task.names has no {{{columns.group}}}, which --task.group names")
    if labels:
        return labels[file], group
    if "class" in parts:
        return parts["class"], group
    return (relative.parts[0] if len(relative.parts) > 1 else None), group


def match_name(template: str, name: str) -> dict[str, str]:
    """The fields of a file's name.

    Example:
        >>> match_name("{class}_{speaker}_{take}.wav", "seven_anna_3.wav")["speaker"]
        'anna'
    """
    fields = re.findall(r"{(\w+)}", template)
    if not fields or len(fields) > MOST_FIELDS or len(set(fields)) < len(fields):
        raise DataError(
            f"--task.names is {template!r}; expected up to {MOST_FIELDS} different fields, such as "
            "'{class}_{speaker}_{take}.wav'"
        )
    pattern = "".join(
        f"(?P<{part[1:-1]}>[^_/.-]+)" if part.startswith("{") else re.escape(part)
        for part in re.split(r"({\w+})", template)
    )
    match = re.fullmatch(pattern, name)
    if match is None:
        raise DataError(f"the file {name!r} is not named like {template!r}")
    return match.groupdict()


def read_labels(root: Path, columns: Columns, files: list[Path]) -> Labels:
    """The labels of files: a table with names in its first column, labels in its second."""
    if not columns.labels:
        return {}
    path = root / columns.labels
    if not path.is_file():
        raise DataError(f"there is no file {path}, which --task.labels names")
    by_name: dict[str, str] = {}
    with reading(path), path.open(newline="", encoding="utf-8-sig") as table:
        mark = delimiter(table.readline(), path)
        table.seek(0)
        for number, row in enumerate(csv.reader(table, delimiter=mark), 1):
            if not any(row):
                continue
            name, label = (word.strip() for word in (*row, "")[:2])
            if not label:
                raise DataError(f"{path}: row {number} has no label")
            if by_name.setdefault(name, label) != label:
                raise DataError(f"{path}: row {number} has a second label for {name!r}")
    if not by_name:
        raise DataError(f"{path} has no labels")
    labels, owner = {}, {}
    for file in files:
        relative = file.relative_to(root).as_posix()
        names = (relative, file.name, file.stem)
        name = next((n for n in names if n in by_name), None)
        if name is None:
            raise DataError(f"{relative} has no row in {columns.labels}")
        other = owner.setdefault(name, relative)
        if other != relative:
            raise DataError(
                f"{name!r} in {path} is the name of {other} and of {relative}; expected the names "
                "with their folders"
            )
        labels[file] = by_name[name]
    return labels


def _waves(files: list[Path], root: Path, columns: Columns) -> Series:
    labels, rates, parts = read_labels(root, columns, files), set(), []
    for file in files:
        with reading(file):
            samples, rate = read_wave(file)
        rates.add(rate)
        if len(rates) > 1:
            raise DataError(
                f"{file} has {rate} samples a second and others have {min(rates - {rate})}; "
                "expected one rate: convert them, for example with sox"
            )
        values = wave_features(samples, rate, columns.bands, columns.frame, columns.hop)
        label, group = _from_name(file, root, columns, labels)
        name = file.relative_to(root).as_posix()
        parts.append(Part(values.astype(np.float32), name, label, group))
    kind = "band" if columns.bands else "sample"
    names = tuple(f"{kind} {k}" for k in range(parts[0].values.shape[1]))
    return replace(join_parts(parts, names), rate=max(rates))


def join_series(parts: list[Series]) -> Series:
    """All sequences of several files with the same columns."""
    first = parts[0]
    for part in parts:
        if part.channels != first.channels:
            raise DataError(
                f"{first.names[0]} has the features {', '.join(first.channels)}, and "
                f"{part.names[0]} has {', '.join(part.channels)}; expected the same in all files"
            )
        if part.rate != first.rate:
            raise DataError(
                f"{part.names[0]} has {part.rate} samples a second and {first.names[0]} has "
                f"{first.rate}; expected one rate: convert them, for example with sox"
            )
        if (part.target is None) != (first.target is None):
            raise DataError(f"{part.names[0]} or {first.names[0]} has no target; expected all")
    # In one file alone a constant target says nothing; over all files it is a label.
    if first.target is not None and any(part.per_step for part in parts):
        if all(len(part.lengths) == 1 and _is_constant(part) for part in parts):
            parts = [replace(p, target=_target(p)[:1], per_step=False) for p in parts]
        else:
            parts = [_per_step(part) for part in parts]
    targets = [_target(part) for part in parts if part.target is not None]
    if targets and len({each.dtype.kind for each in targets}) > 1:
        targets = [each.astype(str) for each in targets]
    groups = [part.groups for part in parts if part.groups is not None]
    return Series(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        first.channels,
        np.concatenate(targets) if targets else None,
        parts[0].per_step,
        first.target_names,
        np.concatenate(groups) if groups else None,
        [name for part in parts for name in part.names],
        first.rate,
    )


def _target(part: Series) -> np.ndarray:
    assert part.target is not None
    return part.target


def _is_constant(part: Series) -> bool:
    return bool((_target(part) == _target(part)[:1]).all())


def _per_step(part: Series) -> Series:
    if part.per_step:
        return part
    return replace(part, target=np.repeat(_target(part), part.lengths, 0), per_step=True)
