"""Scan: how fast the recurrence is run. The one dispatch point over backends.

Every backend computes the same function and the same gradients as ``reference``, unless its own
page says otherwise (:mod:`surnn.scan.onepass` does). See :mod:`surnn.scan.contract` for shapes.
"""

from typing import Literal

from torch import Tensor

from . import events, onepass, reference
from .contract import EventList as EventList
from .contract import ScanInputs as ScanInputs
from .contract import event_list as event_list

Backend = Literal["auto", "reference", "events", "onepass", "triton"]
BACKENDS: tuple[str, ...] = ("auto", "reference", "events", "onepass")


def check_backend(name: str) -> None:
    """Raise ValueError unless ``name`` is a backend that this installation has."""
    if name == "triton":
        raise ValueError(
            "backend 'triton' is not in this version of surnn; use backend='events', which "
            "computes the same on any device, or 'auto'"
        )
    if name not in BACKENDS:
        raise ValueError(f"unknown backend {name!r}; choose one of {', '.join(BACKENDS)}")


def choose(backend: str) -> str:
    """The backend that ``auto`` means; any other name is returned as it is."""
    check_backend(backend)
    return "events" if backend == "auto" else backend


def scan(inputs: ScanInputs, backend: str = "auto") -> tuple[Tensor, Tensor]:
    """Run the recurrence: outputs [T, B, N, D] and the last state [B, N, C, D]."""
    chosen = choose(backend)
    if chosen == "reference":
        return reference.scan(inputs)
    if chosen == "events":
        return events.scan(inputs)
    reason = onepass.unsupported(inputs)
    if reason is not None:
        raise ValueError(f"backend 'onepass' cannot run this layer: {reason}; use 'events'")
    return onepass.scan(inputs)
