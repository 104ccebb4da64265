"""Tables with named columns: CSV, TSV and Parquet files, long (a row per time step) or wide (a row
per sequence)."""

import contextlib
import csv
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from surnn.data import DataError, archives
from surnn.errors import MissingExtra

from .base import (
    LARGEST_TEXTS,
    Columns,
    Series,
    as_numbers,
    as_numbers_or_texts,
    as_texts,
    check_resolution,
    text_array,
)
from .columns import (
    Table,
    check_names,
    check_sequences,
    feature_names,
    is_number,
    with_usual_names,
)

TEXT_TYPES = ("string", "large_string", "binary", "large_binary")
CHUNK = 100_000
"""Rows that are converted at a time."""


def read_table(path: Path, columns: Columns) -> Series:
    """The sequences of one file."""
    table = (
        read_parquet(path, columns)
        if path.suffix.lower() == ".parquet"
        else read_delimited(path, columns)
    )
    columns = with_usual_names(columns, tuple(table))
    check_names(columns, tuple(table), path)
    if columns.layout == "wide":
        return from_wide(table, columns, path)
    return from_long(table, columns, path)


def read_delimited(path: Path, columns: Columns) -> Table:
    """All columns of a CSV or TSV file. Without a header, columns are called 0, 1, 2, ...

    Columns without a name are left out: they are row numbers, as pandas writes them.
    """
    parts: list[list[np.ndarray]] = []
    header: tuple[str, ...] = ()
    kept, time = set(), ""
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        rows = csv.reader(file, delimiter=delimiter(file.readline(), path))
        file.seek(0)
        for block in _blocks(rows):
            if not header:
                header, block = _split_header(block)  # noqa: PLW2901
                named = with_usual_names(columns, header)
                # As a number, 007 is 7, and whole numbers above 2^53 are others.
                kept, time = {named.id, named.group, *named.target}, named.time
            for number, row in enumerate(block):
                if len(row) != len(header):
                    raise DataError(
                        f"{path}: row {number + 1 + CHUNK * len(parts)} has {len(row)} entries, "
                        f"expected {len(header)}: {', '.join(header[:8])}"
                    )
            if block:
                texts = map(text_array, zip(*block, strict=True))
                columns_of_block = zip(header, texts, strict=True)
                parts.append(
                    [_convert(c, name in kept, name == time) for name, c in columns_of_block]
                )
    if not parts:
        raise DataError(f"{path} has no rows below its header" if header else f"{path} is empty")
    table = {n: _join(column) for n, *column in zip(header, *parts, strict=True) if n}
    target = with_usual_names(columns, header).target
    return table | {n: as_numbers_or_texts(table[n]) for n in target if n in table}


def _convert(column: np.ndarray, as_text: bool, as_time: bool) -> np.ndarray:
    if as_text:
        return column
    if as_time:
        with contextlib.suppress(ValueError, OverflowError):
            return column.astype(np.int64)
    words = np.char.lower(np.char.strip(column))
    if np.isin(words, ("true", "false", "")).all() and (words != "").any():
        return np.select((words == "true", words == "false"), (1.0, 0.0), np.nan)
    return as_numbers_or_texts(column)


def delimiter(line: str, path: Path) -> str:
    """The mark between the columns of a table, from its first line."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    return max(",;\t", key=line.count)


def _blocks(rows: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    while block := list(islice(rows, CHUNK)):
        yield [row for row in block if row]


def _split_header(block: list[list[str]]) -> tuple[tuple[str, ...], list[list[str]]]:
    """The names of columns, and the rows below them."""
    first = [word.strip() for word in block[0]] if block else []
    if not _is_header(first, block[1] if len(block) > 1 else []):
        return tuple(map(str, range(len(first)))), block
    for name in first:
        if name and first.count(name) > 1:
            raise DataError(f"two columns are called {name!r}; give each a name of its own")
    return tuple(first), block[1:]


def _is_header(first: list[str], second: list[str]) -> bool:
    """Whether the first row names columns. A row of a wide table may begin with a text too."""
    words = [word for word in first if word]
    numbers = as_numbers(text_array([word for word in words if is_number(word)])).tolist()
    if len(numbers) > 2 and numbers == list(range(len(numbers))):
        return True  # 0, 1, 2, ..., as pandas names columns
    if len(numbers) == len(words):
        return False
    pairs = zip(first, second, strict=False)
    if any(word and not is_number(word) and is_number(below) for word, below in pairs):
        return True
    return all(a < b for a, b in pairwise(numbers))  # time steps as names, or no number at all


def _join(chunks: list[np.ndarray]) -> np.ndarray:
    """One column from its chunks, which may be numbers or texts."""
    if len({chunk.dtype.kind for chunk in chunks}) > 1:
        chunks = [
            np.where(np.isnan(c), "", c.astype(str)) if c.dtype.kind == "f" else c for c in chunks
        ]
    if sum(map(len, chunks)) * max(c.itemsize for c in chunks) > LARGEST_TEXTS and any(
        chunk.dtype.kind == "U" for chunk in chunks
    ):
        longest = max((c for c in chunks if c.dtype.kind == "U"), key=lambda c: c.itemsize)
        raise DataError(
            f"texts of {longest.itemsize // 4:,} characters, such as {str(longest[0])[:40]!r}, "
            "take too much memory; remove or shorten them"
        )
    return np.concatenate(chunks)


def read_parquet(path: Path, columns: Columns) -> Table:
    """All columns of a Parquet file."""
    try:
        from pyarrow import parquet  # noqa: PLC0415 (optional)
    except ModuleNotFoundError as error:
        raise MissingExtra("pyarrow", "reading a Parquet file") from error
    about = parquet.read_metadata(path)
    if 8 * about.num_rows * about.num_columns > archives.MAX_UNPACKED:  # repeated values take none
        raise DataError(
            f"{path} has {about.num_rows:,} rows of {about.num_columns} columns, more than "
            f"{archives.MAX_UNPACKED / 1e9:.1f} GB; divide it into several files"
        )
    named = with_usual_names(columns, tuple(about.schema.to_arrow_schema().names))
    exact = {named.id, named.group, named.time}
    table: Table = {}
    texts = [f.name for f in about.schema.to_arrow_schema() if str(f.type) in TEXT_TYPES]
    # Kept as a dictionary, a long text that is repeated takes memory once.
    read = parquet.read_table(path, read_dictionary=texts)
    for name, column in zip(read.column_names, read.columns, strict=True):
        table[name] = _from_arrow(column, exact=name in exact)
    return table


def _from_arrow(column: Any, exact: bool) -> np.ndarray:
    """A column as float64 or texts; ``exact``: whole numbers and times stay int64."""
    if "dictionary" in str(column.type):  # whose to_numpy forgets which entries are missing
        texts: list[str] = []
        for part in column.chunks:
            words = ["" if word is None else str(word) for word in part.dictionary.to_pylist()]
            places = part.indices.fill_null(len(words)).to_numpy()
            texts += map([*words, ""].__getitem__, places.tolist())
        return text_array(texts)
    values = column.to_numpy()
    if values.dtype.kind == "O":
        return text_array(["" if v is None else str(v) for v in values])
    if values.dtype.kind == "M":
        missing = np.isnat(values)
        values = values.astype("datetime64[ns]").astype(np.int64)
        return values if exact and not missing.any() else np.where(missing, np.nan, values / 1e9)
    if values.dtype.kind in "bui" and not exact:
        return values.astype(np.float64)
    return values


# ---------------------------------------------------------------------------- long and wide


def from_long(table: Table, columns: Columns, path: Path) -> Series:
    """One row per time step; rows with the same id are a sequence, in the order of time."""
    channels = feature_names(table, columns, path)
    rows = len(next(iter(table.values())))
    ids = as_texts(table[columns.id]) if columns.id else np.full(rows, path.stem)
    if missing := np.flatnonzero(np.isin(ids, ("", "nan"))).tolist() if columns.id else []:
        raise DataError(f"{path}: row {missing[0] + 1} has no {columns.id!r} (--task.id)")
    names, first, codes = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))  # sequences in the order of the file
    codes = rank[codes]
    keys = (codes,) if not columns.time else (seconds(table[columns.time], path), codes)
    order = np.lexsort(keys)
    in_order = bool((order == np.arange(rows)).all())
    lengths = np.bincount(codes)
    starts = np.cumsum(lengths) - lengths

    def column(name: str) -> np.ndarray:
        return table[name] if in_order else table[name][order]

    if columns.time and not columns.id and not columns.features:
        check_sequences(table, columns, path)
    values = np.empty((rows, len(channels)), np.float32)
    for index, name in enumerate(channels):
        with np.errstate(over="ignore"):  # what becomes infinite is refused with its place
            values[:, index] = column(name)
        check_resolution(table[name][:, None], (name,), str(path))
    target, per_step = None, False
    if columns.target:
        target = _stack_targets([column(name) for name in columns.target])
        per_step = not _constant_within(target, starts)
        target = target if per_step else target[starts]
    groups = None
    if columns.group:
        column_of_groups = as_texts(column(columns.group))
        if not _constant_within(column_of_groups[:, None], starts):
            raise DataError(
                f"{path}: the column {columns.group!r} of --task.group changes within a sequence; "
                "expected one group for each sequence: check --task.id"
            )
        groups = column_of_groups[starts]
    return Series(
        values, lengths.astype(np.int64), channels, target, per_step, columns.target, groups,
        [f"sequence {name} in {path.name}" for name in names[np.argsort(first)]],
    )  # fmt: skip


def _stack_targets(parts: list[np.ndarray]) -> np.ndarray:
    if len(parts) == 1:
        return parts[0][:, None]
    if any(column.dtype.kind == "U" for column in parts):
        raise DataError("several columns of --task.target must be numbers; texts are one column")
    return np.stack(parts, 1)


def _constant_within(target: np.ndarray, starts: np.ndarray) -> bool:
    """Whether each sequence has one target; sequences of one file alone are streams."""
    if len(starts) < 2:
        return False
    lengths = np.diff([*starts, len(target)])
    same = target == np.repeat(target[starts], lengths, 0)
    if target.dtype.kind == "f":
        same |= np.isnan(target)
    return bool(same.all())


def seconds(column: np.ndarray, path: Path) -> np.ndarray:
    """A column of times as numbers: numbers, or ISO dates, which are UTC if they name no zone."""
    if column.dtype.kind == "U":
        column = _parse_dates(column, path)
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        row = int(np.flatnonzero(~np.isfinite(column))[0])
        raise DataError(f"{path}: row {row + 1} has no time (--task.time)")
    return column


def _parse_dates(column: np.ndarray, path: Path) -> np.ndarray:
    try:
        times = [datetime.fromisoformat(text.strip()) for text in column]
    except ValueError as error:
        raise DataError(
            f"{path}: a time is neither a number nor an ISO date such as 2026-01-31T12:00:00: "
            f"{error}"
        ) from error
    if len({time.tzinfo is None for time in times}) > 1:
        raise DataError(f"{path}: some times name a time zone and others do not")
    # Local time would jump where summer time begins and ends.
    zoned = (time if time.tzinfo else time.replace(tzinfo=UTC) for time in times)
    return np.array([time.timestamp() for time in zoned])


def from_wide(table: Table, columns: Columns, path: Path) -> Series:
    """One row per sequence; columns are its time steps. Missing values at the end are padding."""
    steps = feature_names(table, replace(columns, id=columns.id, time=""), path)
    values = np.stack([table[name] for name in steps], 1).astype(np.float32)
    inside = ~np.isnan(values)
    lengths = len(steps) - np.argmax(inside[:, ::-1], 1)
    lengths[~inside.any(1)] = 0
    flat = values[np.arange(len(steps)) < lengths[:, None]]
    return Series(
        flat[:, None],
        lengths.astype(np.int64),
        ("value",),
        _stack_targets([table[name] for name in columns.target]),
        target_names=columns.target,
        groups=as_texts(table[columns.group]) if columns.group else None,
        names=[f"row {number + 1} of {path.name}" for number in range(len(values))],
    )
