"""Pathfinder: are the two circles joined by a dashed line? Read pixel by pixel."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from .base import Batch, Classification, Output, Split, Values, generator_for
from .cache import Arrays, Progress, load_or_make
from .pathfinder_draw import WINDOW
from .pathfinder_snakes import PADDLES
from .pathfinder_snakes import images as make_images
from .stored import keep, kept, row_numbers, shades

DATA_SEED = 42
LADDER = (2, 3, 4, 6, 9)
"""Paddles of the lines that come before full ones where they grow."""
FULL_FOR_ONE_SHORTER = 10
"""Images of full lines for each of one of the shorter lengths."""


@dataclass(frozen=True)
class Pathfinder(Classification):
    """Pathfinder-32 of the Long Range Arena, at its hard setting.

    Input [B, 1024, 1]: an image of 32 x 32 pixels in 0 to 1, row by row. It shows two snakes of 14
    paddles and up to 5 distractors of 4, all clear of one another, and two circles: at the origin
    of one long snake, and at the end of the same (class 1) or the other (class 0).

    Made by our own generator after the description and the parameters of the original, from a fixed
    seed, and kept in ``$SURNN_CACHE`` (``~/.cache/surnn``); all 200,000 take about five minutes of
    one CPU core. Where it differs: a snake avoids all of the other one, its newest paddle included,
    so that no two ever touch; a distractor's first paddle is sought at 32 random pixels, not at all
    of them; contrasts above white are clipped; the 80/10/10 split is in order, as images are
    independent.

    Models may stay at chance for long. So lines can grow in training, for short ones are learned
    sooner; validation and test are of full lines from the beginning.

    Args:
        images: how many in all.
        paddles: of a snake; a distractor has a third as many.
        growing: training batches in which lines are shorter. Half of such a batch has the longest
            so far, the other half any up to these. Their images are made besides, of each length a
            tenth of ``images``.
        ladder: how many paddles the shorter lines have, one after another for equally many batches.
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
            raise ValueError("a ladder is of lines that grow: set growing too, or leave it out")

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
        made = [_made(count, paddles, data, progress) for count, paddles in sets]
        both = ("images", "labels")
        pixels, labels = (torch.cat([torch.from_numpy(each[n]) for each in made]) for n in both)
        keep(self, (pixels.flatten(1).unsqueeze(-1).to(device), labels.long().to(device)))

    def size(self, split: Split) -> int:
        return self.images // 10 * (8 if split == "train" else 1)

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        pixels, labels = kept(self)
        tenth = self.images // 10
        first = {"train": 0, "valid": 8 * tenth, "test": 9 * tenth}[split]
        rows = first + row_numbers(split, self.size(split), number, size, seed)
        if split == "train" and number < self.growing:
            rows = self.images + self._shorter(number, size, seed)
        rows = rows.to(pixels.device)
        return Batch(shades(pixels[rows]).to(device), labels[rows].to(device))

    def _shorter(self, number: int, size: int, seed: int) -> Tensor:
        """Rows of shorter lines, counted from the first of them."""
        random = generator_for(seed, number, torch.device("cpu"))
        each = self.images // FULL_FOR_ONE_SHORTER
        newest = number * len(self.ladder) // self.growing
        which = torch.randint(newest + 1, (size,), generator=random)
        which[::2] = newest  # in turns: whoever takes a part of the batch has some of both
        return which * each + torch.randint(each, (size,), generator=random)


def _made(count: int, paddles: int, data: Path | None, progress: Progress | None) -> Arrays:
    """So many images of snakes of so many paddles."""
    about: dict[str, int | str] = {
        "task": Pathfinder.name, "version": 1, "seed": DATA_SEED, "count": count,
    }  # fmt: skip
    shorter = "" if paddles == PADDLES else f"-of-{paddles}"
    return load_or_make(
        f"pathfinder-{count}{shorter}.npz",
        about | ({"paddles": paddles} if shorter else {}),
        lambda tell: make_images(count, DATA_SEED, tell, paddles),
        data,
        progress,
    )
