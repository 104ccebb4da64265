"""Long Range Arena's Text: is a film review, read byte by byte, positive or negative?"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from .base import Batch, Classification, Output, Split, Tokens
from .stored import Ragged, check_choice, hold_out, keep, kept, row_numbers

Vocabulary = Literal["bytes", "characters"]
HELD_OUT = 2500
UNKNOWN, END = 1, 2
"""Tokens of :class:`Characters`, besides 0, which pads."""


class Characters:
    """Characters seen at least ``at_least`` times in texts cut to ``longest``, as tokens from 3 on;
    texts get an end token. (Counted after cutting, as S4 does.)"""

    def __init__(self, texts: list[bytes], at_least: int, longest: int):
        self.longest = longest
        points = np.concatenate([self._points(text) for text in texts])
        counts = np.bincount(points, minlength=0x110000)
        often = np.flatnonzero(counts >= at_least)
        self.tokens = np.full(len(counts), UNKNOWN, np.int32)
        self.tokens[often] = np.arange(3, 3 + len(often))
        self.size = 3 + len(often)

    def encode(self, text: bytes) -> np.ndarray:
        """At most ``longest`` tokens, the end among them."""
        return np.append(self.tokens[self._points(text)], np.int32(END))

    def flat(self, texts: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Texts one after the other, in as few bytes as possible, and their lengths."""
        encoded = [self.encode(text) for text in texts]
        kind = np.uint8 if self.size <= 256 else np.int32
        lengths = np.array([len(tokens) for tokens in encoded], np.int64)
        return np.concatenate(encoded).astype(kind), lengths

    def _points(self, text: bytes) -> np.ndarray:
        utf32 = text.decode("utf-8", "replace").encode("utf-32-le")
        return np.frombuffer(utf32, np.uint32)[: self.longest - 1]


class BinaryText(Classification):
    """Texts with one of two classes. Base of the two text tasks of Long Range Arena."""

    _vocabulary: int

    @property
    def input(self) -> Tokens:
        """256 for bytes. The number of characters is known when they have been counted."""
        if not hasattr(self, "_vocabulary"):
            raise RuntimeError(f"{self.name}: call prepare(device) first, it counts characters")
        return Tokens(self._vocabulary)

    @property
    def chance(self) -> float:
        return 0.5


@dataclass(frozen=True)
class LraText(BinaryText):
    """IMDB reviews as sequences of bytes, cut to ``max_length``, right-padded in each batch to its
    longest; two classes, balanced.

    25,000 training and 25,000 test reviews. LRA and S4 select on the test reviews; we hold out
    2,500 training reviews (seed 42) and report the test once.

    Args:
        max_length: longest sequence; LRA's is 4096.
        vocabulary: ``"bytes"`` of UTF-8 as they are (0 never occurs and pads), or ``"characters"``
            that occur at least 15 times in the training reviews, and an end token, as S4 has it.
        validation: ``"held_out"``, or ``"test"`` to be comparable: training then has all 25,000.
        one_length: pad all batches alike, to ``max_length``: a GPU's updates can then be captured
            and compiled (train.cuda_graph, train.compile).
    """

    max_length: int = 4096
    vocabulary: Vocabulary = "bytes"
    validation: Literal["held_out", "test"] = "held_out"
    one_length: bool = False

    name: ClassVar[str] = "lra_text"
    needs: ClassVar[tuple[str, ...]] = ("imdb",)
    paper: ClassVar[dict[str, float]] = {"suGRU": 0.6442, "suGRU, sigmoid": 0.6417, "S4": 0.8682}

    def __post_init__(self) -> None:
        check_choice("vocabulary", self.vocabulary, Vocabulary)
        check_choice("validation", self.validation, Literal["held_out", "test"])
        if self.max_length < 2:
            raise ValueError(f"max_length is {self.max_length}; expected at least 2")
        if self.vocabulary == "bytes":
            object.__setattr__(self, "_vocabulary", 256)

    @property
    def output(self) -> Output:
        return Output(2, "sequence")

    @property
    def steps(self) -> int:
        return self.max_length

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        from ..data.texts import imdb  # noqa: PLC0415 (only the one who trains reads files)

        reviews = imdb(data)
        flat = {split: (found.flat, found.lengths) for split, found in reviews.items()}
        if self.vocabulary == "characters":
            texts = {split: cut(*parts) for split, parts in flat.items()}
            characters = Characters(texts["train"], 15, self.max_length)
            object.__setattr__(self, "_vocabulary", characters.size)
            flat = {split: characters.flat(found) for split, found in texts.items()}
        ragged = {
            split: Ragged.of(*parts, self.max_length, device) for split, parts in flat.items()
        }
        labels = {s: torch.from_numpy(r.labels.astype(np.int64)) for s, r in reviews.items()}
        keep(self, self._divide(ragged, labels))

    def _divide(self, ragged: dict[str, Ragged], labels: dict[str, Tensor]):
        count, test = len(labels["train"]), torch.arange(len(labels["test"]))
        train, valid = hold_out(count, min(HELD_OUT, count // 10))
        splits = {
            "train": (ragged["train"], labels["train"], train),
            "valid": (ragged["train"], labels["train"], valid),
            "test": (ragged["test"], labels["test"], test),
        }
        if self.validation == "test":
            splits["train"] = (ragged["train"], labels["train"], torch.arange(count))
            splits["valid"] = splits["test"]
        return splits

    def size(self, split: Split) -> int:
        return len(kept(self)[split][2])

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        texts, labels, chosen = kept(self)[split]
        rows = chosen[row_numbers(split, len(chosen), number, size, seed)]
        x, lengths = texts.padded(rows, self.steps if self.one_length else None)
        return Batch(x.to(device), labels[rows].to(device), lengths.to(device))


def cut(flat: np.ndarray, lengths: np.ndarray) -> list[bytes]:
    """Flat bytes as single texts."""
    ends = np.cumsum(lengths, dtype=np.int64)
    raw = flat.tobytes()
    return [raw[end - length : end] for end, length in zip(ends, lengths, strict=True)]
