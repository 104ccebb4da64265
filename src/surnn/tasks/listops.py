"""ListOps: work out nested expressions of MIN, MAX, MED and SM over digits.

``[MAX 2 9 [MIN 4 7 ] 0 ]`` is 9; the Arena's expressions are 500 to 2000 tokens long.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from .base import Batch, Classification, Output, Split, Tokens
from .cache import Progress, load_or_make
from .listops_trees import VOCABULARY, expressions
from .stored import Ragged, keep, kept, row_numbers

DATA_SEED = 42


@dataclass(frozen=True)
class ListOps(Classification):
    """ListOps of the Long Range Arena.

    Made by the rules of its generator: a node is an operator with probability 1/4 (never at depth
    10), with 2 to 10 arguments; SM is the sum modulo 10, MED the integer part of the median.
    Expressions of ``shortest`` to ``longest`` tokens are kept, each once. Brackets that only group
    are left out, an operator and its opening bracket are one token, and an end token follows.
    Tokens: 0 padding, 1 unknown (never occurs), 2 end, 3 to 6 MIN MAX MED SM, 7 closing bracket, 8
    to 17 digits. Right-padded to the longest in the batch. The expressions are not the Arena's own,
    whose seed is not known.

    Made once, from a fixed seed, and kept in ``$SURNN_CACHE`` (``~/.cache/surnn``). Validation and
    test are the same whatever the size of the training set.

    Args:
        train: sequences to train on.
        valid: sequences to validate on.
        test: sequences to test on.
        shortest: tokens of an expression, at least; its end is not counted.
        longest: tokens, at most. Short expressions are for trying things on a CPU.
        one_length: pad all batches alike, to ``longest`` and the end: a GPU's updates can then be
            captured and compiled (train.cuda_graph, train.compile).
    """

    train: int = 96_000
    valid: int = 2_000
    test: int = 2_000
    shortest: int = 501
    longest: int = 1999
    one_length: bool = False

    name: ClassVar[str] = "listops"
    paper: ClassVar[dict[str, float]] = {"suGRU": 0.4493, "suGRU, sigmoid": 0.3945, "S4": 0.5960}

    def __post_init__(self) -> None:
        for split in ("train", "valid", "test"):
            if getattr(self, split) < 1:
                raise ValueError(f"{split} is {getattr(self, split)}; expected at least 1 sequence")
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(
                f"expected 1 <= shortest <= longest, got {self.shortest} and {self.longest}"
            )

    @property
    def input(self) -> Tokens:
        return Tokens(VOCABULARY)

    @property
    def output(self) -> Output:
        return Output(10, "sequence")

    @property
    def steps(self) -> int:
        return self.longest + 1

    @property
    def chance(self) -> float:
        """Always giving the most frequent answer; needs the data. 0.17 at the Arena's lengths."""
        labels = kept(self)[1]
        return (labels.bincount().max() / len(labels)).item()

    def prepare(
        self, device: torch.device, data: Path | None = None, progress: Progress | None = None
    ) -> None:
        count = self.train + self.valid + self.test
        size = {"shortest": self.shortest, "longest": self.longest}
        arrays = load_or_make(
            f"listops-{count}-{self.shortest}-{self.longest}.npz",
            {"task": self.name, "version": 1, "seed": DATA_SEED, "count": count, **size},
            lambda tell: expressions(count, DATA_SEED, tell, **size),
            data,
            progress,
        )
        offsets = arrays["offsets"]
        stored = Ragged.of(arrays["tokens"], offsets[1:] - offsets[:-1], self.steps, device)
        keep(self, (stored, torch.from_numpy(arrays["labels"]).long().to(device)))

    def size(self, split: Split) -> int:
        return getattr(self, split)

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        stored, labels = kept(self)
        first = {"valid": 0, "test": self.valid, "train": self.valid + self.test}[split]
        rows = first + row_numbers(split, self.size(split), number, size, seed)
        x, lengths = stored.padded(rows, self.steps if self.one_length else None)
        labels = labels[rows.to(labels.device)]
        return Batch(x.to(device), labels.to(device), lengths.to(device))
