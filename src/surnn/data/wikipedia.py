"""The articles in enwik8, without those that share much text."""

import re
from pathlib import Path

import numpy as np

from .registry import DataError
from .texts import enwik8

WINDOW = 32
"""Bytes of a window; two articles share text if they share windows."""
ONE_IN = 64
"""One window in so many is compared, chosen by its hash."""
MOST_SHARED = 0.1
"""An article with a larger share of windows that another has too is left out."""
_PAGE = re.compile(rb"<title>(.*?)</title>.*?<text xml:space=\"preserve\">(.*?)</text>", re.DOTALL)
_NAMESPACE = re.compile(rb"<namespace key=\"[^\"]*\">(.*?)</namespace>")


def articles(shortest: int, data: Path | None = None) -> list[bytes]:
    """The wiki text of each article of at least ``shortest`` bytes.

    Left out are pages of other namespaces (Wikipedia:, Talk: and so on), near-duplicates, and the
    last article, which ends with the file.
    """
    text = enwik8(data).tobytes()
    others = set(_NAMESPACE.findall(text)) - {b""}
    texts = [
        page[2]
        for page in _PAGE.finditer(text)
        if len(page[2]) >= shortest and page[1].partition(b":")[0] not in others
    ]
    if not texts:
        raise DataError(f"there are no articles of {shortest:,} bytes in enwik8")
    return [text for text, share in zip(texts, shared(texts), strict=True) if share <= MOST_SHARED]


def shared(texts: list[bytes]) -> np.ndarray:
    """For each text, the share of its windows that occur in another text."""
    each = [_window_hashes(text) for text in texts]
    owner = np.repeat(np.arange(len(texts)), [len(hashes) for hashes in each])
    _, inverse, times = np.unique(np.concatenate(each), return_inverse=True, return_counts=True)
    own, also_elsewhere = (
        np.bincount(owner, weights, len(texts)) for weights in (None, times[inverse] > 1)
    )
    return also_elsewhere / np.maximum(own, 1)


def _window_hashes(text: bytes) -> np.ndarray:
    """Hashes of a sample of the text's windows, each once; the same windows in every text."""
    values = np.frombuffer(text, np.uint8).astype(np.uint64)
    count = len(values) - WINDOW + 1
    hashes = np.zeros(max(count, 0), np.uint64)
    for place in range(WINDOW if count > 0 else 0):  # FNV's and Knuth's multipliers; sums wrap
        hashes = hashes * np.uint64(0x100000001B3) + values[place : place + count]
    hashes = (hashes ^ (hashes >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
    hashes ^= hashes >> np.uint64(32)
    return np.unique(hashes[hashes % np.uint64(ONE_IN) == 0])
