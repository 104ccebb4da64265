"""Helpers for tests of generated tasks."""

import torch
from torch.nn import functional

from surnn.tasks.base import Batch, Split, Task

CPU = torch.device("cpu")


def get(task: Task, split: Split = "train", number=0, size=4, seed=0) -> Batch:
    return task.batch(split, number, size, seed, CPU)


def same(a: Batch, b: Batch) -> bool:
    return all(
        (p is None and q is None) or (p is not None and q is not None and torch.equal(p, q))
        for p, q in zip(a, b, strict=True)
    )


def one_hot_logits(target: torch.Tensor, classes: int) -> torch.Tensor:
    return 20 * functional.one_hot(target.clamp(min=0), classes).float()
