"""Generated sequences: new ones in training, fixed sets for validation and test."""

from abc import abstractmethod
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from .base import Batch, Split, Task, generator_for
from .batching import row_numbers

FIXED_NUMBER = -1
"""A batch number that training never reaches, so that no training seed produces a fixed set."""
Parts = tuple[Any, ...]
"""The random parts of sequences: tensors [count, ...], or None."""


class GeneratedTask(Task):
    """Base of generated tasks: random parts are drawn, and batches are assembled from them."""

    fixed_size: ClassVar[int]
    """The number of sequences in the validation set, and in the test set."""
    fixed_seeds: ClassVar[dict[Split, int]]

    @abstractmethod
    def draw(self, split: Split, count: int, random: torch.Generator) -> Parts:
        """The random parts of ``count`` sequences."""

    @abstractmethod
    def assemble(self, parts: Parts) -> Batch:
        """The sequences made from random parts."""

    def size(self, split: Split) -> int | None:
        return None if split == "train" else self.fixed_size

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        if split == "train":
            return self.assemble(self.draw(split, size, generator_for(seed, number, device)))
        rows = row_numbers(split, self.fixed_size, number, size, seed).to(device)
        fixed = _fixed_parts(self, split, device)
        return self.assemble(tuple(None if part is None else part[rows] for part in fixed))


@lru_cache(maxsize=2)
def _fixed_parts(task: GeneratedTask, split: Split, device: torch.device) -> Parts:
    """Drawn on the CPU, so that all devices have the same sequences."""
    random = generator_for(task.fixed_seeds[split], FIXED_NUMBER, torch.device("cpu"))
    drawn = task.draw(split, task.fixed_size, random)
    return tuple(None if part is None else part.to(device) for part in drawn)


def random_places(count: int, places: int, chosen: int, random: torch.Generator) -> Tensor:
    """[count, chosen]: distinct uniform places below ``places`` for each sequence, increasing."""
    order = torch.rand((count, places), generator=random, device=random.device)
    return order.topk(chosen, dim=1).indices.sort(dim=1).values
