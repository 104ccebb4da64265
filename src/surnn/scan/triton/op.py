"""The kernels as ``torch.library`` operators, with fakes and gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from surnn.nn.runtime import on_its_device

from ..contract import ScanOperands
from ..double_backward import differentiate_once
from ..operators import (
    COUNT,
    GATE,
    UNIT,
    argument_gradients,
    define_operator,
    from_flat,
    save_operands,
    saved_operands,
)
from . import launch
from .lists import DeviceEventList, make_lists
from .sizes import ScanLaunch, by_drive_like

# ---------------------------------------------------------------------------- forward


@on_its_device
def forward_pass(
    operands: ScanOperands, state: Tensor, precision: str, recompute: bool, capacity: int
) -> tuple[Tensor, ...]:
    """Outputs and last state; saved, states and drives at events and the event lists.

    ``capacity`` is the number of list positions to allocate; 0 allocates as many as needed.
    """
    lists, fits = make_lists(operands.gate, capacity or None, operands.reset)
    if fits is not None:
        state = torch.where(fits, state, torch.nan)
    scan = ScanLaunch.prepare(operands, lists, precision)
    drives = launch.project(scan)
    states, last = launch.forward_over_events(scan, drives, state.contiguous())
    y = launch.outputs(scan, states)
    if fits is not None and operands.decay is not None:
        y = torch.where(fits, y, torch.nan)  # without events, spikes would be 0 and look right
    if recompute:
        drives = drives.new_empty(0)
    return y, last, states, drives, lists.index, lists.time, lists.sequence, lists.first


def _fake_forward(
    operands: ScanOperands, state: Tensor, _precision: str, recompute: bool, capacity: int
) -> tuple[Tensor, ...]:
    x, gate = operands.x, operands.gate
    heads, drives, width, _ = operands.weight.shape
    shared = gate.shape[1] == 1
    rows = capacity * (x.shape[1] if shared else 1)
    return (
        x.new_empty(*x.shape[:2], heads, width),
        torch.empty_like(state, memory_format=torch.contiguous_format),
        state.new_empty(rows, *state.shape[2:]),
        x.new_empty(0) if recompute else x.new_empty(rows, drives, width),
        gate.new_empty(gate.shape[:3], dtype=torch.int32),
        gate.new_empty(capacity, dtype=torch.int32),
        gate.new_empty(0 if shared else capacity, dtype=torch.int32),
        gate.new_empty(heads * gate.shape[1] + 1, dtype=torch.int64),
    )


triton_forward = define_operator(
    "triton",
    forward_pass,
    _fake_forward,
    "Tensor state, str precision, bool recompute, SymInt capacity",
    results=8,
)

# ---------------------------------------------------------------------------- backward


@on_its_device
def backward_pass(
    operands: ScanOperands, grad_y: Tensor, grad_last: Tensor, *arguments: Any
) -> tuple[Tensor, ...]:
    """Gradients by x, weight, bias, recurrent, unit, gate, decay and state; empty if not needed.

    The other ``arguments`` are what the forward pass saved (states, drives, event lists), the
    precision, and whether gradients by x and by the gate are needed.
    """
    states, drives, *lists, precision, x_needs_grad, gate_needs_grad = arguments
    scan = ScanLaunch.prepare(operands, DeviceEventList(*lists), precision)
    grad_y = grad_y.contiguous()
    if not drives.numel():
        drives = launch.project(scan)
    work, products = launch.linearize(scan, drives, states, gate_needs_grad)
    inflow, tail, later = launch.segment_sums(scan, grad_y, states.shape[1], gate_needs_grad)
    grad_state, grad_unit, grad_decay = launch.backward_over_events(
        scan, work, states, inflow, grad_last.contiguous()
    )
    x, unit, gate, decay = operands.x, operands.unit, operands.gate, operands.decay
    grad_gate = gate.new_empty(0)
    if gate_needs_grad:
        by_gate = launch.gate_gradient(scan, grad_y, states, products, inflow, tail, later)
        grad_gate = by_gate.to(gate.dtype)
    del products, inflow, tail, later  # freed before the next large tensor
    grad_x = launch.input_gradient(scan, work) if x_needs_grad else x.new_empty(0)
    grad_weight, grad_bias, grad_recurrent, grad_inner = launch.weight_gradients(scan, work, states)
    if unit.shape[0] and not scan.kernel_cell.spiking:  # the GRU's b_hn
        grad_unit = torch.empty_like(unit).copy_(grad_inner[:, -1])
    # Copies, because the four lie in one buffer, and an operator's results must not.
    return (
        grad_x,
        by_drive_like(operands.weight).copy_(grad_weight),
        by_drive_like(operands.bias).copy_(grad_bias),
        by_drive_like(operands.recurrent).copy_(grad_recurrent),
        grad_unit.to(unit.dtype) if grad_unit.numel() else torch.zeros_like(unit),
        grad_gate,
        states.new_empty(0) if decay is None else grad_decay.to(decay.dtype),
        grad_state,
    )


def _fake_backward(
    operands: ScanOperands, _grad_y: Tensor, grad_last: Tensor, *arguments: Any
) -> tuple[Tensor, ...]:
    states, *_, x_needs_grad, gate_needs_grad = arguments

    def like(tensor: Tensor | None, needed: bool = True) -> Tensor:
        if tensor is None or not needed:
            return (states if tensor is None else tensor).new_empty(0)
        return torch.empty_like(tensor, memory_format=torch.contiguous_format)

    return (
        like(operands.x, x_needs_grad),
        by_drive_like(operands.weight),
        by_drive_like(operands.bias),
        by_drive_like(operands.recurrent),
        like(operands.unit),
        like(operands.gate, gate_needs_grad),
        like(operands.decay),
        like(grad_last),
    )


triton_backward = define_operator(
    "triton_backward",
    backward_pass,
    _fake_backward,
    "Tensor grad_y, Tensor grad_last, Tensor states, Tensor drives, Tensor index, Tensor time, "
    "Tensor sequence, Tensor first, str precision, bool x_needs_grad, bool gate_needs_grad",
    results=8,
)

# ---------------------------------------------------------------------------- autograd


def _save(ctx, inputs, output) -> None:
    save_operands(ctx, inputs, *output[2:])
    ctx.precision = inputs[COUNT + 1]
    ctx.shapes = output[0].shape, output[1].shape
    ctx.set_materialize_grads(False)  # gradients by the saved outputs would be large zeros


def _gradients(ctx, run: Callable, grad_y: Tensor | None, grad_last: Tensor | None):
    """Gradients by the forward pass's arguments; ``run`` takes those of the operator."""
    needs = ctx.needs_input_grad
    operands, saved = saved_operands(ctx)
    if grad_y is None:
        grad_y = operands[0].new_zeros(ctx.shapes[0])
    if grad_last is None:
        grad_last = saved[0].new_zeros(ctx.shapes[1])
    more = (ctx.precision, needs[0], needs[GATE])
    *grads, by_state = run(*operands, grad_y, grad_last, *saved, *more)
    return argument_gradients(needs, grads, by_state)


triton_forward.register_autograd(
    lambda ctx, grad_y, grad_last, *_: _gradients(ctx, triton_backward, grad_y, grad_last),
    setup_context=_save,
)
differentiate_once(triton_backward, "triton")


_eager_forward, _eager_backward = from_flat(forward_pass), from_flat(backward_pass)


class EagerScan(torch.autograd.Function):
    """The scan without operators: their dispatch costs the host more time than all launches."""

    @staticmethod
    def forward(ctx, *arguments):
        # Copied once for both passes, where a transposed x comes in. Weights keep their layout.
        x, *weights = arguments[:UNIT]
        rest = (v.contiguous() for v in arguments[UNIT : GATE + 1])
        arguments = x.contiguous(), *weights, *rest, *arguments[GATE + 1 :]
        output = _eager_forward(*arguments)
        _save(ctx, arguments, output)
        return output[:2]

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):  # type: ignore[override]
        return _gradients(ctx, _eager_backward, *grads)


def eager_scan(*arguments: Any) -> tuple[Tensor, ...]:
    """The scan outside of compilers; without gradients it keeps nothing."""
    tensors = (v for v in arguments if isinstance(v, Tensor))
    if torch.is_grad_enabled() and any(v.requires_grad for v in tensors):
        return EagerScan.apply(*arguments)
    return _eager_forward(*arguments)[:2]
