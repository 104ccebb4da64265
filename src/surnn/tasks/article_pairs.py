"""A stand-in for Retrieval: do two passages come from the same article of Wikipedia?"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .base import Batch, Classification, Output, Split, Tokens, generator_for
from .batching import get_data, row_numbers, set_data

ROUNDS: dict[Split, int] = {"valid": 4, "test": 8}
"""Pairs that each article is in, as first and as second passage."""
HELD_OUT = 10
"""One article in so many is for validation, and as many for the test."""
SEED = 42
"""Divides the articles."""


class Articles(NamedTuple):
    """Articles of a split: where they start in the text, and their bytes."""

    starts: Tensor
    lengths: Tensor


class Pairs(NamedTuple):
    """Pairs of passages."""

    starts: Tensor
    """[pairs, 2] where the passages start in the text."""
    labels: Tensor
    """1: from the same article."""


@dataclass(frozen=True)
class ArticlePairs(Classification):
    """Pairs of passages from enwik8; two classes: from the same article, or from two.

    This is a **stand-in for LRA's Retrieval**, whose data (AAN) have to be fetched from their
    authors: as many classes, sequences as long, and two towers with the same weights. It is another
    task, and its accuracy cannot be compared with numbers for Retrieval. It is probably easier:
    passages of one article share names and rare words.

    Articles have at least two passages of text; other namespaces and near-duplicates are left out
    (:mod:`surnn.data.wikipedia`). 80 % of the articles are for training, 10 % each for validation
    and test. In each round every article gives two passages at random places that do not overlap.
    Half of the articles keep theirs as a pair; the others exchange their second ones. So the
    classes are of equal size, and a single passage tells nothing about the class. Rounds of
    training are drawn anew in each epoch; validation has 4 fixed rounds, and the test 8.

    Inputs are bytes [B, 2, length].

    Args:
        length: bytes of a passage.
    """

    length: int = 4000

    name: ClassVar[str] = "article_pairs"
    needs: ClassVar[tuple[str, ...]] = ("enwik8",)

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"length is {self.length}; expected at least 1 byte")

    @property
    def input(self) -> Tokens:
        return Tokens(256)

    @property
    def output(self) -> Output:
        return Output(2, "sequence", pairs=True)

    @property
    def steps(self) -> int:
        return self.length

    @property
    def chance(self) -> float:
        return 0.5

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        from surnn.data.wikipedia import articles  # noqa: PLC0415 (needed by training only)

        texts = articles(2 * self.length, data)
        lengths = torch.tensor([len(text) for text in texts])
        starts = lengths.cumsum(0) - lengths
        splits = {
            split: Articles(starts[rows], lengths[rows])
            for split, rows in _divide(len(texts)).items()
        }
        fixed = {}
        for split, rounds in ROUNDS.items():
            drawn = [
                self._draw(splits[split], seed=SEED, round_=number) for number in range(rounds)
            ]
            fixed[split] = Pairs(*(torch.cat(parts) for parts in zip(*drawn, strict=True)))
        flat = torch.from_numpy(np.frombuffer(b"".join(texts), np.uint8).copy())
        set_data(self, (flat.to(device), splits["train"], fixed))

    def size(self, split: Split) -> int:
        _, train, fixed = get_data(self)
        return len(train.starts) if split == "train" else len(fixed[split].labels)

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        flat, train, fixed = get_data(self)
        count = self.size(split)
        rows = row_numbers(split, count, number, size, seed)
        if split == "train":
            pairs = self._draw(train, seed, number // (count // size))
        else:
            pairs = fixed[split]
        starts, inside = pairs.starts[rows].to(flat.device), torch.arange(self.length)
        x = flat[starts.unsqueeze(-1) + inside.to(flat.device)]
        return Batch(x.long().to(device), pairs.labels[rows].to(device))

    def _draw(self, articles: Articles, seed: int, round_: int) -> Pairs:
        """Pairs in which each article is once the first and once the second."""
        generator = generator_for(seed, round_, torch.device("cpu"))
        count = len(articles.starts)
        order = torch.randperm(count, generator=generator)
        # Two places among those that are left if both passages are taken out, in order.
        left = articles.lengths[order] - 2 * self.length + 1
        places = torch.rand(2, count, dtype=torch.float64, generator=generator) * left
        first, second = places.long().sort(0).values + articles.starts[order]
        second = second + self.length
        apart = count // 2
        second[:apart] = second[:apart].roll(1)
        return Pairs(torch.stack((first, second), 1), (torch.arange(count) >= apart).long())


def _divide(count: int) -> dict[Split, Tensor]:
    """Rows of the articles in each split, an even number and at least four in each."""
    held = count // HELD_OUT // 2 * 2
    train = (count - 2 * held) // 2 * 2
    if held < 4:
        raise ValueError(f"there are {count} articles; expected at least {4 * HELD_OUT}")
    rows = torch.randperm(count, generator=torch.Generator().manual_seed(SEED))
    parts = rows[: train + 2 * held].split([train, held, held])
    return dict(zip(("train", "valid", "test"), parts, strict=True))
