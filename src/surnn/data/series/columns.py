"""The columns of a table: which of them has which role, and whether they can be what they seem."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from surnn.data import DataError
from surnn.errors import suggestion

from .base import Columns, as_numbers

USUAL = {
    "id": ("id", "series", "series_id", "sequence", "sequence_id"),
    "time": ("time", "t", "timestamp", "date", "datetime"),
    "target": ("label", "target", "class", "y"),
}
"""Names that a column usually has; used if no option names it. Beside a column z, y is an axis."""
Table = dict[str, np.ndarray]
"""Columns by name: float64 or texts. Identifiers and times may be int64, because float64 holds
whole numbers up to 2^53 only."""
OTHER_NUMBER = re.compile(
    r"[-+]?(\d{1,3}([,' ]\d{3})+|\d+)([.,]\d+)?\s*(%|[^\W\d_]{1,3}|°[^\W\d_]?)?"
)
"""Numbers as people write them: a decimal comma, thousands with marks, a unit."""


def with_usual_names(columns: Columns, header: tuple[str, ...]) -> Columns:
    """The options with usual names of columns where none is given."""
    by_lower = {name.lower(): name for name in reversed(header)}
    chosen = {}
    for option in ("id", "target") if columns.layout == "wide" else USUAL:
        if option == "target" and not columns.has_target:
            continue
        if not getattr(columns, option):
            usual = [n for n in USUAL[option] if n != "y" or "z" not in by_lower]
            name = next((by_lower[n] for n in usual if n in by_lower), "")
            taken = (columns.id, columns.time, columns.group, *columns.features, *columns.target)
            if name and name not in taken:
                chosen[option] = (name,) if option == "target" else name
    if columns.layout == "wide" and not columns.target and "target" not in chosen:
        chosen["target"] = next(((name,) for name in header if name), ())
    return replace(columns, **chosen)


def check_names(columns: Columns, header: tuple[str, ...], path: Path) -> None:
    """Raise if an option names a column that does not exist."""
    single = {"id": columns.id, "time": columns.time, "group": columns.group}
    named = [(option, name) for option, name in single.items() if name]
    named += [("features", name) for name in columns.features]
    named += [("target", name) for name in columns.target]
    for option, name in named:
        if name not in header:
            hint = suggestion(name, header, f"its columns are {', '.join(header[:12])}")
            raise DataError(f"{path} has no column {name!r} for --task.{option}; {hint}")


def feature_names(table: Table, columns: Columns, path: Path) -> tuple[str, ...]:
    if columns.features:
        names = columns.features
        if texts := [name for name in names if table[name].dtype.kind == "U"]:
            bad = table[texts[0]]
            example = next(v for v in bad if not is_number(v))
            raise DataError(
                f"{path}: the column {texts[0]!r} of --task.features has values that are not "
                f"numbers, such as {example[:40]!r}; leave it out, or replace its texts by numbers"
            )
        return names
    other = {columns.id, columns.time, columns.group, *columns.target}
    for name in table:
        if name not in other:
            _check_no_typing_error(name, table[name], path)
    names = tuple(n for n, c in table.items() if n not in other and c.dtype.kind != "U")
    if not names:
        raise DataError(
            f"{path} has no columns of numbers besides id, time, group and target; name the "
            f"inputs with --task.features; its columns are {', '.join(table)}"
        )
    return names


def _check_no_typing_error(name: str, column: np.ndarray, path: Path) -> None:
    """Columns of texts are no inputs; one that is mostly numbers was meant to be one."""
    if column.dtype.kind != "U":
        return
    texts, counts = np.unique(column, return_counts=True)
    bad = np.array([not is_number(text) for text in texts.tolist()])
    like = np.array([OTHER_NUMBER.fullmatch(text.strip()) is not None for text in texts.tolist()])
    if 2 * counts[bad & ~like].sum() < counts.sum():
        row = int(np.flatnonzero(np.isin(column, texts[bad]))[0])
        raise DataError(
            f"{path}: the column {name!r} has numbers, but {column[row][:40]!r} in row {row + 1}; "
            "correct it (an empty cell is a missing value, numbers have a point and no unit), or "
            "choose inputs with --task.features"
        )


def is_number(text: str) -> bool:
    try:
        as_numbers(np.array([text]))
    except ValueError:
        return False
    return True


def check_sequences(table: Table, columns: Columns, path: Path) -> None:
    """Raise if rows of equal times seem to be of several sequences, which another column names."""
    times = np.unique(table[columns.time], return_inverse=True)[1]
    _, first, counts = np.unique(times, return_index=True, return_counts=True)
    if counts.max() < 2:
        return
    for name, column in table.items():
        if name in (columns.time, columns.group, *columns.target):
            continue
        if column.dtype.kind == "f" and not (column == np.rint(column)).all():
            continue
        kinds, codes = np.unique(column, return_inverse=True)
        pairs = times.astype(np.int64) * len(kinds) + codes
        if 1 < len(kinds) <= len(column) / 2 and len(np.unique(pairs)) == len(column):
            one, other = np.flatnonzero(times == times[first[counts > 1].min()])[:2] + 1
            raise DataError(
                f"{path}: rows {one} and {other} have the same time and differ in {name!r}. If it "
                f"separates sequences, use --task.id {name}; if all rows are one sequence, name "
                "the inputs with --task.features"
            )
