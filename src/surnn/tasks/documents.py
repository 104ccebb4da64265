"""Documents inside a text: the tokens at which they start."""

import re

import numpy as np


def compile_pattern(pattern: str) -> re.Pattern[bytes]:
    """The regular expression that the start of a document matches; ValueError if it is none."""
    try:
        return re.compile(pattern.encode())
    except re.error as error:
        raise ValueError(
            f"documents is {pattern!r}, which is not a regular expression: {error}; expected one "
            r"that matches where a document starts, such as '\n = [^=]' for WikiText"
        ) from error


def document_starts(tokens: np.ndarray, values: list[bytes | None], pattern: str) -> np.ndarray:
    """[tokens] bool: the first token of each document.

    Args:
        tokens: the text.
        values: the bytes of each token of the vocabulary; None is a special token.
        pattern: matches where documents start. A token that begins before a match and ends inside
            it belongs to the document before.
    """
    sizes = np.array([len(value or b"") for value in values])[tokens]
    begins = np.cumsum(sizes) - sizes
    text = b"".join([values[token] or b"" for token in tokens.tolist()])
    matches = [match.start() for match in compile_pattern(pattern).finditer(text)]
    first = np.searchsorted(begins, np.array(matches, dtype=np.int64), side="left")
    starts = np.zeros(len(tokens), dtype=bool)
    starts[first[first < len(tokens)]] = True
    return starts
