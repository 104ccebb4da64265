"""enwik8: predict the next byte of Wikipedia."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from .base import Batch, Output, Score, Split, Task, Tokens
from .stored import keep, kept, row_numbers

ENDS: dict[Split, int] = {"train": 90_000_000, "valid": 95_000_000, "test": 100_000_000}
IGNORED = -100
"""Target of padding; cross entropy's own default."""


@dataclass(frozen=True)
class Enwik8(Task):
    """Byte-level language modelling of the first 100 MB of Wikipedia: 90 / 5 / 5 million bytes.

    A sequence is ``context`` bytes, its target the same one byte on. Training windows lie end to
    end and come in random order. Those of validation and test lie end to end from the split's first
    byte, which the last byte before it predicts, to its last: every byte is predicted once, and the
    last window is shorter and padded. Models start each window from nothing. The metric is bits per
    byte, the mean over bytes.

    Args:
        context: bytes in a window.
    """

    context: int = 1024

    name: ClassVar[str] = "enwik8"
    metric: ClassVar[str] = "bits per byte"
    higher_is_better: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("enwik8",)

    def __post_init__(self) -> None:
        if self.context < 1:
            raise ValueError(f"context is {self.context}; expected at least 1 byte")

    @property
    def input(self) -> Tokens:
        return Tokens(256)

    @property
    def output(self) -> Output:
        return Output(256, "step")

    @property
    def steps(self) -> int:
        return self.context

    @property
    def chance(self) -> float:
        return 8.0

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        from ..data.texts import enwik8  # noqa: PLC0415 (only the one who trains reads files)

        keep(self, torch.from_numpy(enwik8(data).copy()).to(device))

    def size(self, split: Split) -> int:
        first, last = _targets(split)
        whole, rest = divmod(last - first, self.context)
        return whole + (split != "train" and rest > 0)

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        text: Tensor = kept(self)
        first, last = _targets(split)
        rows = row_numbers(split, self.size(split), number, size, seed)
        starts = first - 1 + rows * self.context
        inside = torch.arange(self.context + 1, device=text.device)
        index = (starts.to(text.device)[:, None] + inside).clamp_(max=text.numel() - 1)
        window = text[index].long().to(device)
        x, target = window[:, :-1], window[:, 1:]
        left = (last - 1 - starts).clamp_(max=self.context)
        if (left == self.context).all():
            return Batch(x, target)
        lengths = left.to(device)
        padding = inside[:-1].to(device) >= lengths[:, None]
        return Batch(x.masked_fill(padding, 0), target.masked_fill(padding, IGNORED), lengths)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        return functional.cross_entropy(prediction.flatten(0, 1).float(), batch.target.flatten())

    def weight(self, batch: Batch) -> Tensor:
        return (batch.target != IGNORED).sum()

    def score(self, prediction: Tensor, batch: Batch) -> Score:
        target = batch.target.flatten()
        nats = functional.cross_entropy(prediction.flatten(0, 1).float(), target, reduction="sum")
        return Score(nats / math.log(2), (target != IGNORED).sum())


def _targets(split: Split) -> tuple[int, int]:
    """The bytes to be predicted: from the first to before the last. The very first cannot be."""
    splits = list(ENDS)
    before = splits.index(split) - 1
    return (1 if before < 0 else ENDS[splits[before]]), ENDS[split]
