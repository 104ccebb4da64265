"""The event scan as ``torch.library`` operators, with fakes and gradients."""

import torch
from torch import Tensor

from ..contract import ScanInputs, ScanOperands
from ..double_backward import differentiate_once
from ..operators import (
    GATE,
    argument_gradients,
    define_operator,
    save_operands,
    saved_operands,
)
from .backward import BackwardPass
from .forward import run_forward
from .packed import PackedScan

# ---------------------------------------------------------------------------- forward


def _forward(operands: ScanOperands, state: Tensor, rows: int) -> tuple[Tensor, ...]:
    return run_forward(PackedScan(operands, state.dtype), state, rows)


def _fake_forward(operands: ScanOperands, state: Tensor, rows: int) -> tuple[Tensor, ...]:
    x = operands.x
    heads, drives, width, _ = operands.weight.shape
    return (
        x.new_empty(*x.shape[:2], heads, width),
        torch.empty_like(state, memory_format=torch.contiguous_format),
        state.new_empty(rows, *state.shape[2:]),
        x.new_empty(rows, drives, width),
    )


# Outputs, last state; packed states and drives, saved for the backward pass.
events_forward = define_operator(
    "events", _forward, _fake_forward, "Tensor state, SymInt rows", results=4
)

# ---------------------------------------------------------------------------- backward


def _backward(
    operands: ScanOperands,
    grad_y: Tensor,
    grad_last: Tensor,
    states: Tensor,
    drives: Tensor,
    gate_needs_grad: bool,
) -> tuple[Tensor, ...]:
    dtype = torch.float32 if states.dtype in (torch.float16, torch.bfloat16) else states.dtype
    backward = BackwardPass(PackedScan(operands, dtype), states, drives, grad_y, grad_last)
    return backward.gradients(gate_needs_grad)


def _fake_backward(
    operands: ScanOperands,
    _grad_y: Tensor,
    grad_last: Tensor,
    states: Tensor,
    _drives: Tensor,
    _gate_needs_grad: bool,
) -> tuple[Tensor, ...]:
    heads, _, width, _ = operands.weight.shape
    like = [
        torch.empty_like(v, memory_format=torch.contiguous_format)  # type: ignore[arg-type]
        for v in operands.tensors()[: GATE + 1]
    ]
    kind = states if operands.decay is None else operands.decay
    by_decay = kind.new_empty(heads, states.shape[1], width)
    return (*like, by_decay, states.new_empty(grad_last.shape))


# Gradients by x, weight, bias, recurrent, unit, gate, decay and state.
events_backward = define_operator(
    "events_backward",
    _backward,
    _fake_backward,
    "Tensor grad_y, Tensor grad_last, Tensor states, Tensor drives, bool gate_needs_grad",
    results=8,
)

# ---------------------------------------------------------------------------- autograd


def _save(ctx, inputs, output) -> None:
    _, _, states, drives = output
    save_operands(ctx, inputs, states, drives)


def _gradients(ctx, grad_y, grad_last, _grad_states, _grad_drives):
    needs = ctx.needs_input_grad
    operands, saved = saved_operands(ctx)
    *grads, by_state = events_backward(*operands, grad_y, grad_last, *saved, needs[GATE])
    return argument_gradients(needs, grads, by_state)


events_forward.register_autograd(_gradients, setup_context=_save)
differentiate_once(events_backward, "events")


# ---------------------------------------------------------------------------- public


def scan(inputs: ScanInputs) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, N, D] and the last state [B, N, C, D]."""
    steps, batch = inputs.x.shape[:2]
    # In a traced graph no size may depend on data, so it allocates a row for every step.
    traced = torch.compiler.is_compiling() or inputs.x.device.type == "meta"
    rows = (steps + 1) * batch * inputs.weight.shape[0] if traced else 0
    y, last, *_ = events_forward(*inputs.flat(), inputs.state, rows)
    return y, last
