"""The kernels as ``torch.library`` operators, with fakes and gradients."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...eager import on_its_device
from ..once import differentiate_once
from . import launch
from .lists import Lists, make_lists
from .sizes import Pass


@on_its_device
def forward_pass(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    recurrent: Tensor,
    unit: Tensor,
    gate: Tensor,
    state: Tensor,
    decay: Tensor | None,
    lengths: Tensor | None,
    relevant: Tensor | None,
    cell: str,
    binary: bool,
    precision: str,
    recompute: bool,
    room: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Outputs and last state; saved, states and drives at events and the event lists.

    ``relevant`` is read only by the backward pass. ``room`` is the number of list positions, 0 for
    as many as needed.
    """
    lists, fits = make_lists(gate, room or None)
    if fits is not None:
        state = torch.where(fits, state, torch.nan)
    scan = _pass(x, weight, bias, recurrent, unit, gate, decay, lengths, lists, cell, binary, precision)  # fmt: skip  # noqa: E501
    drives = launch.project(scan)
    states, last = launch.walk_forward(scan, drives, state.contiguous())
    y = launch.outputs(scan, states)
    if fits is not None and decay is not None:  # spikes of no events would be 0, and look right
        y = torch.where(fits, y, torch.nan)
    if recompute:
        drives = drives.new_empty(0)
    return y, last, states, drives, lists.index, lists.time, lists.sequence, lists.first


triton_forward = torch.library.custom_op("surnn::triton", forward_pass, mutates_args=())


@triton_forward.register_fake
def _(
    x,
    weight,
    bias,
    recurrent,
    unit,
    gate,
    state,
    decay,
    lengths,
    relevant,
    cell,
    binary,
    precision,
    recompute,
    room,
):
    heads, drives, width, _ = weight.shape
    shared = gate.shape[1] == 1
    rows = room * (x.shape[1] if shared else 1)
    return (
        x.new_empty(*x.shape[:2], heads, width),
        torch.empty_like(state, memory_format=torch.contiguous_format),
        state.new_empty(rows, *state.shape[2:]),
        x.new_empty(0) if recompute else x.new_empty(rows, drives, width),
        gate.new_empty(gate.shape[:3], dtype=torch.int32),
        gate.new_empty(room, dtype=torch.int32),
        gate.new_empty(0 if shared else room, dtype=torch.int32),
        gate.new_empty(heads * gate.shape[1] + 1, dtype=torch.int64),
    )


@on_its_device
def backward_pass(
    grad_y: Tensor,
    grad_last: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    recurrent: Tensor,
    unit: Tensor,
    gate: Tensor,
    states: Tensor,
    drives: Tensor,
    index: Tensor,
    time: Tensor,
    sequence: Tensor,
    first: Tensor,
    decay: Tensor | None,
    lengths: Tensor | None,
    relevant: Tensor | None,
    cell: str,
    binary: bool,
    precision: str,
    x_needs_grad: bool,
    gate_needs_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients by x, weight, bias, recurrent, unit, gate, state and decay; empty if not needed."""
    lists = Lists(index, time, sequence, first)
    scan = _pass(x, weight, bias, recurrent, unit, gate, decay, lengths, lists, cell, binary, precision)  # fmt: skip  # noqa: E501
    grad_y = grad_y.contiguous()
    components = states.shape[1]
    if not drives.numel():
        drives = launch.project(scan)
    work = launch.linearize(scan, drives, states)
    inflow, tail, suffix = launch.segment_sums(scan, grad_y, components, gate_needs_grad)
    grad_state, grad_unit, grad_decay = launch.walk_backward(
        scan, work, states, inflow, grad_last.contiguous()
    )
    grad_gate = gate.new_empty(0)
    if gate_needs_grad:
        wanted = None if relevant is None else relevant.contiguous().view(torch.uint8)
        grad_gate = launch.gate_gradient(scan, suffix, states, inflow, tail, wanted).to(gate.dtype)
    grad_x = launch.input_gradient(scan, work) if x_needs_grad else x.new_empty(0)
    grad_weight, grad_bias, grad_recurrent, grad_inner = launch.weight_gradients(scan, work, states)
    if unit.shape[0] and not scan.kernel_cell.spiking:  # the GRU's b_hn
        grad_unit = grad_inner[:, -1].unsqueeze(0).contiguous()
    return (
        grad_x,
        grad_weight.to(weight.dtype),
        grad_bias.to(bias.dtype),
        grad_recurrent.to(recurrent.dtype),
        grad_unit.to(unit.dtype) if grad_unit.numel() else torch.zeros_like(unit),
        grad_gate,
        grad_state,
        states.new_empty(0) if decay is None else grad_decay.to(decay.dtype),
    )


triton_backward = torch.library.custom_op("surnn::triton_backward", backward_pass, mutates_args=())


@triton_backward.register_fake
def _(
    grad_y,
    grad_last,
    x,
    weight,
    bias,
    recurrent,
    unit,
    gate,
    states,
    drives,
    index,
    time,
    sequence,
    first,
    decay,
    lengths,
    relevant,
    cell,
    binary,
    precision,
    x_needs_grad,
    gate_needs_grad,
):
    like = [
        torch.empty_like(v, memory_format=torch.contiguous_format)
        for v in (weight, bias, recurrent, unit)
    ]
    return (
        torch.empty_like(x, memory_format=torch.contiguous_format)
        if x_needs_grad
        else x.new_empty(0),
        *like,
        torch.empty_like(gate, memory_format=torch.contiguous_format)
        if gate_needs_grad
        else gate.new_empty(0),
        torch.empty_like(grad_last, memory_format=torch.contiguous_format),
        states.new_empty(0)
        if decay is None
        else torch.empty_like(decay, memory_format=torch.contiguous_format),
    )


def _pass(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    recurrent: Tensor,
    unit: Tensor,
    gate: Tensor,
    decay: Tensor | None,
    lengths: Tensor | None,
    lists: Lists,
    cell: str,
    binary: bool,
    precision: str,
) -> Pass:
    """Tensors as the kernels read them: contiguous, matrices in x's dtype."""
    return Pass(
        x.contiguous(),
        weight.to(x.dtype).contiguous(),
        bias.contiguous(),
        recurrent.to(x.dtype).contiguous(),
        unit.contiguous(),
        gate.contiguous(),
        None if decay is None else decay.contiguous(),
        None if lengths is None else lengths.contiguous(),
        lists,
        cell,
        binary,
        precision,
    )


# ---------------------------------------------------------------------------- autograd


def _save(ctx, inputs, output) -> None:
    *tensors, _state, decay, lengths, relevant, cell, binary, precision, _, _ = inputs
    ctx.save_for_backward(*tensors, *output[2:], decay, lengths, relevant)
    ctx.options = cell, binary, precision
    ctx.shapes = output[0].shape, output[1].shape
    ctx.set_materialize_grads(False)  # those of what is only saved would be large zeros


def _gradients(ctx, backward: Callable, grad_y: Tensor | None, grad_last: Tensor | None):
    needs = ctx.needs_input_grad
    saved = ctx.saved_tensors
    if grad_y is None:
        grad_y = saved[0].new_zeros(ctx.shapes[0])
    if grad_last is None:
        grad_last = saved[6].new_zeros(ctx.shapes[1])
    grads = backward(grad_y, grad_last, *saved, *ctx.options, needs[0], needs[5])
    wanted = [grad if need else None for grad, need in zip(grads, needs, strict=False)]
    return (*wanted, *[None] * (len(needs) - len(wanted)))


triton_forward.register_autograd(
    lambda ctx, grad_y, grad_last, *_: _gradients(ctx, triton_backward, grad_y, grad_last),
    setup_context=_save,
)
differentiate_once(triton_backward, "triton")


class EagerScan(torch.autograd.Function):
    """The same without the operator around it, which costs the host more than all launches."""

    @staticmethod
    def forward(ctx, *inputs):
        inputs = *(v.contiguous() for v in inputs[:6]), *inputs[6:]  # for both passes at once
        output = forward_pass(*inputs)
        _save(ctx, inputs, output)
        return output[:2]

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):  # type: ignore[override]
        return _gradients(ctx, backward_pass, *grads)
