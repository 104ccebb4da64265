"""The kernels as ``torch.library`` operators, with fakes and gradients."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from surnn.nn.constants import constant_zeros
from surnn.nn.pieces import words

from ..contract import ScanInputs, ScanOperands
from ..double_backward import differentiate_once
from ..operators import (
    COUNT,
    GATE,
    argument_gradients,
    define_operator,
    save_operands,
    saved_operands,
)
from .operands import DIFFERENTIABLE, TENSORS, KernelOperands
from .passes import backward_pass, forward_pass, list_shape, memory_of

# ---------------------------------------------------------------------------- layouts


def _state_of_layer(state: Tensor) -> Tensor:
    """[B, N, C, D] to [C, B, H]."""
    return state.permute(2, 0, 1, 3).flatten(2).contiguous()


def _state_of_contract(state: Tensor, heads: int) -> Tensor:
    """[C, B, H] to [B, N, C, D]."""
    return state.unflatten(2, (heads, -1)).permute(1, 2, 0, 3)


def _by_head(grad: Tensor, like: Tensor) -> Tensor:
    """[S * H, ...] to [N, S, D, ...], the shape of ``like``."""
    return grad.view(like.transpose(0, 1).shape).transpose(0, 1)


# ---------------------------------------------------------------------------- operators


def _forward(
    operands: ScanOperands, state: Tensor, precision: str, recompute: bool, capacity: int
) -> tuple[Tensor, ...]:
    """Outputs and last state; saved, the memory of event lists, and of states and drives."""
    inner = KernelOperands.from_contract(operands).readable()
    y, last, *saved, _ = forward_pass(inner, _state_of_layer(state), precision, recompute, capacity)
    return y.unflatten(2, (inner.heads, -1)), _state_of_contract(last, inner.heads), *saved


def _fake_forward(
    operands: ScanOperands, state: Tensor, _precision: str, recompute: bool, capacity: int
) -> tuple[Tensor, ...]:
    x = operands.x
    heads, _, width, _ = operands.weight.shape
    inner = KernelOperands.from_contract(operands)
    shape = list_shape(inner, capacity)
    memory = memory_of(inner, state, recompute, shape, capacity)
    last = torch.empty_like(_state_of_layer(state))
    return (
        x.new_empty(*x.shape[:2], heads, width),
        _state_of_contract(last, heads),
        x.new_empty(words(shape.counts), dtype=torch.int64),
        x.new_empty(words(memory.events), dtype=torch.int64),
    )


triton_forward = define_operator(
    "triton",
    _forward,
    _fake_forward,
    "Tensor state, str precision, bool recompute, SymInt capacity",
    results=4,
)


def _backward(
    operands: ScanOperands, grad_y: Tensor, grad_last: Tensor, *arguments: Any
) -> tuple[Tensor, ...]:
    """Gradients by x, weight, bias, recurrent, unit, gate, decay and state; empty if not needed.

    The other ``arguments`` are what the forward pass saved, the precision, whether drives are
    computed again, the capacity, and whether gradients by x and by the gate are needed.
    """
    counts, events, precision, recompute, capacity, *needs = arguments
    inner = KernelOperands.from_contract(operands).readable()
    state = _state_of_layer(grad_last)
    shape = list_shape(inner, capacity)
    memory = memory_of(inner, state, recompute, shape, capacity)
    grad_y = grad_y.contiguous().flatten(2)
    by_x, weight, recurrent, bias, _, unit, gate, decay, by_state = backward_pass(
        inner, grad_y, state, (counts, events), memory, precision, tuple(needs)
    )
    assert weight is not None
    assert recurrent is not None
    assert bias is not None
    assert by_state is not None
    return (
        operands.x.new_empty(0) if by_x is None else by_x,
        _by_head(weight, operands.weight),
        _by_head(bias, operands.bias),
        _by_head(recurrent, operands.recurrent),
        torch.zeros_like(operands.unit) if unit is None else unit,
        operands.gate.new_empty(0) if gate is None else gate,
        grad_last.new_empty(0) if decay is None else decay,
        _state_of_contract(by_state, inner.heads),
    )


def _fake_backward(
    operands: ScanOperands, _grad_y: Tensor, grad_last: Tensor, *arguments: Any
) -> tuple[Tensor, ...]:
    *_, x_needs_grad, gate_needs_grad = arguments

    def like(tensor: Tensor | None, needed: bool = True) -> Tensor:
        if tensor is None or not needed:
            return (grad_last if tensor is None else tensor).new_empty(0)
        return torch.empty_like(tensor, memory_format=torch.contiguous_format)

    def by_drive_like(tensor: Tensor) -> Tensor:
        return tensor.new_empty(tensor.transpose(0, 1).shape).transpose(0, 1)

    return (
        like(operands.x, x_needs_grad),
        by_drive_like(operands.weight),
        by_drive_like(operands.bias),
        by_drive_like(operands.recurrent),
        like(operands.unit),
        like(operands.gate, gate_needs_grad),
        like(operands.decay),
        _state_of_contract(torch.empty_like(_state_of_layer(grad_last)), operands.weight.shape[0]),
    )


triton_backward = define_operator(
    "triton_backward",
    _backward,
    _fake_backward,
    "Tensor grad_y, Tensor grad_last, Tensor counts, Tensor events, str precision, bool recompute, "
    "SymInt capacity, bool x_needs_grad, bool gate_needs_grad",
    results=8,
)


def _save(ctx, inputs, output) -> None:
    save_operands(ctx, inputs, *output[2:])
    ctx.constants = inputs[COUNT + 1 :]
    ctx.like = output[0].shape, output[1].shape, output[1].dtype
    ctx.set_materialize_grads(False)  # gradients by the saved outputs would be large zeros


def _gradients(ctx, grad_y: Tensor | None, grad_last: Tensor | None, *_):
    needs = ctx.needs_input_grad
    operands, saved = saved_operands(ctx)
    shape_of_y, shape_of_state, state_dtype = ctx.like
    if grad_y is None:
        grad_y = operands[0].new_zeros(shape_of_y)
    if grad_last is None:
        grad_last = operands[0].new_zeros(shape_of_state, dtype=state_dtype)
    more = (*ctx.constants, needs[0], needs[GATE])
    *grads, by_state = triton_backward(*operands, grad_y, grad_last, *saved, *more)
    return argument_gradients(needs, grads, by_state)


triton_forward.register_autograd(_gradients, setup_context=_save)
differentiate_once(triton_backward, "triton")

# ---------------------------------------------------------------------------- eager


class EagerScan(torch.autograd.Function):
    """The scan without operators: their dispatch costs the host more time than all launches.

    Its arguments are the tensors of :class:`KernelOperands`, the state [C, B, H], the other fields,
    the precision, whether to recompute drives, and the capacity.
    """

    @staticmethod
    def forward(ctx, *arguments):
        *tensors, state, others, precision, recompute, capacity = arguments
        operands = KernelOperands.build(tensors, others).readable()
        y, last, *saved, memory = forward_pass(
            operands, state.contiguous(), precision, recompute, capacity
        )
        ctx.save_for_backward(*operands.tensors(), *saved)
        ctx.plan = others, memory, precision
        ctx.like = y.shape, y.dtype, last.shape, last.dtype
        ctx.set_materialize_grads(False)
        return y, last

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_y, grad_last):  # type: ignore[override]
        *tensors, counts, events = ctx.saved_tensors
        others, memory, precision = ctx.plan
        shape_of_y, dtype, shape_of_state, state_dtype = ctx.like
        x = tensors[0]
        if grad_y is None:
            grad_y = x.new_zeros(shape_of_y, dtype=dtype)
        if grad_last is None:
            grad_last = constant_zeros(shape_of_state, state_dtype, x)
        needs = ctx.needs_input_grad
        *grads, by_state = backward_pass(
            KernelOperands.build(tensors, others), grad_y.contiguous(), grad_last.contiguous(),
            (counts, events), memory, precision, (needs[0], needs[_GATE]),
        )  # fmt: skip
        none = [None] * (len(needs) - DIFFERENTIABLE - 1)
        constants = len(TENSORS) - DIFFERENTIABLE
        grads = [g if need else None for g, need in zip(grads, needs, strict=False)]
        by_state = by_state if needs[len(TENSORS)] else None
        return *grads, *none[:constants], by_state, *none[constants:]


_GATE = TENSORS.index("gate")


def eager_scan(
    operands: KernelOperands, state: Tensor, precision: str, recompute: bool, capacity: int
) -> tuple[Tensor, Tensor]:
    """y [T, B, H] and the last state [C, B, H], outside of compilers.

    Without gradients it keeps nothing.
    """
    tensors = operands.tensors()
    if torch.is_grad_enabled() and any(
        v is not None and v.requires_grad for v in (*tensors, state)
    ):
        others = operands.others()
        return EagerScan.apply(*tensors, state, others, precision, recompute, capacity)  # type: ignore[return-value]
    arguments = operands.readable(), state.contiguous(), precision, recompute, capacity
    return forward_pass(*arguments)[:2]


def scan_of_contract(
    inputs: ScanInputs, precision: str, capacity: int, traced: bool
) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, N, D] and the last state [B, N, C, D]."""
    if traced:
        y, last, *_ = triton_forward(
            *inputs.flat(), inputs.state, precision, inputs.recompute, capacity
        )
        return y, last
    operands = KernelOperands.from_contract(inputs)
    state = inputs.state.permute(2, 0, 1, 3).flatten(2)
    y, last = eager_scan(operands, state, precision, inputs.recompute, capacity)
    return y.unflatten(2, (operands.heads, -1)), _state_of_contract(last, operands.heads)
