"""Readers of the text sets, as bytes."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from .archives import content_of, members, npz, reading
from .locate import StoredSet, need
from .registry import DataError

ENWIK8_SIZE = 100_000_000
WIKITEXT2_TOKENS = {
    "train": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
    "valid": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
    "test": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
}
"""SHA-256 of WikiText-2's files of words."""


class Reviews(NamedTuple):
    """Concatenated texts: ``flat`` bytes, their ``lengths`` and labels (1 is positive)."""

    flat: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray


def imdb(data: Path | None = None) -> dict[str, Reviews]:
    """Reviews of the splits ``train`` and ``test``, negative ones first, sorted by file name."""
    stored = need("imdb", data)
    path = stored.paths[0]
    with reading(path):
        if stored.kind != "packed":
            return _imdb_files(path)
        arrays = npz(path)
        parts = ("bytes", "lens", "labels")
        return {
            split: Reviews(*(arrays[f"{split}_{part}"] for part in parts))
            for split in ("train", "test")
        }


def _imdb_files(path: Path) -> dict[str, Reviews]:
    texts: dict[str, list[tuple[int, str, bytes]]] = {"train": [], "test": []}
    for name, content in members(path, deep=True):
        parts = name.split("/")[-3:]
        if len(parts) == 3 and parts[0] in texts and parts[1] in ("neg", "pos"):
            text = content.read()
            if not text:
                raise DataError(f"{path}: the review {name} is empty; fetch it again")
            texts[parts[0]].append((int(parts[1] == "pos"), parts[2], text))
    if not texts["train"] or not texts["test"]:
        raise DataError(f"{path} holds no train/pos, train/neg, test/pos, test/neg reviews")
    return {split: _join(sorted(each)) for split, each in texts.items()}


def _join(reviews: list[tuple[int, str, bytes]]) -> Reviews:
    return Reviews(
        np.frombuffer(b"".join(text for _, _, text in reviews), np.uint8),
        np.array([len(text) for _, _, text in reviews], np.int64),
        np.array([label for label, _, _ in reviews], np.uint8),
    )


class Pair(NamedTuple):
    """Two documents, and whether one cites the other."""

    label: int
    first: bytes
    second: bytes


def aan_pairs(stored: StoredSet, split: Literal["train", "valid", "test"]) -> Iterator[Pair]:
    """The pairs of a split of :func:`need` ("aan"), line by line: the files are large.

    A line holds a label, two identifiers and two texts, separated by tabs; quotes are plain text,
    as in LRA.
    """
    path = stored.paths[("train", "valid", "test").index(split)]
    number = 0
    with reading(path), path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.rstrip(b"\r\n").split(b"\t")
            if len(fields) != 5:
                raise DataError(f"{path}, line {number}: {len(fields)} columns instead of 5")
            yield Pair(int(float(fields[0])), fields[3], fields[4])
    if number == 0:
        raise DataError(f"{path} is empty; delete it and fetch it again: surnn data get aan")


def wikitext(name: str, data: Path | None = None, form: str = "raw") -> dict[str, bytes]:
    """The text of each available split: ``train``, ``valid``, ``test``."""
    stored = need(name, data)
    texts: dict[str, bytes] = {}
    source = stored.folder if stored.kind == "folder" else stored.paths[0]
    with reading(source):
        for path, content in members(source):
            parts = path.rsplit("/", 1)[-1].split(".")
            if len(parts) == 3 and (parts[0], parts[2]) == ("wiki", form):
                texts[parts[1]] = content.read()
    if not texts:
        raise DataError(
            f"{source} holds no wiki.train.{form}, wiki.valid.{form} or wiki.test.{form}; delete "
            f"it and fetch it again: surnn data get {name}"
        )
    return texts


def wikitext2_tokens(data: Path | None = None) -> dict[str, bytes]:
    """WikiText-2's words as published, with ``<unk>`` for rare ones. Other files are refused."""
    texts = wikitext("wikitext2_tokens", data, "tokens")
    for split, expected in WIKITEXT2_TOKENS.items():
        actual = hashlib.sha256(texts.get(split, b"")).hexdigest()
        if actual != expected:
            raise DataError(
                f"wiki.{split}.tokens is not WikiText-2's (sha256 {actual} instead of {expected}); "
                "fetch it again: surnn data get wikitext2_tokens"
            )
    return texts


def enwik8(data: Path | None = None) -> np.ndarray:
    """All 100,000,000 bytes."""
    stored = need("enwik8", data)
    path = stored.paths[0]
    with reading(path):
        if stored.kind == "archive":
            raw = next(content.read() for name, content in members(path) if name == "enwik8")
        else:
            raw = content_of(path)
    if len(raw) != ENWIK8_SIZE:
        raise DataError(
            f"{path} holds {len(raw):,} bytes instead of {ENWIK8_SIZE:,}; delete it and fetch it "
            "again: surnn data get enwik8"
        )
    return np.frombuffer(raw, np.uint8)
