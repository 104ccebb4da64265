"""Long Range Arena's Retrieval: does one of two papers cite the other?"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from .base import Batch, Output, Split
from .batching import Ragged, get_data, row_numbers, set_data
from .text import BinaryText, Characters, Vocabulary

SPLITS: tuple[Literal["train", "valid", "test"], ...] = ("train", "valid", "test")
EMPTY = b"\0"
"""Stands for an empty document, which would have no state to compare."""


@dataclass(frozen=True)
class LraRetrieval(BinaryText):
    """Pairs of papers of the ACL Anthology Network, each cut to ``max_length``; two classes.

    147,086 training, 18,090 validation and 17,437 test pairs, from LRA's
    ``new_aan_pairs.{train,eval,test}.tsv``. Inputs are [B, 2, T], right-padded to the longest of a
    batch, lengths [B, 2]. A document of several pairs is stored once.

    Args:
        max_length: longest document; LRA's is 4000.
        vocabulary: ``"bytes"`` as they are (0 never occurs and pads; an empty document is one 0),
            or the ``"characters"`` of the training documents and an end token, as in S4.
        one_length: pad all batches to ``max_length``, so that training steps can be captured and
            compiled (train.cuda_graph, train.compile).
    """

    max_length: int = 4000
    vocabulary: Vocabulary = "bytes"
    one_length: bool = False

    name: ClassVar[str] = "lra_retrieval"
    needs: ClassVar[tuple[str, ...]] = ("aan",)
    paper: ClassVar[dict[str, float]] = {"suGRU": 0.7754, "suGRU, sigmoid": 0.6323, "S4": 0.9090}

    @property
    def output(self) -> Output:
        return Output(2, "sequence", pairs=True)

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        from surnn.data import need  # noqa: PLC0415 (needed by training only)
        from surnn.data.texts import aan_pairs  # noqa: PLC0415

        source = need("aan", data)
        enough = self.max_length * (1 if self.vocabulary == "bytes" else 4)  # bytes
        documents: dict[bytes, int] = {}
        splits: dict[Split, tuple[Tensor, Tensor]] = {}
        seen_in_training = 0
        for split in SPLITS:
            rows = [
                (pair.label, *(_number(documents, text[:enough]) for text in pair[1:]))
                for pair in aan_pairs(source, split)
            ]
            table = torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)
            splits[split] = (table[:, 1:], table[:, 0])
            seen_in_training = seen_in_training or len(documents)
        texts = self._encode(list(documents), seen_in_training)
        set_data(self, (Ragged.of(*texts, self.max_length, device), splits))

    def _encode(self, texts: list[bytes], training: int) -> tuple[np.ndarray, np.ndarray]:
        if self.vocabulary == "characters":
            characters = Characters(texts[:training], 1, self.max_length)
            object.__setattr__(self, "_vocabulary", characters.size)
            return characters.flat(texts)
        texts = [text or EMPTY for text in texts]
        lengths = np.array([len(text) for text in texts], np.int64)
        return np.frombuffer(b"".join(texts), np.uint8), lengths

    def size(self, split: Split) -> int:
        return len(get_data(self)[1][split][1])

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        texts, splits = get_data(self)
        pairs, labels = splits[split]
        rows = row_numbers(split, len(labels), number, size, seed)
        x, lengths = texts.padded(pairs[rows], self.steps if self.one_length else None)
        return Batch(x.to(device), labels[rows].to(device), lengths.to(device))


def _number(documents: dict[bytes, int], text: bytes) -> int:
    return documents.setdefault(text, len(documents))
