"""A task of your own: is the sum of noise positive?

surnn train examples/own_task.py:SignOfSum --task.length 50
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from surnn.tasks import Batch, Output, Values
from surnn.tasks.base import Classification, generator_for


@dataclass(frozen=True)
class SignOfSum(Classification):
    """Is the sum of the inputs positive?

    Args:
        length: time steps.
    """

    length: int = 20

    name: ClassVar[str] = "sign_of_sum"

    @property
    def input(self):
        return Values(1)  # [B, T, 1]

    @property
    def output(self):
        return Output(2, "sequence")  # two scores for each sequence

    @property
    def steps(self):
        return self.length

    @property
    def chance(self):
        return 0.5

    def size(self, split):
        return None if split == "train" else 256  # None: fresh sequences without end

    def batch(self, split, number, size, seed, device):
        seed = {"train": seed, "valid": 1_000_001, "test": 1_000_002}[split]
        random = generator_for(seed, number, torch.device("cpu"))  # the same on every device
        x = torch.randn(size, self.length, 1, generator=random)
        return Batch(x.to(device), (x.sum((1, 2)) > 0).long().to(device))
