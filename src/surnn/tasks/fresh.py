"""Sequences that are made afresh in training, and fixed sets of them to judge by."""

from abc import abstractmethod
from functools import lru_cache
from typing import Any, ClassVar

import torch

from .base import Batch, Split, Task, generator_for
from .stored import row_numbers

FIXED_NUMBER = -1
"""A batch number that training never has, so that no training seed meets a fixed set."""
Parts = tuple[Any, ...]
"""What is random about some sequences: tensors [count, ...], or None."""


class Fresh(Task):
    """Base of tasks without data: what is random is drawn, and batches are assembled from it."""

    fixed_size: ClassVar[int]
    """Sequences of the validation set, and of the test set."""
    fixed_seeds: ClassVar[dict[Split, int]]

    @abstractmethod
    def draw(self, split: Split, count: int, random: torch.Generator) -> Parts:
        """The randomness of ``count`` sequences."""

    @abstractmethod
    def assemble(self, parts: Parts) -> Batch:
        """The sequences that it makes."""

    def size(self, split: Split) -> int | None:
        return None if split == "train" else self.fixed_size

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        if split == "train":
            return self.assemble(self.draw(split, size, generator_for(seed, number, device)))
        rows = row_numbers(split, self.fixed_size, number, size, seed).to(device)
        fixed = _fixed(self, split, device)
        return self.assemble(tuple(None if part is None else part[rows] for part in fixed))


@lru_cache(maxsize=2)
def _fixed(task: Fresh, split: Split, device: torch.device) -> Parts:
    """Drawn on the CPU, so that all devices have the same."""
    random = generator_for(task.fixed_seeds[split], FIXED_NUMBER, torch.device("cpu"))
    drawn = task.draw(split, task.fixed_size, random)
    return tuple(None if part is None else part.to(device) for part in drawn)
