"""From stored arrays to batches: splits, row numbers, sequences of unequal length."""

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
    """Rows of batch ``number``: shuffled anew in each epoch for training, otherwise all of them in
    one order. That order is mixed too: many sets are sorted by class or by patient, and the first
    few batches shall be a fair sample."""
    if split == "train":
        return shuffled(count, number, size, seed)
    if not 0 <= number * size < count:
        raise IndexError(f"there is no batch {number} of {size} in {count} {split} sequences")
    return order(count, 0, 0)[number * size : (number + 1) * size]


def shades(pixels: Tensor) -> Tensor:
    """Pixels 0 to 255 as numbers 0 to 1, bit by bit the same on all devices: by a plain number
    CUDA would not divide but multiply with its inverse."""
    return pixels.float() / torch.full((1,), 255.0, device=pixels.device)


def check_choice(option: str, value: str, kind: object) -> None:
    """An option's value must be one of its ``Literal``."""
    allowed = get_args(kind)
    if value not in allowed:
        raise ValueError(f"{option} is {value!r}; expected one of {', '.join(allowed)}")


def keep(task: Task, data: Any) -> None:
    """Remember what a task has prepared: its options are frozen, but its data come later."""
    object.__setattr__(task, "_kept", data)


def kept(task: Task) -> Any:
    """What :func:`keep` was given."""
    if "_kept" not in vars(task):
        raise RuntimeError(f"{task.name}: call prepare(device) before asking for data")
    return vars(task)["_kept"]


@dataclass(frozen=True)
class Ragged:
    """Sequences of unequal length, one after the other on a device."""

    flat: Tensor
    starts: Tensor
    lengths: Tensor
    """On the CPU, so that a batch's width is known without waiting for the device."""

    @classmethod
    def of(
        cls, flat: np.ndarray, lengths: np.ndarray, longest: int, device: torch.device
    ) -> "Ragged":
        """Of sequences cut to ``longest``. What is cut off stays in ``flat`` and is not read."""
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        return cls(
            torch.from_numpy(np.array(flat)).to(device),
            torch.from_numpy(starts).to(device),
            torch.from_numpy(np.minimum(lengths, longest).astype(np.int64)),
        )

    def padded(self, rows: Tensor, steps: int | None = None) -> tuple[Tensor, Tensor]:
        """int64 [..., T], zeros on the right, and lengths [...], for ``rows`` [...] on the CPU; T
        is ``steps``, or the longest's."""
        lengths = self.lengths[rows]
        device = self.flat.device
        inside = torch.arange(steps or max(1, int(lengths.max())), device=device)
        lengths, starts = lengths.to(device), self.starts[rows.to(device)]
        index = (starts[..., None] + inside).clamp_(max=self.flat.numel() - 1)
        tokens = self.flat[index].long()
        return tokens.masked_fill_(inside >= lengths[..., None], 0), lengths
