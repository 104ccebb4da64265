"""The one dispatch point over backends: which one runs, and where sequences end.

Every backend computes the same function and the same gradients as ``reference``, unless its own
page says otherwise (:mod:`surnn.scan.onepass` does). See :mod:`surnn.scan.contract` for shapes.
"""

import logging
from functools import cache
from types import ModuleType
from typing import Literal

import torch
from torch import Tensor

from surnn.library import HOW_TO_BUILD
from surnn.nn.runtime import has_triton, is_interpreted, is_transformed

from . import events, native, onepass, reference
from .contract import ScanInputs, ScanTraits, step_mask

Backend = Literal["auto", "reference", "events", "onepass", "native", "triton"]
BACKENDS: tuple[str, ...] = ("auto", "reference", "events", "onepass", "native", "triton")


def check_backend(name: str) -> None:
    """Raise ValueError unless ``name`` is a backend that this installation has."""
    if name not in BACKENDS:
        raise ValueError(f"unknown backend {name!r}; choose one of {', '.join(BACKENDS)}")
    if name == "triton" and not has_triton():
        raise ValueError(
            "backend 'triton' needs the package triton, which is not installed (torch's CUDA "
            "builds include it); use backend='events', which computes the same on any device, or "
            "'auto'"
        )
    if name == "native" and not native.is_available():
        raise ValueError(
            "backend 'native' needs surnn's C library, which was not built when surnn was "
            f"installed: {HOW_TO_BUILD}; or use backend='events', which computes the same, or "
            "'auto'"
        )


def choose(backend: str, traits: ScanTraits) -> str:
    """The backend that runs a scan with these traits: ``auto`` resolved, other names unchanged.

    ``auto`` is ``reference`` under ``torch.func``, whose transforms the other operators do not
    support. It is ``events`` under ``torch.jit.trace``, which records torch's operators only. On a
    CPU it is ``native`` where the C code supports the scan, otherwise ``events``; exported programs
    have ``events``, which runs without the C library and is written as ONNX. On a GPU it is
    ``triton`` where the kernels support the scan. Where they do not, it is ``onepass`` if that
    computes all gradients there are (a GRU whose gates never need one) and the units of a head have
    several gates, so that hardly a step is without an event and ``events`` would be several times
    slower. Otherwise it is ``events``.

    The choice does not depend on the grad mode: a learned gate counts as learned in
    ``torch.no_grad`` too.
    """
    check_backend(backend)
    if backend != "auto":
        return backend
    if is_transformed():
        return "reference"
    if traits.device.type == "cpu" and not torch.compiler.is_exporting() and _runs_natively(traits):
        return "events" if torch.jit.is_tracing() else "native"
    if traits.device.type != "cuda" or torch.jit.is_tracing():
        return "events"
    if has_triton() and _triton().unsupported(traits) is None:
        return "triton"
    exact_onepass = not traits.learned_gate and onepass.unsupported(traits) is None
    return "onepass" if exact_onepass and traits.unit_gates else "events"


def chooses_kernels(backend: str, traits: ScanTraits) -> bool:
    """Whether the kernels on a GPU run such a scan, outside of compilers and transforms."""
    return choose(backend, traits) == "triton" and _unsupported("triton", traits) is None


def scan(inputs: ScanInputs, backend: str = "auto") -> tuple[Tensor, Tensor]:
    """Run the recurrence: outputs [T, B, N, D] and the last state [B, N, C, D]."""
    traits = inputs.traits
    chosen = choose(backend, traits)
    if not inputs.x.shape[1]:  # no sequences, no events
        chosen = "reference"
    if chosen != "reference" and is_transformed():
        raise ValueError(
            f"backend {chosen!r} does not support torch.func (vmap, grad, jvp); use 'reference' "
            "or 'auto', which chooses it there"
        )
    if chosen in ("native", "triton") and torch.jit.is_tracing():
        raise ValueError(
            f"backend {chosen!r} does not support torch.jit.trace, which records torch's operators "
            "only; use 'events' or 'auto', which chooses it there, or torch.export"
        )
    _check_unit_parameters(inputs)
    module = _module(chosen)
    reason = _unsupported(chosen, traits)
    if reason is not None:
        raise ValueError(f"backend {chosen!r} cannot run this layer: {reason}; use 'events'")
    if inputs.reset is not None:
        inputs = prepare_resets(inputs, listed=chosen in ("events", "triton"))
    if inputs.lengths is None:
        return module.scan(inputs)
    y, last = module.scan(inputs if chosen == "reference" else end_at_lengths(inputs))
    alive = step_mask(inputs.x.shape[0], inputs.lengths)
    return torch.where(alive[:, :, None, None], y, 0.0), last


def _check_unit_parameters(inputs: ScanInputs) -> None:
    names = inputs.cell.unit_parameters
    if inputs.unit.shape[0] != len(names):
        raise ValueError(
            f"cell {inputs.cell.name!r} needs {len(names)} parameters for each unit "
            f"({', '.join(names) or 'none'}), got {inputs.unit.shape[0]}; use its own layer, such "
            "as surnn.SuGRU for 'gru', or return them from _split_biases"
        )


def end_at_lengths(inputs: ScanInputs) -> ScanInputs:
    """The same scan with its lengths applied: gates are closed past them, and not ``relevant``.

    A closed unit carries its state to the end, so a backend needs no lengths. Spiking cells are the
    exception: their state decays while it is carried, and the decay stops at the sequence's length.
    Only they keep ``lengths``. ``reference`` does not run on this form: it stops each sequence at
    its length, as the definition says, and is what this function is tested against.
    """
    assert inputs.lengths is not None
    relevant = inputs.relevant
    if relevant is not None:
        relevant = relevant & step_mask(inputs.x.shape[0], inputs.lengths).unsqueeze(-1)
    return inputs.replace(
        gate=inputs.closed_past_length(),
        relevant=relevant,
        lengths=None if inputs.decay is None else inputs.lengths,
    )


def prepare_resets(inputs: ScanInputs, *, listed: bool) -> ScanInputs:
    """The same scan with resets as backends take them.

    A reset before the first step zeroes the initial state here, and resets past a sequence's length
    are dropped. A reset is an event of one sequence, so backends whose events are lists need a list
    (``listed``) for each sequence: their gate is expanded to the batch.
    """
    reset, gate, relevant = inputs.reset, inputs.gate, inputs.relevant
    assert reset is not None
    state = torch.where(reset[0][:, None, None, None], 0.0, inputs.state)
    if inputs.lengths is not None:
        reset = reset & step_mask(reset.shape[0], inputs.lengths)
    if listed:
        gate = gate.expand(-1, reset.shape[1], -1, -1)
        relevant = None if relevant is None else relevant.expand(-1, reset.shape[1], -1)
    return inputs.replace(reset=reset, state=state, gate=gate, relevant=relevant)


def _module(backend: str) -> ModuleType:
    if backend == "triton":
        return _triton()
    modules = {"reference": reference, "events": events, "native": native, "onepass": onepass}
    return modules[backend]


def _unsupported(backend: str, traits: ScanTraits) -> str | None:
    """Why ``backend`` cannot run such a scan, or None."""
    if backend == "onepass":
        return onepass.unsupported(traits)
    if backend == "native":
        return native.unsupported(traits)
    if backend == "triton":
        return _no_device(traits) or _triton().unsupported(traits)
    return None


def _runs_natively(traits: ScanTraits) -> bool:
    if native.is_available():
        return native.unsupported(traits) is None
    if not torch.compiler.is_compiling():
        _say_that_native_is_missing()
    return False


@cache
def _say_that_native_is_missing() -> None:
    logging.getLogger("surnn").warning(
        "surnn's C library was not built when surnn was installed, so layers run on backend "
        "'events', which computes the same and is several times slower on a CPU: %s",
        HOW_TO_BUILD,
    )


def _triton() -> ModuleType:
    # Imported on first use: triton is not installed everywhere, and takes time to import.
    from . import triton  # noqa: PLC0415

    return triton


def _no_device(traits: ScanTraits) -> str | None:
    if is_interpreted():
        if traits.dtype == torch.bfloat16:
            return "Triton's interpreter is wrong in bfloat16; debug in float32 or float16"
        return None
    if traits.device.type in ("cuda", "meta"):
        return None
    return (
        f"its kernels run on a CUDA device and x is on {traits.device} (to debug them on a CPU, "
        "set TRITON_INTERPRET=1 before Python starts)"
    )
