"""Gates: when a unit updates. One family per file; :mod:`surnn.gates.base` has the protocol."""

from .base import Gate as Gate
from .base import Granularity as Granularity
from .base import Schedule as Schedule
from .clock import ClockGate as ClockGate
from .clock import FixedRhythm, Rhythm, Spectral, Spline, WarpedRhythm
from .fixed import AlwaysOpen, Cycles, EveryN, FixedRandom, Table
from .inputs import InputGate, SSMGate, Threshold
from .inputs import SeesInput as SeesInput

GATES: dict[str, type[Gate]] = {
    "rhythm": Rhythm,
    "warped": WarpedRhythm,
    "spline": Spline,
    "spectral": Spectral,
    "input": InputGate,
    "ssm": SSMGate,
    "open": AlwaysOpen,
    "every_n": EveryN,
    "cycles": Cycles,
    "fixed_rhythm": FixedRhythm,
    "fixed_random": FixedRandom,
    "threshold": Threshold,
    "table": Table,
}


def as_gate(gate: "Gate | str") -> Gate:
    """A gate from a gate or its name."""
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
