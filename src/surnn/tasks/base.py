"""What a benchmark is: inputs, targets, loss, metric, and where its numbers come from.

A task is a frozen dataclass whose fields are its options (and so become flags). It says what goes
in and out, makes or loads its data once (:meth:`Task.prepare`), and then hands out batches by
*number*: batch k of a split is a pure function of (seed, k), so that training can stop and go on
anywhere, and every process of a distributed run can take its own rows of the same batch.

Shapes: B sequences, T steps. Inputs are batch first.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

Split = Literal["train", "valid", "test"]


@dataclass(frozen=True)
class Tokens:
    """Inputs are integers [B, T] below ``vocabulary``."""

    vocabulary: int


@dataclass(frozen=True)
class Values:
    """Inputs are floats [B, T, features]."""

    features: int


@dataclass(frozen=True)
class Output:
    """What a model must give: ``size`` numbers for each sequence, or at each step."""

    size: int
    per: Literal["sequence", "step"]
    pairs: bool = False
    """Two documents a sample: inputs are [B, 2, T], and the model compares their encodings."""


class Batch(NamedTuple):
    """Some sequences and what is wanted of them."""

    x: Tensor
    """[B, T] tokens or [B, T, features] values."""
    target: Tensor
    """[B], [B, T] or [B, T, size], integers or floats; what it means is the task's business."""
    lengths: Tensor | None = None
    """[B] steps of each right-padded sequence; None means all T. [B, 2] for pairs."""
    kinds: Tensor | None = None
    """[B, T] which kind of token each step is, an index into :attr:`Task.kinds`; update rates are
    logged for each kind."""
    fresh: Tensor | None = None
    """A single bool, of tasks that carry the state from batch to batch: whether to begin anew."""


@dataclass(frozen=True)
class Score:
    """A metric that adds up over batches: ``total / count``, or the root or exponential of it."""

    total: Tensor
    count: Tensor
    root: bool = False
    exponential: bool = False

    @property
    def value(self) -> float:
        mean = (self.total / self.count).item()
        if self.exponential:
            return math.exp(mean) if mean < 700 else math.inf
        return mean**0.5 if self.root else mean

    def __add__(self, other: "Score") -> "Score":
        return replace(self, total=self.total + other.total, count=self.count + other.count)


class Task(ABC):
    """Base of all tasks; subclasses are frozen dataclasses.

    Class attributes describe the benchmark, methods make and judge it. ``prepare`` is called once,
    before anything else that needs data.
    """

    name: ClassVar[str]
    """As on the command line."""
    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True
    paper: ClassVar[dict[str, float]] = {}
    """The paper's numbers for the metric, by model."""
    kinds: ClassVar[tuple[str, ...]] = ()
    """Names of the kinds of token that :attr:`Batch.kinds` counts."""
    looks_ahead: ClassVar[bool] = False
    """Whether targets are inputs still to come: who reads backwards would have seen them."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Data sets, as :mod:`surnn.data` calls them; empty for generated tasks."""

    # ------------------------------------------------------------ what it looks like

    @property
    @abstractmethod
    def input(self) -> Tokens | Values:
        """What goes in."""

    @property
    @abstractmethod
    def output(self) -> Output:
        """What must come out."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """T, the longest sequence; a clock gate's horizon."""

    @property
    def carries(self) -> bool:
        """Whether a batch goes on where the one before ended, in the state that the model was in.

        Such batches are all of one size, and say by ``fresh`` when to begin anew.
        """
        return False

    @property
    def easy_batches(self) -> int:
        """Training batches, the first ones, of something easier than what is asked in the end."""
        return 0

    def as_tested(self) -> "Task":
        """The same without what only training has."""
        return self

    def files(self) -> dict[str, str]:
        """What a trained model is used with, besides its weights: texts of files, by name. A run's
        folder keeps them."""
        return {}

    @property
    @abstractmethod
    def chance(self) -> float:
        """The metric of one who has learned nothing, and answers alike whatever comes in. May need
        the data."""

    # ------------------------------------------------------------ its data

    def prepare(self, device: torch.device, data: Path | None = None) -> None:  # noqa: B027
        """Load or make what batches are taken from, on ``device``. Generated tasks may do nothing.

        ``data`` is a folder to look in before the usual places.
        """

    def check_same(self, run: Path) -> None:  # noqa: B027
        """Refuse, with a ValueError, prepared data that are not those of the run in this folder.

        For data that anyone may change; data sets have their own checksums.
        """

    @abstractmethod
    def size(self, split: Split) -> int | None:
        """Sequences of a split; None where training batches are made afresh without end."""

    @abstractmethod
    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        """Batch ``number`` of ``size`` sequences.

        Training batches are shuffled anew in every epoch, from ``seed``; an epoch's last, smaller
        batch is dropped. Of the other splits, batches go through the fixed set in one order, and
        the last one may be smaller. The same arguments give the same batch, on the same device.
        """

    # ------------------------------------------------------------ how it is judged

    @abstractmethod
    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """What training minimises, the mean over the batch. ``prediction`` is [B, size] or
        [B, T, size]."""

    def weight(self, batch: Batch) -> Tensor | float:
        """What the mean in :meth:`loss` was divided by: how much a batch counts beside others.

        The loss of a batch is the weighted mean over any parts that it is taken in. Sequences
        by default; a loss over steps that may be missing, or that have weights, counts those.
        """
        return float(len(batch.x))

    @abstractmethod
    def score(self, prediction: Tensor, batch: Batch) -> Score:
        """The metric, as sums over the batch."""

    def details(self, prediction: Tensor, batch: Batch) -> dict[str, Score]:
        """Further numbers by name, worth a look beside the metric whenever it is taken."""
        return {}


class Classification(Task):
    """Base of tasks with one label for each sequence: cross entropy and accuracy."""

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        return functional.cross_entropy(prediction.float(), batch.target)

    def score(self, prediction: Tensor, batch: Batch) -> Score:
        right = prediction.argmax(-1) == batch.target
        return Score(right.sum(), torch.tensor(right.numel(), device=right.device))


def known_chance(task: Task) -> float | None:
    """The task's chance; None where that takes the data and these are not loaded."""
    try:
        return task.chance
    except RuntimeError:
        return None


def shuffled(count: int, number: int, size: int, seed: int) -> Tensor:
    """Row numbers of training batch ``number``: epoch after epoch, each in an order of its own."""
    per_epoch = count // size
    if per_epoch == 0:
        raise ValueError(
            f"a batch of {size} is more than the {count} training sequences; use a smaller batch"
        )
    epoch, within = divmod(number, per_epoch)
    return order(count, epoch, seed)[within * size : (within + 1) * size]


@lru_cache(maxsize=8)
def order(count: int, epoch: int, seed: int) -> Tensor:
    """A random order of ``count`` rows."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(count, generator=generator)


def generator_for(seed: int, number: int, device: torch.device) -> torch.Generator:
    """A random stream of its own for every batch of every seed."""
    mixed = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9) % (1 << 63)
    return torch.Generator(device).manual_seed(mixed)
