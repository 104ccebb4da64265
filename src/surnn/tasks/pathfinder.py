"""Pathfinder: are the two circles joined by a dashed line? Read pixel by pixel."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from .base import Batch, Classification, Output, Split, Values
from .cache import Progress, load_or_make
from .pathfinder_draw import WINDOW
from .pathfinder_snakes import PADDLES
from .pathfinder_snakes import images as make_images
from .stored import keep, kept, row_numbers, shades

DATA_SEED = 42


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

    Models may stay at chance for long. Shorter lines are easier: begin with them, and go on from
    that run with longer ones (``--train.start``).

    Args:
        images: how many in all.
        paddles: of a snake; a distractor has a third as many.
    """

    images: int = 200_000
    paddles: int = PADDLES

    name: ClassVar[str] = "pathfinder"
    paper: ClassVar[dict[str, float]] = {"suGRU": 0.8492, "suGRU, sigmoid": 0.7345, "S4": 0.9420}

    def __post_init__(self) -> None:
        if self.images < 10 or self.images % 10:
            raise ValueError(
                f"images is {self.images}; expected a multiple of 10, to be split 8 : 1 : 1"
            )
        if not 2 <= self.paddles <= PADDLES:
            raise ValueError(f"paddles is {self.paddles}; expected 2 to {PADDLES} for a snake")

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
        about: dict[str, int | str] = {
            "task": self.name, "version": 1, "seed": DATA_SEED, "count": self.images,
        }  # fmt: skip
        shorter = "" if self.paddles == PADDLES else f"-of-{self.paddles}"
        arrays = load_or_make(
            f"pathfinder-{self.images}{shorter}.npz",
            about | ({"paddles": self.paddles} if shorter else {}),
            lambda tell: make_images(self.images, DATA_SEED, tell, self.paddles),
            data,
            progress,
        )
        pixels = torch.from_numpy(arrays["images"]).reshape(self.images, -1, 1).to(device)
        labels = torch.from_numpy(arrays["labels"]).long().to(device)
        keep(self, (pixels, labels))

    def size(self, split: Split) -> int:
        return self.images // 10 * (8 if split == "train" else 1)

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        pixels, labels = kept(self)
        tenth = self.images // 10
        first = {"train": 0, "valid": 8 * tenth, "test": 9 * tenth}[split]
        rows = first + row_numbers(split, self.size(split), number, size, seed)
        rows = rows.to(pixels.device)
        return Batch(shades(pixels[rows]).to(device), labels[rows].to(device))
