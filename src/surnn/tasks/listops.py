"""ListOps: work out nested expressions of MIN, MAX, MED and SM over digits.

``[MAX 2 9 [MIN 4 7 ] 0 ]`` is 9; the Arena's expressions are 500 to 2000 tokens long.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from surnn.data.cache import Arrays, Progress, load_or_make

from .base import Batch, Classification, Output, Split, Tokens
from .batching import Ragged, get_data, row_numbers, set_data
from .listops_trees import VOCABULARY, expressions

DATA_SEED = 42
LADDER = ((10, 62), (63, 249))
"""Fewest and most tokens of the shorter expressions at the start of training, if they grow."""


@dataclass(frozen=True)
class ListOps(Classification):
    """ListOps of the Long Range Arena.

    Made by the rules of its generator: a node is an operator with probability 1/4 (never at depth
    10), with 2 to 10 arguments; SM is the sum modulo 10, MED the integer part of the median.
    Only expressions of ``shortest`` to ``longest`` tokens are used, each once. Brackets that only
    group are left out, an operator and its opening bracket are one token, and an end token follows.
    Tokens: 0 padding, 1 unknown (never occurs), 2 end, 3 to 6 MIN MAX MED SM, 7 closing bracket, 8
    to 17 digits. Right-padded to the longest in the batch. The expressions are not the Arena's own,
    whose seed is not known.

    Generated once, from a fixed seed, and stored in ``$SURNN_CACHE`` (``~/.cache/surnn``).
    Validation and test do not depend on the size of the training set.

    Models learn the meaning of brackets and operators from short expressions in a fraction of the
    time. Expressions can therefore grow in training; validation and test always have full length.

    Args:
        train: sequences to train on.
        valid: sequences to validate on.
        test: sequences to test on.
        shortest: fewest tokens of an expression, without its end token.
        longest: most tokens of an expression. Short ones suit trials on a CPU.
        one_length: pad all batches to ``longest`` and the end token, so that training steps can be
            captured and compiled (train.cuda_graph, train.compile).
        growing: number of training batches with shorter expressions: the first half has 10 to 62
            tokens, the second 63 to 249. As many of each are generated as there are to train on.
    """

    train: int = 96_000
    valid: int = 2_000
    test: int = 2_000
    shortest: int = 501
    longest: int = 1999
    one_length: bool = False
    growing: int = 0

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
        if self.growing < 0:
            raise ValueError(f"growing is {self.growing}; expected 0 or more batches")
        if self.growing and self.shortest <= LADDER[-1][1]:
            raise ValueError(
                f"expressions of {self.shortest} tokens are no longer than those of up to "
                f"{LADDER[-1][1]} that they grow from; use longer ones, or growing 0"
            )

    @property
    def easy_batches(self) -> int:
        return self.growing

    def as_tested(self) -> "ListOps":
        return replace(self, growing=0)

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
        """The accuracy of the most frequent answer; needs the data. 0.17 at the Arena's lengths."""
        labels = get_data(self)[0][1]
        return (labels.bincount().max() / len(labels)).item()

    def prepare(
        self, device: torch.device, data: Path | None = None, progress: Progress | None = None
    ) -> None:
        count = self.train + self.valid + self.test
        sets = [(count, self.shortest, self.longest)]
        if self.growing:
            sets += [(self.train, *tokens) for tokens in LADDER]
        set_data(self, [_on_device(_generate(*each, data, progress), device) for each in sets])

    def size(self, split: Split) -> int:
        return getattr(self, split)

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        (stored, labels), longest = get_data(self)[0], self.longest
        first = {"valid": 0, "test": self.valid, "train": self.valid + self.test}[split]
        if split == "train" and number < self.growing:
            rung, number = divmod(number, -(-self.growing // len(LADDER)))
            (stored, labels), longest, first = get_data(self)[1 + rung], LADDER[rung][1], 0
        rows = first + row_numbers(split, self.size(split), number, size, seed)
        x, lengths = stored.padded(rows, longest + 1 if self.one_length else None)
        labels = labels[rows.to(labels.device)]
        return Batch(x.to(device), labels.to(device), lengths.to(device))


def _generate(
    count: int, shortest: int, longest: int, data: Path | None, progress: Progress | None
) -> Arrays:
    """``count`` expressions within these lengths."""
    size = {"shortest": shortest, "longest": longest}
    return load_or_make(
        f"listops-{count}-{shortest}-{longest}.npz",
        {"task": ListOps.name, "version": 1, "seed": DATA_SEED, "count": count, **size},
        lambda progress: expressions(count, DATA_SEED, progress, **size),
        data,
        progress,
    )


def _on_device(arrays: Arrays, device: torch.device) -> tuple[Ragged, Tensor]:
    """Expressions, each with its end, and answers on a device."""
    lengths = np.diff(arrays["offsets"])
    stored = Ragged.of(arrays["tokens"], lengths, int(lengths.max()), device)
    return stored, torch.from_numpy(arrays["labels"]).long().to(device)
