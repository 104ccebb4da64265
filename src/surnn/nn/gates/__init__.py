"""Gates: when does a unit update? One family per file, the protocol in ``base``."""

from collections.abc import Sequence
from typing import Any

from .annealing import anneal as anneal
from .annealing import noise_at as noise_at
from .base import Gate as Gate
from .base import Schedule as Schedule
from .clock import ClockGate as ClockGate
from .clock import FixedRhythm, Rhythm, Spectral, Spline, WarpedRhythm
from .fixed import AlwaysOpen, Cycles, EveryN, FixedRandom, Table
from .inputs import FullGate, InputGate, SSMGate, Threshold
from .inputs import SeesInput as SeesInput
from .options import Granularity as Granularity

GATES: dict[str, type[Gate]] = {
    "rhythm": Rhythm,
    "warped": WarpedRhythm,
    "spline": Spline,
    "spectral": Spectral,
    "input": InputGate,
    "ssm": SSMGate,
    "full": FullGate,
    "open": AlwaysOpen,
    "every_n": EveryN,
    "cycles": Cycles,
    "fixed_rhythm": FixedRhythm,
    "fixed_random": FixedRandom,
    "threshold": Threshold,
    "table": Table,
}


def as_gate(gate: "Gate | str") -> Gate:
    """The gate itself, or a new one by its name."""
    if isinstance(gate, Gate):
        return gate
    if isinstance(gate, type) and issubclass(gate, Gate):
        raise TypeError(f"gate is the class {gate.__name__}; pass an instance: {gate.__name__}()")
    if not isinstance(gate, str):
        raise TypeError(
            f"gate must be a surnn gate or one of the names {', '.join(GATES)}, "
            f"got {type(gate).__name__}"
        )
    if gate not in GATES:
        raise ValueError(f"unknown gate {gate!r}; choose one of {', '.join(GATES)}")
    return GATES[gate]()


def one_per_layer(gate: Any, layers: int) -> list[Gate]:
    """The gates of all layers: ``gate`` for each, or its items."""
    if isinstance(gate, Gate | str) or not isinstance(gate, Sequence):
        return [as_gate(gate)] * layers
    if len(gate) != layers:
        raise ValueError(
            f"got {len(gate)} gates for {layers} layers; pass one gate, or one for each layer"
        )
    return [as_gate(g) for g in gate]
