"""The values of a forward pass, without their numbers: layouts, sizes and shifts in time.

A layout has a letter for each dimension: B batch, T time, F features. ``BTF`` is what a layer with
``batch_first=True`` reads, ``BFT`` what ``nn.Conv1d`` reads. A signal without T is the value at the
last time step of a sequence. A stream computes it at every time step, as if the sequence ended
there.
"""

from dataclasses import dataclass, replace
from typing import Any

from surnn.errors import SurnnError

INPUT_LAYOUTS = ("BTF", "TBF", "BFT", "BT", "TB")
"""Layouts that the input of a module may have; the first that fits is used."""


class NotExportable(SurnnError, TypeError):
    """A module that cannot run as a stream, or that a format cannot hold: where, and why."""


class WrongLayout(NotExportable):
    """Dimensions in an order that a module does not read; another layout of the input may fit."""


@dataclass
class Width:
    """The number of features, once a layer with a fixed input size has read them.

    Signals that have the same number of features for certain share one object.
    """

    value: int | None = None

    def expect(self, size: int) -> None:
        """Set the number, or check it."""
        if self.value is None:
            self.value = size
        if self.value != size:
            raise NotExportable(f"it reads {size} features, but gets {self.value}")

    def known(self) -> int:
        """The number."""
        if self.value is None:
            raise NotExportable(
                "the number of features is unknown here; begin with a module that has a fixed "
                "input size, such as nn.Linear"
            )
        return self.value


@dataclass(frozen=True)
class Signal:
    """A value that the program computes at each time step.

    The item at index i of the time dimension belongs to time step ``i - lead``.
    """

    value: int
    """Its number in the program."""
    layout: str
    width: Width
    lead: int = 0
    """Zeros before the first time step, which padding added. Only a convolution may read them."""
    trail: int = 0
    """Items after the last time step, from a convolution that pads both sides."""

    def axis(self, dim: int) -> str:
        """The letter of a dimension."""
        if not -len(self.layout) <= dim < len(self.layout):
            raise WrongLayout(f"it uses dimension {dim} of a tensor {self.shape_text()}")
        return self.layout[dim]

    def expect_layout(self, *layouts: str) -> None:
        """Raise if the layout is none of these."""
        if self.layout in layouts:
            return
        texts = " or ".join(_shape_text(layout) for layout in layouts)
        after = "" if "T" in self.layout else ", the value at the last time step"
        raise WrongLayout(f"it reads {texts}, but gets {self.shape_text()}{after}")

    def expect_features_last(self) -> None:
        """Raise if the last dimension is not the features."""
        if self.layout[-1] != "F":
            raise WrongLayout(
                f"it reads features in the last dimension, but gets {self.shape_text()}"
            )

    def expect_on_time(self) -> None:
        """Raise if the time dimension has more items than the sequence has time steps."""
        if self.lead or self.trail:
            raise NotExportable(
                f"it reads a sequence with {self.lead} extra items at its beginning and "
                f"{self.trail} at its end, which padding added; cut them off before it"
            )

    def expect_no_lead(self) -> None:
        """Raise if there are zeros at the beginning that only a convolution may read."""
        if self.lead:
            raise NotExportable(
                f"it reads {self.lead} zeros from padding before the first time step; a stream has "
                "none: apply the padding directly before the convolution"
            )

    def with_layout(self, layout: str) -> "Signal":
        return replace(self, layout=layout)

    def shape_text(self) -> str:
        return _shape_text(self.layout)


def _shape_text(layout: str) -> str:
    words = {"B": "batch", "T": "time", "F": "features"}
    return f"[{', '.join(words[axis] for axis in layout)}]"


@dataclass(frozen=True)
class Steps:
    """The length of a sequence plus ``extra``: the size of a time dimension."""

    extra: int

    def __add__(self, other: int) -> "Steps":
        return Steps(self.extra + other)

    def __sub__(self, other: int) -> "Steps":
        return Steps(self.extra - other)

    __radd__ = __add__


class BatchSize:
    """The size of a batch dimension."""


@dataclass(frozen=True)
class Parts:
    """Several values, as a tuple or list: a layer's output and state, or chunks."""

    items: tuple[Any, ...]


@dataclass(frozen=True)
class Hidden:
    """The hidden state h_n [layers, batch, features] of a recurrent layer after the sequence."""

    last: Signal
    """That of the last layer, which is its output at the last time step."""
    layers: int

    def select(self, index: Any) -> Signal:
        """One layer of it."""
        if index not in (-1, self.layers - 1):
            raise NotExportable(
                f"it reads layer {index} of a hidden state; only the last one, h_n[-1], is an "
                "output of the layer"
            )
        return self.last


@dataclass(frozen=True)
class Unavailable:
    """A value that a stream does not have; only its use is an error."""

    reason: str


def is_abstract(value: Any) -> bool:
    """Whether a value depends on the input."""
    if isinstance(value, list | tuple):
        return any(is_abstract(item) for item in value)
    if isinstance(value, slice):
        return any(is_abstract(part) for part in (value.start, value.stop, value.step))
    return isinstance(value, Signal | Steps | BatchSize | Parts | Hidden | Unavailable)
