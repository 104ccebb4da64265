"""The interface of a benchmark: inputs, targets, loss, metric, data.

A task is a frozen dataclass. Its fields are its options and become flags. It declares its input and
output, loads or generates its data once (:meth:`Task.prepare`), and then returns batches by
*number*: batch k of a split is a pure function of (seed, k). Training can therefore stop and resume
anywhere, and every process of a distributed run can take its own rows of the same batch.

Shapes: B sequences, T time steps. Inputs are batch first.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from surnn.models.signature import Output, Tokens, Values

from .sound import Sound

Split = Literal["train", "valid", "test"]


class Batch(NamedTuple):
    """Sequences and their targets."""

    x: Tensor
    """[B, T] tokens or [B, T, features] values."""
    target: Tensor
    """[B], [B, T] or [B, T, size], integers or floats; the task defines their meaning."""
    lengths: Tensor | None = None
    """[B] time steps of each right-padded sequence; None means all T. [B, 2] for pairs."""
    kinds: Tensor | None = None
    """[B, T] the kind of token at each time step, an index into :attr:`Task.kinds`. Update rates
    are logged for each kind."""
    starts_stream: Tensor | None = None
    """One bool, for stateful tasks: the batch starts from the initial state."""
    reset: Tensor | None = None
    """[B, T] bool: the sequence restarts before this time step; None means nowhere."""

    @property
    def resets(self) -> dict[str, Tensor]:
        """The argument ``reset`` of a model, if there is one."""
        return {} if self.reset is None else {"reset": self.reset}


@dataclass(frozen=True)
class Score:
    """A metric as sums over batches: ``total / count``, or its root or exponential."""

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

    Class attributes describe the benchmark; methods make its batches and compute loss and metric.
    ``prepare`` is called once, before any method that needs data.
    """

    name: ClassVar[str]
    """The name on the command line."""
    metric: ClassVar[str] = "accuracy"
    higher_is_better: ClassVar[bool] = True
    paper: ClassVar[dict[str, float]] = {}
    """The paper's numbers for the metric, by model."""
    kinds: ClassVar[tuple[str, ...]] = ()
    """Names of the kinds of token; :attr:`Batch.kinds` holds indices into it."""
    looks_ahead: ClassVar[bool] = False
    """Whether targets are future inputs, so that a bidirectional model would see them."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Names of data sets in :mod:`surnn.data`; empty for generated tasks."""

    # ------------------------------------------------------------ input and output

    @property
    @abstractmethod
    def input(self) -> Tokens | Values:
        """The kind and size of the input."""

    @property
    @abstractmethod
    def output(self) -> Output:
        """The kind and size of the output."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """T, the longest sequence; a clock gate's horizon."""

    @property
    def sound(self) -> Sound | None:
        """How a model listens to a microphone, for exports; None if its input is not sound."""
        return None

    @property
    def is_stateful(self) -> bool:
        """Whether a batch continues the one before it, with the model's last state.

        Such batches all have one size. ``Batch.starts_stream`` marks those that start from the
        initial state.
        """
        return False

    @property
    def has_resets(self) -> bool:
        """Whether sequences contain resets: every batch then has a :attr:`Batch.reset`."""
        return False

    @property
    def easy_batches(self) -> int:
        """The number of training batches at the start that are easier than the task itself."""
        return 0

    def as_tested(self) -> "Task":
        """The task without options that affect training alone."""
        return self

    def files(self) -> dict[str, str]:
        """Files that a trained model needs besides its weights, as texts by name. They are stored
        in the run's folder."""
        return {}

    def named_files(self) -> tuple[str, ...]:
        """Paths in the options that :meth:`prepare` reads. Those of a run that comes from somebody
        else are read only if the user names them, or their folder."""
        return ()

    @property
    @abstractmethod
    def chance(self) -> float:
        """The metric of the best constant answer. May need the data."""

    # ------------------------------------------------------------ its data

    def complete(self, data: Path | None = None) -> "Task":
        """The task with all options that its data determine; reads them if some are open."""
        return self

    def input_scale(self) -> tuple[Any, Any] | None:
        """Means and standard deviations of the features in the training part, if the model
        standardises its input (``Values.scaled``). Needs the data."""
        return None

    def output_scale(self) -> tuple[Any, Any] | None:
        """The same for the numbers to predict (``Output.scaled``)."""
        return None

    def facts(self) -> Any:
        """Numbers about the prepared data from which options are chosen; None if there are
        none. See ``train/automatic.py``."""
        return None

    def data_notes(self) -> Iterable[str]:
        """Sentences about the prepared data that a user should see before training."""
        return ()

    def prepare(self, device: torch.device, data: Path | None = None) -> None:  # noqa: B027
        """Load or generate the data on ``device``. Generated tasks may do nothing.

        ``data`` is a folder that is searched before the usual places.
        """

    def check_data_unchanged(self, run: Path) -> None:  # noqa: B027
        """Raise ValueError if the prepared data are not those of the run in this folder.

        For data that a user may change; data sets have their own checksums.
        """

    @abstractmethod
    def size(self, split: Split) -> int | None:
        """The number of sequences in a split; None if training batches are generated without
        end."""

    @abstractmethod
    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        """Batch ``number`` of ``size`` sequences.

        Training batches are shuffled in every epoch, from ``seed``; an epoch's last, smaller batch
        is dropped. Batches of the other splits go through a fixed set in one order; the last may be
        smaller. The same arguments give the same batch on the same device.
        """

    # ------------------------------------------------------------ how it is judged

    @abstractmethod
    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """The training loss, a mean over the batch. ``prediction`` is [B, size] or [B, T, size]."""

    def weight(self, batch: Batch) -> Tensor | float:
        """The denominator of the mean in :meth:`loss`, the batch's weight relative to others.

        The loss of a batch is the weighted mean over its parts, however it is divided. The default
        is the number of sequences; a loss over time steps that may be masked or have weights
        returns their sum.
        """
        return float(len(batch.x))

    @abstractmethod
    def score(self, prediction: Tensor, batch: Batch) -> Score:
        """The metric, as sums over the batch."""

    def details(self, prediction: Tensor, batch: Batch) -> dict[str, Score]:
        """Further numbers by name, logged with the metric."""
        return {}


class Classification(Task):
    """Base of tasks with one label per sequence: cross entropy and accuracy."""

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        return functional.cross_entropy(prediction.float(), batch.target)

    def score(self, prediction: Tensor, batch: Batch) -> Score:
        right = prediction.argmax(-1) == batch.target
        return Score(right.sum(), torch.tensor(right.numel(), device=right.device))


def known_chance(task: Task) -> float | None:
    """The task's chance; None if it depends on data that are not loaded."""
    try:
        return task.chance
    except RuntimeError:
        return None


def shuffled(count: int, number: int, size: int, seed: int) -> Tensor:
    """Row numbers of training batch ``number``; each epoch has its own order."""
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
    """A random generator for every batch of every seed."""
    mixed = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9) % (1 << 63)
    return torch.Generator(device).manual_seed(mixed)
