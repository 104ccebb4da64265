"""Types of the options that gates inherit, for type checkers and editors.

Their defaults stand in the signatures of the classes, their meaning in :class:`Gate` and the other
base classes; every gate shows all of its options in ``help()``.
"""

from typing import Literal, TypedDict

from ..surrogate import Mode, Surrogate

Granularity = Literal["auto", "unit", "head", "layer"] | int
Source = Literal["layer", "input"]


class SharedOptions(TypedDict, total=False):
    """Options of every gate."""

    granularity: Granularity
    always_on: float


class LearnedOptions(SharedOptions, total=False):
    """Options of every learned gate whose default is the same in all of them."""

    target_rate: float | None
    frozen: bool
    surrogate: Surrogate
    margin: float


class GateOptions(LearnedOptions, total=False):
    """Options of :class:`Gate`."""

    rate: float
    mode: Mode


class ClockOptions(GateOptions, total=False):
    """Options of :class:`ClockGate`."""

    horizon: int


class SinusoidOptions(TypedDict, total=False):
    """Options of :class:`Rhythm` that say which sinusoids there are."""

    frequencies: int
    min_period: float
    max_period: float | None


class RhythmOptions(SinusoidOptions, ClockOptions, total=False):
    """Options of :class:`Rhythm`."""

    train_frequencies: bool


class FixedRhythmOptions(SinusoidOptions, SharedOptions, total=False):
    """Options of :class:`Rhythm` that have a meaning without training."""

    horizon: int
    surrogate: Surrogate
    mode: Mode


class InputOptions(LearnedOptions, total=False):
    """Options of :class:`SeesInput`."""

    source: Source
    rate: float
    mode: Mode


def gate_width(granularity: Granularity, hidden_size: int, heads: int) -> int:
    """How many gates a layer has."""
    if granularity == "auto":
        granularity = "head" if heads > 1 else "unit"
    if granularity == "unit":
        return hidden_size
    if granularity == "head":
        return heads
    if granularity == "layer":
        return 1
    if isinstance(granularity, bool) or not isinstance(granularity, int) or granularity < 1:
        raise ValueError(
            f"granularity must be 'auto', 'unit', 'head', 'layer' or a number of units, "
            f"got {granularity!r}"
        )
    if hidden_size % granularity:
        raise ValueError(
            f"granularity: groups of {granularity} units do not divide hidden_size {hidden_size}; "
            f"choose a divisor of {hidden_size}"
        )
    return hidden_size // granularity
