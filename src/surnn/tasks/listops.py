"""ListOps: work out nested expressions of MIN, MAX, MED and SM over digits.

``[MAX 2 9 [MIN 4 7 ] 0 ]`` is 9; here the expressions are 500 to 2000 tokens long.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .base import Batch, Output, Score, Split, Task, Tokens, shuffled
from .cache import Progress, load_or_make
from .listops_trees import LONGEST, VOCABULARY, expressions

DATA_SEED = 42


class Ragged(NamedTuple):
    """Sequences of all lengths, one after the other."""

    tokens: Tensor
    """[tokens] uint8, on the device."""
    offsets: Tensor
    """[sequences + 1] where each begins; on the CPU, so that a batch's size needs no waiting."""
    labels: Tensor
    """[sequences] on the device."""

    def padded(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Sequences [B, T] right-padded with 0 to the longest, and lengths [B]."""
        device = self.tokens.device
        first, lengths = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        place = torch.arange(int(lengths.max()), device=device)
        first, lengths = first.to(device), lengths.to(device)
        inside = place < lengths.unsqueeze(1)
        where = torch.where(inside, first.unsqueeze(1) + place, 0)
        return torch.where(inside, self.tokens[where].long(), 0), lengths


@dataclass(frozen=True)
class ListOps(Task):
    """ListOps of the Long Range Arena.

    Made by the rules of its generator: a node is an operator with probability 1/4 (never at depth
    10), with 2 to 10 arguments; SM is the sum modulo 10, MED the integer part of the median.
    Expressions of 501 to 1999 tokens are kept, each once. Brackets that only group are left out, an
    operator and its opening bracket are one token, and an end token follows. Tokens: 0 padding, 1
    unknown (never occurs), 2 end, 3 to 6 MIN MAX MED SM, 7 closing bracket, 8 to 17 digits. Right-
    padded to the longest in the batch. The expressions are not the Arena's own, whose seed is not
    known.

    Made once, from a fixed seed, and kept in ``$SURNN_CACHE`` (``~/.cache/surnn``). Validation and
    test are the same whatever the size of the training set.

    Args:
        train: sequences to train on.
        valid: sequences to validate on.
        test: sequences to test on.
    """

    train: int = 96_000
    valid: int = 2_000
    test: int = 2_000

    name: ClassVar[str] = "listops"
    paper: ClassVar[dict[str, float]] = {"suGRU": 0.4493, "suGRU, sigmoid": 0.3945, "S4": 0.5960}

    def __post_init__(self) -> None:
        for split in ("train", "valid", "test"):
            if getattr(self, split) < 1:
                raise ValueError(f"{split} is {getattr(self, split)}; expected at least 1 sequence")

    @property
    def input(self) -> Tokens:
        return Tokens(VOCABULARY)

    @property
    def output(self) -> Output:
        return Output(10, "sequence")

    @property
    def steps(self) -> int:
        return LONGEST + 1

    @property
    def chance(self) -> float:
        """Always answering 0, the most frequent."""
        return 0.168

    def prepare(
        self, device: torch.device, data: Path | None = None, progress: Progress | None = None
    ) -> None:
        count = self.train + self.valid + self.test
        arrays = load_or_make(
            f"listops-{count}.npz",
            {"task": self.name, "version": 1, "seed": DATA_SEED, "count": count},
            lambda: expressions(count, DATA_SEED, progress),
            data,
        )
        stored = Ragged(
            torch.from_numpy(arrays["tokens"]).to(device),
            torch.from_numpy(arrays["offsets"]),
            torch.from_numpy(arrays["labels"]).long().to(device),
        )
        object.__setattr__(self, "_stored", stored)

    def size(self, split: Split) -> int:
        return getattr(self, split)

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        stored: Ragged | None = getattr(self, "_stored", None)
        if stored is None:
            raise RuntimeError("listops has no data yet; call prepare(device) first")
        first = {"valid": 0, "test": self.valid, "train": self.valid + self.test}[split]
        count = self.size(split)
        if split == "train":
            rows = first + shuffled(count, number, size, seed)
        else:
            rows = torch.arange(first + number * size, first + min((number + 1) * size, count))
        x, lengths = stored.padded(rows)
        labels = stored.labels[rows.to(stored.labels.device)]
        return Batch(x.to(device), labels.to(device), lengths.to(device))

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        return functional.cross_entropy(prediction.float(), batch.target)

    def score(self, prediction: Tensor, batch: Batch) -> Score:
        hits = prediction.argmax(-1) == batch.target
        return Score(hits.sum(), torch.tensor(hits.numel(), device=hits.device))
