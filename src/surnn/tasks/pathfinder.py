"""Pathfinder: does a dashed line join the two circles? Read pixel by pixel."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from surnn.data.cache import Arrays, Progress, load_or_make

from .base import Batch, Classification, Output, Split, Values, generator_for
from .batching import get_data, row_numbers, set_data, shades
from .pathfinder_draw import WINDOW
from .pathfinder_snakes import PADDLES
from .pathfinder_snakes import images as make_images

DATA_SEED = 42
LADDER = (2, 3, 4, 6, 9)
"""Paddles of the shorter lines at the start of training, if they grow."""
FULL_FOR_ONE_SHORTER = 10
"""Images of full lines per image of each shorter length."""


@dataclass(frozen=True)
class Pathfinder(Classification):
    """Pathfinder-32 of the Long Range Arena, at its hard setting.

    Input [B, 1024, 1]: an image of 32 x 32 pixels in 0 to 1, row by row. It shows two snakes of 14
    paddles and up to 5 distractors of 4, all clear of one another, and two circles: at the origin
    of one long snake, and at the end of the same (class 1) or the other (class 0).

    Our own generator follows the description and the parameters of the original, with a fixed seed,
    and stores its images in ``$SURNN_CACHE`` (``~/.cache/surnn``); all 200,000 take about five
    minutes on one CPU core. Differences: a snake avoids all of the other one, its newest paddle
    included, so that no two ever touch; a distractor's first paddle is tried at 32 random pixels,
    not at all of them; contrasts above white are clipped; the 80/10/10 split is in order, because
    images are independent.

    Models may stay at chance for long, and learn short lines sooner. Lines can therefore grow in
    training; validation and test always have full lines.

    Args:
        images: number of images.
        paddles: paddles of a snake; a distractor has a third as many.
        growing: number of training batches with shorter lines. Half of such a batch has the longest
            lines so far, the other half any up to these. Their images are generated in addition, a
            tenth of ``images`` for each length.
        ladder: paddles of the shorter lines, in turn for equally many batches.
    """

    images: int = 200_000
    paddles: int = PADDLES
    growing: int = 0
    ladder: tuple[int, ...] = LADDER

    name: ClassVar[str] = "pathfinder"
    paper: ClassVar[dict[str, float]] = {"suGRU": 0.8492, "suGRU, sigmoid": 0.7345, "S4": 0.9420}

    def __post_init__(self) -> None:
        if self.images < 10 or self.images % 10:
            raise ValueError(
                f"images is {self.images}; expected a multiple of 10, to be split 8 : 1 : 1"
            )
        if not 2 <= self.paddles <= PADDLES:
            raise ValueError(f"paddles is {self.paddles}; expected 2 to {PADDLES} for a snake")
        if self.growing < 0:
            raise ValueError(f"growing is {self.growing}; expected 0 or more batches")
        object.__setattr__(self, "ladder", tuple(self.ladder))
        if self.growing:
            self._check_ladder()
        elif self.ladder != LADDER:
            raise ValueError("a ladder needs lines that grow: set growing too, or leave it out")

    def _check_ladder(self) -> None:
        if any(shorter >= longer for shorter, longer in pairwise((1, *self.ladder, self.paddles))):
            raise ValueError(
                f"ladder is {self.ladder}; expected numbers of paddles from 2 on, each more than "
                f"the one before and all less than the {self.paddles} of full lines; or growing 0"
            )
        if not 0 < len(self.ladder) <= self.growing:
            raise ValueError(
                f"growing is {self.growing} batches and ladder {self.ladder}; expected at least a "
                "batch for each"
            )

    @property
    def easy_batches(self) -> int:
        return self.growing

    def as_tested(self) -> "Pathfinder":
        return replace(self, growing=0, ladder=LADDER)

    @property
    def input(self) -> Values:
        return Values(1)

    @property
    def output(self) -> Output:
        return Output(2, "sequence")

    @property
    def steps(self) -> int:
        return WINDOW * WINDOW

    @property
    def chance(self) -> float:
        return 0.5

    def prepare(
        self, device: torch.device, data: Path | None = None, progress: Progress | None = None
    ) -> None:
        sets = [(self.images, self.paddles)]
        if self.growing:
            shorter = self.images // FULL_FOR_ONE_SHORTER
            sets += [(shorter, paddles) for paddles in self.ladder]
        arrays = [_generate(count, paddles, data, progress) for count, paddles in sets]
        both = ("images", "labels")
        pixels, labels = (torch.cat([torch.from_numpy(each[n]) for each in arrays]) for n in both)
        set_data(self, (pixels.flatten(1).unsqueeze(-1).to(device), labels.long().to(device)))

    def size(self, split: Split) -> int:
        return self.images // 10 * (8 if split == "train" else 1)

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        pixels, labels = get_data(self)
        tenth = self.images // 10
        first = {"train": 0, "valid": 8 * tenth, "test": 9 * tenth}[split]
        rows = first + row_numbers(split, self.size(split), number, size, seed)
        if split == "train" and number < self.growing:
            rows = self.images + self._shorter(number, size, seed)
        rows = rows.to(pixels.device)
        return Batch(shades(pixels[rows]).to(device), labels[rows].to(device))

    def _shorter(self, number: int, size: int, seed: int) -> Tensor:
        """Row numbers of shorter lines, from 0 on."""
        random = generator_for(seed, number, torch.device("cpu"))
        each = self.images // FULL_FOR_ONE_SHORTER
        newest = number * len(self.ladder) // self.growing
        which = torch.randint(newest + 1, (size,), generator=random)
        which[::2] = newest  # alternating, so that every part of the batch has both
        return which * each + torch.randint(each, (size,), generator=random)


def _generate(count: int, paddles: int, data: Path | None, progress: Progress | None) -> Arrays:
    """``count`` images of snakes with so many paddles."""
    about: dict[str, int | str] = {
        "task": Pathfinder.name, "version": 1, "seed": DATA_SEED, "count": count,
    }  # fmt: skip
    shorter = "" if paddles == PADDLES else f"-of-{paddles}"
    return load_or_make(
        f"pathfinder-{count}{shorter}.npz",
        about | ({"paddles": paddles} if shorter else {}),
        lambda progress: make_images(count, DATA_SEED, progress, paddles),
        data,
        progress,
    )
