"""Parts of tasks that make batches: splits, row numbers, padded sequences, prepared data."""

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from .base import Split, Task, order, shuffled


def hold_out(count: int, held: int, seed: int = 42) -> tuple[Tensor, Tensor]:
    """Row numbers for training and validation, as torch's ``random_split`` draws them: the first
    ``count - held`` of a seeded permutation, and the rest."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[: count - held], order[count - held :]


def row_numbers(split: Split, count: int, number: int, size: int, seed: int) -> Tensor:
    """Row numbers of batch ``number``: shuffled in each epoch for training, otherwise in one fixed
    order. That order is random too, so that the first batches of sets that are sorted by class or
    by patient are a fair sample."""
    if split == "train":
        return shuffled(count, number, size, seed)
    if not 0 <= number * size < count:
        raise IndexError(f"there is no batch {number} of {size} in {count} {split} sequences")
    return order(count, 0, 0)[number * size : (number + 1) * size]


def shades(pixels: Tensor) -> Tensor:
    """Pixels 0 to 255 as numbers 0 to 1, bit-identical on all devices: CUDA replaces a division by
    a plain number with a multiplication by its inverse."""
    return pixels.float() / torch.full((1,), 255.0, device=pixels.device)


def check_choice(option: str, value: str, kind: object) -> None:
    """Raise ValueError if an option's value is none of its ``Literal``."""
    allowed = get_args(kind)
    if value not in allowed:
        raise ValueError(f"{option} is {value!r}; expected one of {', '.join(allowed)}")


def set_data(task: Task, data: Any) -> None:
    """Store a task's prepared data on it, although its options are frozen."""
    object.__setattr__(task, "_data", data)


def get_data(task: Task) -> Any:
    """The data that :func:`set_data` stored."""
    if "_data" not in vars(task):
        raise RuntimeError(f"{task.name}: call prepare(device) before using its data")
    return vars(task)["_data"]


@dataclass(frozen=True)
class Ragged:
    """Sequences of unequal length, concatenated on a device."""

    flat: Tensor
    starts: Tensor
    lengths: Tensor
    """On the CPU, so that a batch's width needs no synchronisation with the device."""

    @classmethod
    def of(
        cls, flat: np.ndarray, lengths: np.ndarray, longest: int, device: torch.device
    ) -> "Ragged":
        """The lengths of sequences cut to ``longest``; the rest stays in ``flat`` unread."""
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        return cls(
            torch.from_numpy(np.array(flat)).to(device),
            torch.from_numpy(starts).to(device),
            torch.from_numpy(np.minimum(lengths, longest).astype(np.int64)),
        )

    def padded(self, rows: Tensor, steps: int | None = None) -> tuple[Tensor, Tensor]:
        """int64 [..., T], zero-padded on the right, and lengths [...], for ``rows`` [...] on the
        CPU. T is ``steps``, or the length of the longest sequence."""
        lengths = self.lengths[rows]
        device = self.flat.device
        inside = torch.arange(steps or max(1, int(lengths.max())), device=device)
        lengths, starts = lengths.to(device), self.starts[rows.to(device)]
        index = (starts[..., None] + inside).clamp_(max=self.flat.numel() - 1)
        tokens = self.flat[index].long()
        return tokens.masked_fill_(inside >= lengths[..., None], 0), lengths
