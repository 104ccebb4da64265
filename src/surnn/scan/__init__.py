"""Scan: how fast the recurrence is run. The one dispatch point over backends.

Every backend computes the same function and the same gradients as ``reference``, unless its own
page says otherwise (:mod:`surnn.scan.onepass` does). See :mod:`surnn.scan.contract` for shapes.
"""

from types import ModuleType
from typing import Literal

import torch
from torch import Tensor

from ..cells import Cell
from ..eager import has_triton, is_interpreted, is_transformed
from . import events, onepass, reference
from .contract import EventList as EventList
from .contract import ScanInputs as ScanInputs
from .contract import event_list as event_list

Backend = Literal["auto", "reference", "events", "onepass", "triton"]
BACKENDS: tuple[str, ...] = ("auto", "reference", "events", "onepass", "triton")


def check_backend(name: str) -> None:
    """Raise ValueError unless ``name`` is a backend that this installation has."""
    if name not in BACKENDS:
        raise ValueError(f"unknown backend {name!r}; choose one of {', '.join(BACKENDS)}")
    if name == "triton" and not has_triton():
        raise ValueError(
            "backend 'triton' needs the package triton, which is not installed (torch's builds for "
            "CUDA bring it); use backend='events', which computes the same on any device, or 'auto'"
        )


def choose(
    backend: str,
    cell: Cell,
    width: int,
    device: torch.device,
    dtype: torch.dtype,
    state_dtype: torch.dtype,
    one_pass: bool = False,
) -> str:
    """The backend that ``auto`` means for such heads; any other name is returned as it is.

    ``one_pass`` says whether the one-pass form would give all that is wanted, and units have gates
    of their own, so that hardly a step is without an event: then, for heads that the kernels do not
    take, a GPU runs it several times as fast as ``events``.
    """
    check_backend(backend)
    if backend != "auto":
        return backend
    if is_transformed():  # the others' operators know plain reverse mode only
        return "reference"
    if (
        device.type == "cuda"
        and has_triton()
        and _kernels().unsupported(cell, width, dtype, state_dtype, device) is None
    ):
        return "triton"
    return "onepass" if one_pass and device.type == "cuda" else "events"


def scan(inputs: ScanInputs, backend: str = "auto") -> tuple[Tensor, Tensor]:
    """Run the recurrence: outputs [T, B, N, D] and the last state [B, N, C, D]."""
    x, width = inputs.x, inputs.weight.shape[2]
    one_pass = inputs.gate.shape[-1] > 1 and not inputs.gate.requires_grad
    one_pass = one_pass and onepass.unsupported(inputs) is None
    chosen = choose(backend, inputs.cell, width, x.device, x.dtype, inputs.state.dtype, one_pass)
    if chosen == "reference":
        return reference.scan(inputs)
    if is_transformed():
        raise ValueError(
            f"backend {chosen!r} has no rules for torch.func (vmap, grad, jvp); use 'reference' or "
            "'auto', which then means it"
        )
    if chosen == "events":
        return events.scan(inputs)
    if chosen == "onepass":
        backend_module, reason = onepass, onepass.unsupported(inputs)
    else:
        backend_module = _kernels()
        reason = _no_device(x) or backend_module.unsupported(
            inputs.cell, width, x.dtype, inputs.state.dtype, x.device
        )
    if reason is not None:
        raise ValueError(f"backend {chosen!r} cannot run this layer: {reason}; use 'events'")
    return backend_module.scan(inputs)


def _kernels() -> ModuleType:
    # Not before it is needed: triton is not everywhere, and takes time to import.
    from . import kernels  # noqa: PLC0415

    return kernels


def _no_device(x: Tensor) -> str | None:
    if is_interpreted():
        if x.dtype == torch.bfloat16:
            return "Triton's interpreter computes wrongly in bfloat16; debug in float32 or float16"
        return None
    if x.is_cuda or x.device.type == "meta":
        return None
    return (
        f"its kernels run on a CUDA device and x is on {x.device} (to debug them on a CPU, set "
        "TRITON_INTERPRET=1 before Python starts)"
    )
