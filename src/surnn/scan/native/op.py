"""The native scan as ``torch.library`` operators, with fakes and gradients."""

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from surnn.nn.cells.spiking import ALIF, LIF
from surnn.nn.runtime import is_traced

from ..contract import ScanInputs, ScanOperands
from ..double_backward import differentiate_once
from ..operators import (
    COUNT,
    DIFFERENTIABLE,
    GATE,
    argument_gradients,
    define_operator,
    from_flat,
    save_operands,
    saved_operands,
)
from .library import Scan, scan_library
from .support import SAVED, SLACK, SURROGATES, cell_number

# Floats of one component that a chunk of the backward pass holds: about a core's second cache.
CHUNK_FLOATS = 1 << 17
LEAST_CHUNK = 32
# A thread must have this many multiplications to do to be worth its start.
WORK_PER_THREAD = 1 << 20


def chunk_steps(batch: int, units: int) -> int:
    """Time steps that the backward pass processes together. Both passes must agree on it."""
    return max(LEAST_CHUNK, CHUNK_FLOATS // max(batch * units, 1))


class _Call:
    """The arguments of one call of the C library; keeps its tensors alive."""

    def __init__(self, operands: ScanOperands, state: Tensor) -> None:
        steps, batch, features = operands.x.shape
        heads, drives, width, _ = operands.weight.shape
        self.drives = drives
        cell = operands.cell
        _check(operands, state)
        self.tensors: list[Tensor] = []
        self.scan = Scan(
            steps=steps, batch=batch, heads=heads, width=width, features=features,
            cell=cell_number(cell), gate_batch=operands.gate.shape[1],
            gate_width=operands.gate.shape[3], binary=operands.binary, blocks=1, threads=1,
            chunk=chunk_steps(batch, heads * width),
        )  # fmt: skip
        if isinstance(cell, LIF | ALIF):
            self.scan.threshold = cell.threshold
            self.scan.beta = cell.beta if isinstance(cell, ALIF) else 0.0
            self.scan.slope = cell.surrogate.slope
            self.scan.surrogate = SURROGATES.index(cell.surrogate.kind)
        self.add(
            x=operands.x, weight=operands.weight, bias=operands.bias, unit=operands.unit,
            recurrent=operands.recurrent, gate=operands.gate, decay=operands.decay, state=state,
        )  # fmt: skip
        if operands.decay is not None and operands.lengths is not None:
            self.add(lengths=operands.lengths.long())
        if operands.relevant is not None:
            self.add(relevant=operands.relevant.expand(steps, operands.gate.shape[1], heads))
        self.add(reset=operands.reset)

    def add(self, **tensors: Tensor | None) -> None:
        """Pass these tensors."""
        for name, tensor in tensors.items():
            if tensor is not None:
                self.tensors.append(tensor.contiguous())
                setattr(self.scan, name, self.tensors[-1].data_ptr())

    def count_updates(self) -> int:
        """Pairs of a unit and a sequence that update, over all steps."""
        self.scan.updates = _library().surnn_scan_updates(ctypes.byref(self.scan))
        return self.scan.updates

    def use_threads(self) -> None:
        """Choose the number of threads; results do not depend on it."""
        work = self.scan.updates * self.drives * (self.scan.features + self.scan.width)
        self.scan.threads = max(1, min(torch.get_num_threads(), work // WORK_PER_THREAD))

    def divide_batch(self) -> int:
        """Divide the batch into as many blocks as heads leave threads idle; returns the number."""
        parts = -(-self.scan.threads // self.scan.heads)
        self.scan.blocks = max(1, min(parts, self.scan.batch // 2))
        return self.scan.blocks

    def run(self, name: str) -> None:
        """Call ``surnn_scan_name``."""
        if getattr(_library(), f"surnn_scan_{name}")(ctypes.byref(self.scan)):
            raise MemoryError(f"no memory for the {name} pass of the native scan")


def _check(operands: ScanOperands, state: Tensor) -> None:
    """Raise unless dtypes and shapes are those of the contract: the C code trusts them."""
    x, cell, gate = operands.x, operands.cell, operands.gate
    steps, batch, features = x.shape
    heads, _, width, _ = operands.weight.shape
    drives, components = cell.drives, len(cell.components)
    gate_batch, gate_width = 1 if gate.shape[1] == 1 else batch, 1 if gate.shape[-1] == 1 else width
    floats = {
        "x": (x, (steps, batch, features)),
        "weight": (operands.weight, (heads, drives, width, features)),
        "bias": (operands.bias, (heads, drives, width)),
        "recurrent": (operands.recurrent, (heads, drives, width, width)),
        "unit": (operands.unit, (len(cell.unit_parameters), heads, width)),
        "gate": (gate, (steps, gate_batch, heads, gate_width)),
        "decay": (operands.decay, (heads, components, width)),
        "state": (state, (batch, heads, components, width)),
    }
    for name, (tensor, shape) in floats.items():
        if tensor is not None and (tensor.dtype != torch.float32 or tensor.shape != shape):
            raise ValueError(
                f"the native scan takes {name} as float32 {list(shape)}, got {tensor.dtype} "
                f"{list(tensor.shape)}"
            )
    lengths, reset = operands.lengths, operands.reset
    if lengths is not None and lengths.shape != (batch,):
        raise ValueError(f"the native scan takes {batch} lengths, got {list(lengths.shape)}")
    for name, mask in (("reset", reset), ("relevant", operands.relevant)):
        if mask is not None and mask.dtype != torch.bool:
            raise ValueError(f"the native scan takes {name} as bool, got {mask.dtype}")
    if reset is not None and reset.shape != (steps, batch):
        raise ValueError(f"the native scan takes reset [T, B], got {list(reset.shape)}")


def _library() -> ctypes.CDLL:
    library = scan_library()
    assert library is not None, "dispatch checks that the library is there"
    return library


# ---------------------------------------------------------------------------- forward


def _empty_results(
    operands: ScanOperands, state: Tensor, updates: int, keep: bool
) -> tuple[Tensor, ...]:
    """Outputs, last state; for the backward pass: saved activations and new outputs of updates,
    states before each chunk, the number of blocks. It does not read the outputs, which the user
    may change in place."""
    x, number = operands.x, cell_number(operands.cell)
    steps, batch = x.shape[:2]
    heads, _, width, _ = operands.weight.shape
    chunks = -(-steps // chunk_steps(batch, heads * width)) if keep else 0
    return (
        x.new_empty(steps, batch, heads, width),
        torch.empty_like(state, memory_format=torch.contiguous_format),
        x.new_empty(updates * SAVED[number] + SLACK if keep else 0),
        x.new_empty(chunks, state.shape[2], batch, heads, width),
        torch.empty(1, dtype=torch.int64, device=x.device),
    )


def _forward(operands: ScanOperands, state: Tensor, room: int, keep: bool) -> tuple[Tensor, ...]:
    call = _Call(operands, state)
    updates = call.count_updates()
    if keep and room and updates > room:
        raise ValueError(f"{updates} updates do not fit into {room}; allocate more")
    y, last, saved, marks, blocks = _empty_results(operands, state, room or updates, keep)
    call.add(y=y, last=last)
    if keep:
        call.add(saved=saved, marks=marks)
        saved[-SLACK:] = 0
    call.use_threads()
    blocks.fill_(call.divide_batch())
    if y.numel():
        call.run("forward")
    return y, last, saved, marks, blocks


def _fake_forward(
    operands: ScanOperands, state: Tensor, room: int, keep: bool
) -> tuple[Tensor, ...]:
    return _empty_results(operands, state, room, keep)


# See _empty_results.
native_forward = define_operator(
    "native", _forward, _fake_forward, "Tensor state, SymInt room, bool keep", results=5
)

# ---------------------------------------------------------------------------- backward


def _empty_gradients(operands: ScanOperands, state: Tensor, needs: list[bool]) -> list[Tensor]:
    """Gradients by x, weight, bias, recurrent, unit, gate, decay and state; empty if not needed."""
    heads, _, width, _ = operands.weight.shape
    like = [v for v in operands.tensors()[: GATE + 1] if v is not None]
    shapes = [*(v.shape for v in like), (heads, state.shape[2], width), state.shape]
    required = [needs[0], True, True, True, True, needs[GATE], needs[GATE + 1], True]
    grads = [
        state.new_empty(shape if need else (0,))
        for shape, need in zip(shapes, required, strict=True)
    ]
    for grad in grads if not operands.x.numel() else ():  # otherwise C writes all of them
        grad.zero_()
    return grads


def _backward(
    operands: ScanOperands,
    grad_y: Tensor,
    grad_last: Tensor,
    state: Tensor,
    saved: Tensor,
    marks: Tensor,
    blocks: Tensor,
    needs: list[bool],
) -> tuple[Tensor, ...]:
    call = _Call(operands, state)
    grads = _empty_gradients(operands, state, needs)
    names = ("x", "weight", "bias", "recurrent", "unit", "gate", "decay", "state")
    call.add(saved=saved, marks=marks, grad_y=grad_y, grad_last=grad_last)
    call.add(**{f"by_{n}": g for n, g in zip(names, grads, strict=True) if g.numel()})
    if not needs[GATE]:
        call.scan.by_gate = None
    call.scan.blocks = int(blocks.item())
    call.count_updates()
    call.use_threads()
    if grad_y.numel():
        call.run("backward")
    return tuple(grads)


def _fake_backward(
    operands: ScanOperands, _grad_y: Tensor, _grad_last: Tensor, state: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    return tuple(_empty_gradients(operands, state, rest[-1]))


# Gradients by x, weight, bias, recurrent, unit, gate, decay and state.
native_backward = define_operator(
    "native_backward",
    _backward,
    _fake_backward,
    "Tensor grad_y, Tensor grad_last, Tensor state, Tensor saved, Tensor marks, Tensor blocks, "
    "bool[] needs",
    results=8,
)

# ---------------------------------------------------------------------------- autograd


def _save(ctx, inputs, output) -> None:
    _, _, saved, marks, blocks = output
    save_operands(ctx, inputs, inputs[COUNT], saved, marks, blocks)


def _gradients(ctx, run: Callable, grad_y: Tensor, grad_last: Tensor):
    """Gradients by the forward pass's arguments; ``run`` takes those of the operator."""
    needs = ctx.needs_input_grad
    operands, saved = saved_operands(ctx)
    differentiable = list(needs[:DIFFERENTIABLE])
    *grads, by_state = run(*operands, grad_y, grad_last, *saved, differentiable)
    return argument_gradients(needs, grads, by_state)


native_forward.register_autograd(
    lambda ctx, grad_y, grad_last, *_: _gradients(ctx, native_backward, grad_y, grad_last),
    setup_context=_save,
)
differentiate_once(native_backward, "native")

_eager_backward = from_flat(_backward)


class _EagerScan(torch.autograd.Function):
    """The scan without operators: their dispatch takes as long as a short sequence."""

    @staticmethod
    def forward(ctx, *arguments):  # type: ignore[override]
        output = _forward(ScanOperands.from_flat(arguments[:COUNT]), *arguments[COUNT:])
        _save(ctx, arguments, output)
        return output[:2]

    @staticmethod
    def backward(ctx, *grads):  # type: ignore[override]
        # Only the operator refuses gradients of gradients with a message of ours.
        run = native_backward if torch.is_grad_enabled() else _eager_backward
        return _gradients(ctx, run, *grads)


# ---------------------------------------------------------------------------- public


def scan(inputs: ScanInputs) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, N, D] and the last state [B, N, C, D].

    With x in half precision (autocast), x and the input weights are rounded to it, and their
    products are summed in float32. Other operands of another dtype, such as a single weight in
    bfloat16, are computed in float32.
    """
    half = inputs.x.dtype
    if half != torch.float32:
        rounded = {name: getattr(inputs, name).to(half).float() for name in ("x", "weight", "bias")}
        y, last = scan(inputs.replace(**rounded))
        return y.to(half), last
    names = ("weight", "bias", "recurrent", "unit", "gate", "decay")
    other = {n: v for n in names if (v := getattr(inputs, n)) is not None and v.dtype != half}
    if other:
        inputs = inputs.replace(**{name: value.float() for name, value in other.items()})
    steps, batch = inputs.x.shape[:2]
    heads, _, width, _ = inputs.weight.shape
    # In a traced graph no size may depend on data, so it allocates room for all units.
    room = steps * batch * heads * width if is_traced(inputs.x) else 0
    tensors = (*inputs.tensors(), inputs.state)
    keep = torch.is_grad_enabled() and any(v is not None and v.requires_grad for v in tensors)
    # Graphs, and modes such as a counter of operations, record operators.
    if room or torch._C._len_torch_dispatch_stack():
        y, last, *_ = native_forward(*inputs.flat(), inputs.state, room, keep)
    elif keep:
        y, last = _EagerScan.apply(*inputs.flat(), inputs.state, 0, True)  # type: ignore[misc]
    else:
        y, last, *_ = _forward(inputs, inputs.state, 0, False)
    return y, last
