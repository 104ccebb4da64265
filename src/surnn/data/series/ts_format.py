"""The .ts files of the UCR and UEA archives: dimensions separated by colons, the label last."""

from pathlib import Path

import numpy as np

from surnn.data import DataError

from .base import Part, Series, as_numbers, join_parts, text_array


def read_ts(path: Path) -> Series:
    """The sequences of one file, with their class or number."""
    parts, labelled = [], None
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            text = line.strip()
            if not text or text.startswith("#"):
                continue
            if text.startswith("@"):
                word, *rest = text[1:].lower().split()
                if word in ("classlabel", "targetlabel"):
                    labelled = rest[:1] == ["true"]
                if word == "timestamps" and rest[:1] == ["true"]:
                    raise DataError(f"{path} has time stamps in its data, which are not supported")
                continue
            if labelled is None:
                raise DataError(
                    f"{path} does not say whether its lines end with a label; add a line "
                    "'@classLabel true' or '@classLabel false' above @data"
                )
            parts.append(_sequence(text, labelled, f"{path.name}:{number}"))
    if not parts:
        raise DataError(f"{path} has no data; expected lines like 1.0,2.0,3.0:label after @data")
    return join_parts(parts, tuple(map(str, range(parts[0].values.shape[1]))))


def _sequence(text: str, labelled: bool, name: str) -> Part:
    dimensions = text.split(":")
    label = dimensions.pop().strip() if labelled else None
    try:
        columns = [as_numbers(text_array(each.split(","))) for each in dimensions]
    except ValueError as error:
        raise DataError(f"{name} is not a line of a .ts file: {error}") from error
    if len({len(column) for column in columns}) != 1:
        raise DataError(f"{name} has dimensions of different lengths, which are not supported")
    return Part(np.stack(columns, 1), name, label)
