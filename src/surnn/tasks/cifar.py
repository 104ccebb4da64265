"""CIFAR-10 one pixel at a time: in colour (sCIFAR), or grey as Long Range Arena's Image."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from .base import Split, Values, generator_for
from .batching import check_choice, hold_out, shades
from .mnist import LabelledPixels, cut_out

SIDE = 32
COLOUR_MEAN, COLOUR_STD = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)
GREY_MEAN, GREY_STD = 122.6 / 255, 61 / 255
PADDING = 4
Augment = Literal["none", "crop_flip"]


class _Cifar(LabelledPixels):
    """Base of both tasks: 45,000 / 5,000 / 10,000 images of 1024 pixels, row by row. Validation is
    the tenth that ``random_split`` with seed 42 holds out."""

    needs: ClassVar[tuple[str, ...]] = ("cifar10",)
    augment: Augment

    @property
    def one_channel(self) -> bool:
        return False

    @property
    def input(self) -> Values:
        return Values(1 if self.one_channel else 3)

    @property
    def steps(self) -> int:
        return SIDE * SIDE

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        from surnn.data.images import cifar10  # noqa: PLC0415 (needed by training only)

        images = cifar10(data)
        train, valid = (
            rows.numpy()
            for rows in hold_out(
                len(images.train), len(images.train) - int(len(images.train) * 0.9)
            )
        )
        convert = to_grey if self.one_channel else np.asarray
        self.place(
            {
                "train": (convert(images.train[train]), images.train_labels[train]),
                "valid": (convert(images.train[valid]), images.train_labels[valid]),
                "test": (convert(images.test), images.test_labels),
            },
            device,
        )

    def values(self, images: Tensor, split: Split, number: int, seed: int) -> Tensor:
        if split == "train" and self.augment == "crop_flip":
            images = crop_and_flip(images, generator_for(seed, number, images.device))
        mean, std = (GREY_MEAN, GREY_STD) if self.one_channel else (COLOUR_MEAN, COLOUR_STD)
        x = shades(images).sub_(_like(mean, images)).div_(_like(std, images))
        return x.flatten(1, 2)


@dataclass(frozen=True)
class SequentialCifar(_Cifar):
    """sCIFAR: 1024 RGB pixels, row by row, each channel normalised; one of ten classes.

    Args:
        augment: ``"none"`` as S4 does by default, or ``"crop_flip"``: a random 32 x 32 crop of the
            image mirrored outwards by 4 pixels, and a horizontal flip half of the time.
    """

    augment: Augment = "none"

    name: ClassVar[str] = "scifar"
    paper: ClassVar[dict[str, float]] = {
        "suGRU": 0.8921,
        "LSSL": 0.8465,
        "Transformer": 0.622,
        "LSTM": 0.6301,
    }

    def __post_init__(self) -> None:
        check_choice("augment", self.augment, Augment)


@dataclass(frozen=True)
class LraImage(_Cifar):
    """Long Range Arena's Image: 1024 grey pixels of CIFAR-10, row by row; one of ten classes.

    Grey is ITU-R 601 luma as pillow computes it, normalised with mean 122.6 and standard deviation
    61 of 255, as in S4. HGRN's published numbers use colour and augmentation; the paper's 86.37 may
    do so too (its text has 71.21).

    Args:
        grey: False gives RGB as in sCIFAR.
        augment: as in sCIFAR.
    """

    grey: bool = True
    augment: Augment = "none"

    name: ClassVar[str] = "lra_image"
    paper: ClassVar[dict[str, float]] = {
        "suGRU": 0.8637,
        "suGRU, text": 0.7121,
        "suGRU, sigmoid": 0.5692,
        "S4": 0.8865,
    }

    def __post_init__(self) -> None:
        check_choice("augment", self.augment, Augment)

    @property
    def one_channel(self) -> bool:
        return self.grey


def to_grey(images: np.ndarray) -> np.ndarray:
    """[N, 32, 32, 3] to [N, 32, 32, 1] as pillow's mode L: luma in 16-bit fixed point, rounded."""
    weights = np.array([19595, 38470, 7471], np.uint32)
    return ((images @ weights + 0x8000) >> 16).astype(np.uint8)[..., None]


def crop_and_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Random shifts by up to 4 pixels, mirrored at the edges (edge pixels repeat), and random
    flips, for all images at once, by index."""
    device, count = images.device, len(images)
    shift = torch.randint(-PADDING, PADDING + 1, (2, count, 1), device=device, generator=generator)
    flip = torch.rand(count, 1, device=device, generator=generator) < 0.5
    rows, columns = _mirror(torch.arange(SIDE, device=device) + shift)
    columns = torch.where(flip, columns.flip(1), columns)
    return cut_out(images, rows, columns)


def _mirror(index: Tensor) -> Tensor:
    index = torch.where(index < 0, -1 - index, index)
    return torch.where(index >= SIDE, 2 * SIDE - 1 - index, index)


def _like(values: float | tuple[float, ...], images: Tensor) -> Tensor:
    return torch.tensor(values, device=images.device)
