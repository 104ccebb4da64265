"""Long Range Arena's Text: classify film reviews, read byte by byte, as positive or negative."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from .base import Batch, Classification, Output, Split, Tokens
from .batching import Ragged, check_choice, get_data, hold_out, row_numbers, set_data

Vocabulary = Literal["bytes", "characters"]
HELD_OUT = 2500
UNKNOWN, END = 1, 2
"""Special tokens of :class:`Characters`, besides 0, which pads."""


class Characters:
    """Characters that occur at least ``at_least`` times in texts cut to ``longest``, as tokens from
    3 on; texts get an end token. (Counted after cutting, as in S4.)"""

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
        """Texts concatenated in the smallest integer type, and their lengths."""
        encoded = [self.encode(text) for text in texts]
        kind = np.uint8 if self.size <= 256 else np.int32
        lengths = np.array([len(tokens) for tokens in encoded], np.int64)
        return np.concatenate(encoded).astype(kind), lengths

    def _points(self, text: bytes) -> np.ndarray:
        utf32 = text.decode("utf-8", "replace").encode("utf-32-le")
        return np.frombuffer(utf32, np.uint32)[: self.longest - 1]


class BinaryText(Classification):
    """Texts with one of two classes. Base of the two text tasks of Long Range Arena."""

    max_length: int
    vocabulary: Vocabulary
    _vocabulary: int

    def __post_init__(self) -> None:
        check_choice("vocabulary", self.vocabulary, Vocabulary)
        if self.max_length < 2:
            raise ValueError(f"max_length is {self.max_length}; expected at least 2")
        if self.vocabulary == "bytes":
            object.__setattr__(self, "_vocabulary", 256)

    @property
    def steps(self) -> int:
        return self.max_length

    @property
    def input(self) -> Tokens:
        """256 for bytes; the number of characters is known after ``prepare``."""
        if not hasattr(self, "_vocabulary"):
            raise RuntimeError(f"{self.name}: call prepare(device) first: it counts the characters")
        return Tokens(self._vocabulary)

    @property
    def chance(self) -> float:
        return 0.5


@dataclass(frozen=True)
class LraText(BinaryText):
    """IMDB reviews as sequences of bytes, cut to ``max_length`` and right-padded to the longest of
    the batch; two balanced classes.

    25,000 training and 25,000 test reviews. LRA and S4 select models on the test reviews; we
    hold out 2,500 training reviews (seed 42) and test once.

    Args:
        max_length: longest sequence; LRA's is 4096.
        vocabulary: ``"bytes"`` of UTF-8 as they are (0 never occurs and pads), or ``"characters"``
            that occur at least 15 times in the training reviews, and an end token, as in S4.
        validation: ``"held_out"``, or ``"test"`` as in LRA; training then has all 25,000 reviews.
        one_length: pad all batches to ``max_length``, so that training steps can be captured and
            compiled (train.cuda_graph, train.compile).
    """

    max_length: int = 4096
    vocabulary: Vocabulary = "bytes"
    validation: Literal["held_out", "test"] = "held_out"
    one_length: bool = False

    name: ClassVar[str] = "lra_text"
    needs: ClassVar[tuple[str, ...]] = ("imdb",)
    paper: ClassVar[dict[str, float]] = {"suGRU": 0.6442, "suGRU, sigmoid": 0.6417, "S4": 0.8682}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("validation", self.validation, Literal["held_out", "test"])

    @property
    def output(self) -> Output:
        return Output(2, "sequence")

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        from surnn.data.texts import imdb  # noqa: PLC0415 (needed by training only)

        reviews = imdb(data)
        flat = {split: (each.flat, each.lengths) for split, each in reviews.items()}
        if self.vocabulary == "characters":
            texts = {split: cut(*parts) for split, parts in flat.items()}
            characters = Characters(texts["train"], 15, self.max_length)
            object.__setattr__(self, "_vocabulary", characters.size)
            flat = {split: characters.flat(each) for split, each in texts.items()}
        ragged = {
            split: Ragged.of(*parts, self.max_length, device) for split, parts in flat.items()
        }
        labels = {s: torch.from_numpy(r.labels.astype(np.int64)) for s, r in reviews.items()}
        set_data(self, self._divide(ragged, labels))

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
        return len(get_data(self)[split][2])

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        texts, labels, chosen = get_data(self)[split]
        rows = chosen[row_numbers(split, len(chosen), number, size, seed)]
        x, lengths = texts.padded(rows, self.steps if self.one_length else None)
        return Batch(x.to(device), labels[rows].to(device), lengths.to(device))


def cut(flat: np.ndarray, lengths: np.ndarray) -> list[bytes]:
    """Concatenated bytes as a list of texts."""
    ends = np.cumsum(lengths, dtype=np.int64)
    raw = flat.tobytes()
    return [raw[end - length : end] for end, length in zip(ends, lengths, strict=True)]
