"""``events``: the event-driven scan in pure PyTorch, for any device.

A head changes only at its events, so its recurrence is an ordinary RNN over those steps alone:
the Python loop below runs over the longest event list, not over time. Saved for the backward
pass are the event states. The gate's gradient is exact at open *and* closed steps: at a closed
step the proposal feeds nothing, so all of them are computed in parallel from carried states.

Shapes are those of :mod:`surnn.scan.contract`; packed rows those of :mod:`surnn.scan.plan`.
"""

import torch
from torch import Tensor

from .contract import ScanInputs, blend, step_mask
from .gate_gradient import gate_gradient
from .once import differentiate_once
from .reverse import ReverseWalk, segment_suffix_sums
from .walk import EventWalk

# ---------------------------------------------------------------------------- forward


@torch.library.custom_op("surnn::events", mutates_args=())
def events_forward(
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
    rows: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Outputs [T, B, N, D] and last state [B, N, C, D]; saved, states and drives at events.

    ``lengths`` is read only together with ``decay`` (otherwise closed gates say it all), and
    ``relevant`` only by the backward pass. ``rows`` is the room for events; 0 is as many as needed.
    """
    walk = EventWalk(
        x, weight, bias, recurrent, unit, gate, decay, lengths, cell, binary, state.dtype
    )
    plan = walk.plan
    rows = rows or plan.rows
    if plan.rows > rows:
        raise ValueError(f"{plan.rows} event states do not fit the {rows} rows asked for")
    drives = x.new_empty(rows, walk.drives, walk.width)
    walk.project(drives)
    states = state.new_empty(rows, *state.shape[2:])
    states[walk.rows(0)] = state.flatten(0, 1)[plan.initial_source]
    for k in range(1, plan.blocks):
        drive, rec, before, unit_k = walk.operands(drives, states, k)
        new = walk.cell.update(drive, rec, before, unit_k)
        if walk.masked:
            kept = before if walk.decay is None else before * walk.decay[: len(before)]
            gate_k = walk.gate(walk.rows(k)).unflatten(0, new.shape[:2])
            new = blend(kept, new, gate_k.expand_as(new))
        if walk.padding is not None:
            ended = walk.padding[walk.rows(k)].view(*new.shape[:2], 1, 1)
            new = torch.where(ended, before, new)
        plan.block(states, k).copy_(new)

    row = plan.row_of(plan.events.index.long())
    y = states[:, 0].index_select(0, row.flatten()).to(x.dtype).view(*row.shape, walk.width)
    last = states[row[-1]]
    if walk.decay is not None:
        assert decay is not None
        assert walk.closed_after is not None
        y = torch.where(plan.is_open.unsqueeze(-1), y, 0.0)
        last = last * decay ** walk.closed_after[row[-1]][..., None, None].to(decay.dtype)
    return y, last, states, drives


@events_forward.register_fake
def _(x, weight, bias, recurrent, unit, gate, state, decay, lengths, relevant, cell, binary, rows):
    heads, drives, width, _ = weight.shape
    return (
        x.new_empty(*x.shape[:2], heads, width),
        torch.empty_like(state, memory_format=torch.contiguous_format),
        state.new_empty(rows, *state.shape[2:]),
        x.new_empty(rows, drives, width),
    )


# ---------------------------------------------------------------------------- backward


@torch.library.custom_op("surnn::events_backward", mutates_args=())
def events_backward(
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
    decay: Tensor | None,
    lengths: Tensor | None,
    relevant: Tensor | None,
    cell: str,
    binary: bool,
    gate_needs_grad: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients by x, weight, bias, recurrent, unit, gate, state and decay."""
    dtype = torch.float32 if states.dtype in (torch.float16, torch.bfloat16) else states.dtype
    walk = EventWalk(x, weight, bias, recurrent, unit, gate, decay, lengths, cell, binary, dtype)
    plan = walk.plan
    suffix = grad_y.to(dtype)
    if decay is None:  # otherwise a carried unit's output is 0, and a segment its event alone
        suffix = segment_suffix_sums(suffix, plan.events.index)
    reverse = ReverseWalk(walk, states, drives, suffix, grad_last)
    grad_x, grad_weight, grad_bias = walk.project_backward(reverse.drive)
    if gate_needs_grad:
        grad_gate = gate_gradient(walk, gate, states, reverse.inflow, suffix, relevant)
    else:
        grad_gate = torch.zeros_like(gate, memory_format=torch.contiguous_format)
    grad_state = reverse.state.unflatten(0, (walk.batch, walk.heads))
    if decay is None:
        grad_state[..., 0, :] += suffix[0] * ~plan.is_open[0].unsqueeze(-1)
    reverse.decay[:, 0] = 0  # by contract a constant
    unsorted = plan.head_rank
    return (
        grad_x,
        grad_weight.to(weight.dtype),
        grad_bias.to(bias.dtype),
        reverse.recurrent[unsorted].view_as(recurrent).to(recurrent.dtype),
        reverse.unit[unsorted].transpose(0, 1).contiguous().to(unit.dtype),
        grad_gate.to(gate.dtype),
        grad_state.to(states.dtype),
        reverse.decay[unsorted].to(states.dtype if decay is None else decay.dtype),
    )


@events_backward.register_fake
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
    decay,
    lengths,
    relevant,
    cell,
    binary,
    gate_needs_grad,
):
    heads, _, width, _ = weight.shape
    like = [
        torch.empty_like(v, memory_format=torch.contiguous_format)
        for v in (x, weight, bias, recurrent, unit, gate)
    ]
    by_state = states.new_empty(grad_last.shape)
    kind = states if decay is None else decay
    return (*like, by_state, kind.new_empty(heads, states.shape[1], width))


# ---------------------------------------------------------------------------- autograd


def _setup_context(ctx, inputs, output) -> None:
    *tensors, _state, decay, lengths, relevant, cell, binary, _rows = inputs
    _, _, states, drives = output
    ctx.save_for_backward(*tensors, states, drives, decay, lengths, relevant)
    ctx.cell, ctx.binary = cell, binary


def _backward(ctx, grad_y, grad_last, _grad_states, _grad_drives):
    needs = ctx.needs_input_grad
    grads = events_backward(grad_y, grad_last, *ctx.saved_tensors, ctx.cell, ctx.binary, needs[5])
    wanted = [grad if need else None for grad, need in zip(grads, needs, strict=False)]
    return (*wanted, None, None, None, None, None)


events_forward.register_autograd(_backward, setup_context=_setup_context)
differentiate_once(events_backward, "events")


# ---------------------------------------------------------------------------- public


def scan(inputs: ScanInputs) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, N, D] and the last state [B, N, C, D]."""
    steps, batch = inputs.x.shape[:2]
    gate = inputs.closed_past_length()
    relevant = inputs.relevant
    alive = None if inputs.lengths is None else step_mask(steps, inputs.lengths)
    if relevant is not None and alive is not None:
        relevant = relevant & alive.unsqueeze(-1)
    # A traced graph cannot let a size depend on data: there it makes room for every step.
    fixed = torch.compiler.is_compiling() or inputs.x.device.type == "meta"
    rows = (steps + 1) * batch * inputs.weight.shape[0] if fixed else 0
    y, last, *_ = events_forward(
        inputs.x,
        inputs.weight,
        inputs.bias,
        inputs.recurrent,
        inputs.unit,
        gate,
        inputs.state,
        inputs.decay,
        inputs.lengths,
        relevant,
        inputs.cell.name,
        inputs.binary,
        rows,
    )
    if alive is not None:
        y = torch.where(alive[:, :, None, None], y, 0.0)
    return y, last
