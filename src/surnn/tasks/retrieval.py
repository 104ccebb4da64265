"""Long Range Arena's Retrieval: do two papers cite one another?"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from .base import Batch, Output, Split
from .stored import Ragged, check_choice, keep, kept, row_numbers
from .text import BinaryText, Characters, Vocabulary

SPLITS: tuple[Literal["train", "valid", "test"], ...] = ("train", "valid", "test")
EMPTY = b"\0"
"""What an empty document is read as: without a step there is no state to compare."""


@dataclass(frozen=True)
class LraRetrieval(BinaryText):
    """Pairs of papers of the ACL Anthology Network, each cut to ``max_length``; two classes.

    147,086 training, 18,090 validation and 17,437 test pairs, from LRA's
    ``new_aan_pairs.{train,eval,test}.tsv``. Inputs are [B, 2, T], right-padded to the longest of a
    batch, lengths [B, 2]. A document that is in many pairs is kept once.

    Args:
        max_length: longest document; LRA's is 4000.
        vocabulary: ``"bytes"`` as they are (0 never occurs and pads; an empty document is one 0),
            or the ``"characters"`` of the training documents and an end token, as S4 has it.
        one_length: pad all batches alike, to ``max_length``: a GPU's updates can then be captured
            and compiled (train.cuda_graph, train.compile).
    """

    max_length: int = 4000
    vocabulary: Vocabulary = "bytes"
    one_length: bool = False

    name: ClassVar[str] = "lra_retrieval"
    needs: ClassVar[tuple[str, ...]] = ("aan",)
    paper: ClassVar[dict[str, float]] = {"suGRU": 0.7754, "suGRU, sigmoid": 0.6323, "S4": 0.9090}

    def __post_init__(self) -> None:
        check_choice("vocabulary", self.vocabulary, Vocabulary)
        if self.max_length < 2:
            raise ValueError(f"max_length is {self.max_length}; expected at least 2")
        if self.vocabulary == "bytes":
            object.__setattr__(self, "_vocabulary", 256)

    @property
    def output(self) -> Output:
        return Output(2, "sequence", pairs=True)

    @property
    def steps(self) -> int:
        return self.max_length

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        from ..data import need  # noqa: PLC0415 (only the one who trains reads files)
        from ..data.texts import aan_pairs  # noqa: PLC0415

        found = need("aan", data)
        enough = self.max_length * (1 if self.vocabulary == "bytes" else 4)  # bytes
        documents: dict[bytes, int] = {}
        splits: dict[Split, tuple[Tensor, Tensor]] = {}
        seen_in_training = 0
        for split in SPLITS:
            rows = [
                (pair.label, *(_number(documents, text[:enough]) for text in pair[1:]))
                for pair in aan_pairs(found, split)
            ]
            table = torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)
            splits[split] = (table[:, 1:], table[:, 0])
            seen_in_training = seen_in_training or len(documents)
        texts = self._encode(list(documents), seen_in_training)
        keep(self, (Ragged.of(*texts, self.max_length, device), splits))

    def _encode(self, texts: list[bytes], training: int) -> tuple[np.ndarray, np.ndarray]:
        if self.vocabulary == "characters":
            characters = Characters(texts[:training], 1, self.max_length)
            object.__setattr__(self, "_vocabulary", characters.size)
            return characters.flat(texts)
        texts = [text or EMPTY for text in texts]
        lengths = np.array([len(text) for text in texts], np.int64)
        return np.frombuffer(b"".join(texts), np.uint8), lengths

    def size(self, split: Split) -> int:
        return len(kept(self)[1][split][1])

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        texts, splits = kept(self)
        pairs, labels = splits[split]
        rows = row_numbers(split, len(labels), number, size, seed)
        x, lengths = texts.padded(pairs[rows], self.steps if self.one_length else None)
        return Batch(x.to(device), labels[rows].to(device), lengths.to(device))


def _number(documents: dict[bytes, int], text: bytes) -> int:
    return documents.setdefault(text, len(documents))
