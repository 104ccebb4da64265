"""MNIST one pixel at a time: in row order (sMNIST), or in a fixed other order (psMNIST)."""

from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from .base import Batch, Classification, Output, Split, Values, generator_for
from .batching import check_choice, get_data, hold_out, row_numbers, set_data, shades

SIDE = 28
PIXELS = SIDE * SIDE
FURTHEST = 2
Augment = Literal["none", "shift"]
Permutation = Literal["bitreversal", "torch0", "nru"]


class LabelledPixels(Classification):
    """Base of the image tasks: uint8 images on the device, ten classes."""

    @property
    def output(self) -> Output:
        return Output(10, "sequence")

    @property
    def chance(self) -> float:
        return 0.1

    def place(self, splits: dict[Split, tuple[np.ndarray, np.ndarray]], device: torch.device):
        """Put images and labels of each split on the device."""
        placed = {
            split: (
                torch.from_numpy(np.array(images)).to(device),
                torch.from_numpy(labels.astype(np.int64)).to(device),
            )
            for split, (images, labels) in splits.items()
        }
        set_data(self, placed)

    def size(self, split: Split) -> int:
        return len(get_data(self)[split][1])

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        images, labels = get_data(self)[split]
        rows = row_numbers(split, len(labels), number, size, seed).to(labels.device)
        x = self.values(images[rows], split, number, seed)
        return Batch(x.to(device), labels[rows].to(device))

    @abstractmethod
    def values(self, images: Tensor, split: Split, number: int, seed: int) -> Tensor:
        """Inputs [B, T, features] from stored images, of batch ``number``."""


@dataclass(frozen=True)
class SequentialMnist(LabelledPixels):
    """sMNIST: 784 pixels in [0, 1], row by row; one of ten digits.

    54,000 / 6,000 / 10,000 images; validation is the tenth of the training images that torch's
    ``random_split`` with seed 42 holds out, as S4 does.

    Args:
        augment: ``"shift"`` moves training images by up to two pixels each way, before they are
            put into order; published numbers use ``"none"``, as far as they state.
    """

    augment: Augment = field(default="none", kw_only=True)

    name: ClassVar[str] = "smnist"
    needs: ClassVar[tuple[str, ...]] = ("mnist",)
    paper: ClassVar[dict[str, float]] = {
        "suGRU": 0.9953,
        "LSSL": 0.9953,
        "Transformer": 0.989,
        "LSTM": 0.989,
    }

    def __post_init__(self) -> None:
        check_choice("augment", self.augment, Augment)

    @property
    def input(self) -> Values:
        return Values(1)

    @property
    def steps(self) -> int:
        return PIXELS

    def order(self) -> np.ndarray:
        """The pixel of each time step."""
        return np.arange(PIXELS)

    def rows(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Row numbers of the ``count`` stored training images for training, and for validation."""
        train, valid = hold_out(count, count - int(count * 0.9))
        return train.numpy(), valid.numpy()

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        from surnn.data.images import mnist  # noqa: PLC0415 (needed by training only)

        images = mnist(data)
        train, valid = self.rows(len(images.train))
        self.place(
            {
                "train": (images.train[train], images.train_labels[train]),
                "valid": (images.train[valid], images.train_labels[valid]),
                "test": (images.test, images.test_labels),
            },
            device,
        )
        get_data(self)["order"] = torch.from_numpy(self.order()).to(device)

    def values(self, images: Tensor, split: Split, number: int, seed: int) -> Tensor:
        if split == "train" and self.augment == "shift":
            images = shifted(images, generator_for(seed, number, images.device))
        return shades(images.flatten(1)[:, get_data(self)["order"]]).unsqueeze(-1)


@dataclass(frozen=True)
class PermutedMnist(SequentialMnist):
    """psMNIST: sMNIST with its pixels in another, fixed order.

    Args:
        permutation: ``"bitreversal"``: the numbers below 1024 with their ten bits reversed, of
            which those below 784 are kept (S4, LSSL). ``"torch0"``: ``torch.randperm(784)`` after
            ``torch.manual_seed(0)`` (spiking networks). Both split as sMNIST. ``"nru"``: numpy's
            ``RandomState(50)`` first shuffles the training images, then permutes the pixels (NRU,
            and the LMU's table). The last 10,000 training images are for validation. NRU's own
            code appends a zero time step and reads the answer there; ours and the LMU's read it
            after 784 steps.
    """

    permutation: Permutation = "bitreversal"

    name: ClassVar[str] = "psmnist"
    paper: ClassVar[dict[str, float]] = {
        "suGRU": 0.9886,
        "suRNN, stepwise": 0.9776,
        "suGRU, stepwise": 0.9821,
        "suLSTM, stepwise": 0.9764,
        "GRU": 0.9239,
        "LSTM": 0.8986,
        "LMU": 0.9715,
        "LSSL": 0.9876,
        "Transformer": 0.979,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("permutation", self.permutation, Permutation)

    def order(self) -> np.ndarray:
        if self.permutation == "bitreversal":
            return bit_reversal(PIXELS)
        if self.permutation == "torch0":
            generator = torch.Generator().manual_seed(0)
            return torch.randperm(PIXELS, generator=generator).numpy()
        return _nru(60_000)[1]

    def rows(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        if self.permutation != "nru":
            return super().rows(count)
        shuffled = _nru(count)[0]
        return shuffled[: count - count // 6], shuffled[count - count // 6 :]


@dataclass(frozen=True)
class SpikingPermutedMnist(PermutedMnist):
    """psMNIST as used for spiking networks: torch's permutation of seed 0, raw pixels. (Their code
    selects the best test epoch of 60,000 / 10,000 images; we hold out 6,000 for that.)"""

    permutation: Permutation = "torch0"

    name: ClassVar[str] = "spiking_psmnist"
    paper: ClassVar[dict[str, float]] = {
        "suSNN": 0.9733,
        "Rhythm-SNN": 0.9673,
        "ASRC-SNN": 0.9662,
        "BRF": 0.952,
        "SRNN": 0.943,
        "GLIF": 0.9047,
    }


def shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """[N, 28, 28] moved by up to two pixels each way, black behind them."""
    drawn = torch.randint(
        2 * FURTHEST + 1, (2, len(images), 1), device=images.device, generator=generator
    )
    rows, columns = torch.arange(SIDE, device=images.device) + drawn
    return cut_out(pad(images, (FURTHEST,) * 4), rows, columns)


def cut_out(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The pixels of each of N images at its ``rows`` [N, H] and ``columns`` [N, W]."""
    which = torch.arange(len(images), device=images.device)[:, None, None]
    return images[which, rows[:, :, None], columns[:, None, :]]


def bit_reversal(count: int) -> np.ndarray:
    """The numbers below ``count`` in bit-reversed order."""
    bits = (count - 1).bit_length()
    reversed_ = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(1 << bits)]
    return np.array([i for i in reversed_ if i < count])


def _nru(images: int) -> tuple[np.ndarray, np.ndarray]:
    state = np.random.RandomState(50)  # NRU's generator
    return state.permutation(images), state.permutation(PIXELS)
