"""``events``: the event-driven scan in pure PyTorch, for any device.

A head changes only at its events, so its recurrence is an ordinary RNN over those steps alone:
the Python loop below runs over the longest event list, not over time. Saved for the backward
pass are the event states. The gate's gradient is exact at open *and* closed steps: at a closed
step the proposal feeds nothing, so all of them are computed in parallel from carried states.

Shapes are those of :mod:`surnn.scan.contract`; packed rows those of :mod:`surnn.scan.plan`.
"""

import math

import torch
from torch import Tensor

from ..cells import get_cell
from .contract import ScanInputs, blend, event_list, input_projection, step_mask
from .plan import EventPlan

# Elements of drive that the parallel pass over closed steps holds at a time.
_CHUNK_ELEMENTS = 1 << 21
# Above this share of open (step, sequence, head) triples one dense product beats gathering.
_DENSE_SHARE = 1 / 3


class _Walk:
    """What the forward loop, the backward loop and the gate's pass share: block k's operands."""

    def __init__(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        recurrent: Tensor,
        unit: Tensor,
        gate: Tensor,
        decay: Tensor | None,
        lengths: Tensor | None,
        cell: str,
        binary: bool,
        dtype: torch.dtype,
    ) -> None:
        self.cell = get_cell(cell)
        self.dtype = dtype
        self.x, self.weight, self.bias = x, weight, bias
        self.steps, self.batch = x.shape[:2]
        self.heads, self.drives, self.width, _ = weight.shape
        self.plan = plan = EventPlan(gate, self.batch)
        self.dense = plan.rows > _DENSE_SHARE * self.steps * self.batch * self.heads
        order = plan.head_order
        self.flat_gate = gate.reshape(-1, gate.shape[-1])
        # [N, S*D, D] and its transpose, heads in the plan's order, as are unit and decay.
        self.recurrent = recurrent[order].flatten(1, 2).to(dtype)
        self.recurrent_t = self.recurrent.transpose(1, 2)
        self.unit = unit[:, order].unsqueeze(2).to(dtype)
        self.decay = None if decay is None else decay[order].unsqueeze(1).to(dtype)
        self.closed_after = None if decay is None else plan.closed_after(lengths)
        self.masked = not binary or gate.shape[-1] > 1
        # Padding reads some row that exists; nothing reads what becomes of it.
        self.readable = plan.source.clamp(0, self.steps * self.batch * self.heads - 1)

    def rows(self, k: int) -> slice:
        start = self.plan.start[k]
        return slice(start, start + self.plan.heads[k] * self.plan.sequences[k])

    def project(self, out: Tensor) -> None:
        """Fill packed ``out`` [rows, S, D] with the input projection at events."""
        first = self.plan.start[1] if self.plan.blocks > 1 else self.plan.rows
        out[:first] = 0  # initial states have no input
        if self.dense:
            drive = input_projection(self.x, self.weight, self.bias).flatten(0, 2)
            torch.index_select(drive, 0, self.readable[first:], out=out[first : self.plan.rows])
            return
        flat_x = self.x.flatten(0, 1)
        for n, rows in enumerate(self.plan.rows_by_head):
            x_n = flat_x.index_select(0, self.readable[rows] // self.heads)
            out.index_copy_(0, rows, input_projection(x_n, self.weight[n, None], self.bias[n, None])[:, 0])

    def project_backward(self, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients by x, weight and bias of :meth:`project`, from packed ``grad`` [rows, S, D]."""
        flat_x = self.x.flatten(0, 1)
        weight = self.weight.flatten(1, 2).to(self.x.dtype)  # [N, S*D, I]
        grad = grad.flatten(1).to(self.x.dtype)
        if self.dense:
            first = self.plan.start[1] if self.plan.blocks > 1 else self.plan.rows
            size = self.steps * self.batch * self.heads
            spread = grad.new_zeros(size + 1, grad.shape[1])  # the last row takes padding's writes
            spread.index_copy_(0, self.plan.source[first:], grad[first:])
            by_drive = spread[:size].view(self.steps * self.batch, -1)
            return (
                (by_drive @ weight.flatten(0, 1)).view_as(self.x),
                (by_drive.t() @ flat_x).view_as(self.weight),
                by_drive.sum(0).view_as(self.bias),
            )
        grad_x = torch.zeros_like(flat_x, memory_format=torch.contiguous_format)
        grad_weight = torch.empty_like(weight)
        grad_bias = grad.new_empty(self.heads, grad.shape[1])
        for n, rows in enumerate(self.plan.rows_by_head):
            place = self.readable[rows] // self.heads
            by_drive = grad.index_select(0, rows)
            grad_x.index_add_(0, place, by_drive @ weight[n])
            torch.mm(by_drive.t(), flat_x.index_select(0, place), out=grad_weight[n])
            torch.sum(by_drive, 0, out=grad_bias[n])
        return grad_x.view_as(self.x), grad_weight.view_as(self.weight), grad_bias.view_as(self.bias)

    def carried(self, packed: Tensor, k: int) -> Tensor:
        """Block k of packed states, carried to just before its next event."""
        block = self.plan.block(packed, k).to(self.dtype)
        return block if self.decay is None else block * self.carry_power(k)

    def carry_power(self, k: int) -> Tensor:
        """decay ** (closed steps after block k's events): [n, a, C, D]."""
        assert self.decay is not None
        return self.decay[: self.plan.heads[k]] ** self._closed_after(k)

    def carry_power_slope(self, k: int) -> Tensor:
        """The derivative of :meth:`carry_power` by decay."""
        assert self.decay is not None
        count = self._closed_after(k)
        return count * self.decay[: self.plan.heads[k]] ** (count - 1).clamp(min=0)

    def _closed_after(self, k: int) -> Tensor:
        assert self.closed_after is not None
        return self.plan.block(self.closed_after, k)[..., None, None].to(self.dtype)

    def operands(self, drives: Tensor, states: Tensor, k: int) -> tuple:
        """drive, rec, state and unit with which block k's update is called."""
        n, a = self.plan.heads[k], self.plan.sequences[k]
        before = self.carried(states, k - 1)[:n, :a]
        drive = self.plan.block(drives, k).to(self.dtype)
        rec = torch.bmm(before[:, :, 0], self.recurrent_t[:n]).view_as(drive)
        return drive, rec, before, self.unit[:, :n].unbind(0)

    def gate(self, k: int) -> Tensor:
        """Block k's gate values [n, a, 1, m]."""
        n, a = self.plan.heads[k], self.plan.sequences[k]
        return self.flat_gate[self.plan.gate_source[self.rows(k)]].view(n, a, 1, -1).to(self.dtype)

    def kept(self, before: Tensor) -> Tensor:
        """What a unit that stays closed inside an open head keeps."""
        return before if self.decay is None else before * self.decay[: before.shape[0]]


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
    """Outputs [T, B, N, D], last state [B, N, C, D]; saved: states [rows, C, D], drives [rows, S, D].

    ``lengths`` is read only together with ``decay`` (otherwise closed gates say it all), and
    ``relevant`` only by the backward pass. ``rows`` is the room for events.
    """
    walk = _Walk(x, weight, bias, recurrent, unit, gate, decay, lengths, cell, binary, state.dtype)
    plan = walk.plan
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
            new = blend(walk.kept(before), new, walk.gate(k).expand_as(new))
        plan.block(states, k).copy_(new)

    row = plan.row_of(plan.events.index.long())
    y = states[:, 0].index_select(0, row.flatten()).to(x.dtype).view(*row.shape, walk.width)
    last = states[row[-1]]
    if walk.decay is not None:
        assert decay is not None and walk.closed_after is not None
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
    """Gradients by x, weight, bias, recurrent, unit, gate, state and decay.

    ``inflow`` [rows, C, D] is the adjoint of an event state, carried to just before its next
    event, that arrives from there (or from the end). The outputs' gradients over the segment in
    which the state is carried add to it; that sum is the adjoint at the event itself.
    """
    dtype = torch.float32 if states.dtype in (torch.float16, torch.bfloat16) else states.dtype
    walk = _Walk(x, weight, bias, recurrent, unit, gate, decay, lengths, cell, binary, dtype)
    plan = walk.plan
    suffix = grad_y.to(dtype)
    if decay is None:  # otherwise a carried unit's output is 0, and a segment its event alone
        suffix = segment_suffix_sums(suffix, plan.events.index)
    flat_suffix = suffix.reshape(-1, walk.width)
    inflow = states.new_zeros(plan.rows, *states.shape[1:], dtype=dtype)
    inflow[plan.row_of(plan.events.index[-1:].long())[0]] = grad_last.to(dtype)

    grad_drives = drives.new_empty(plan.rows, *drives.shape[1:], dtype=dtype)
    grad_recurrent = torch.zeros_like(walk.recurrent)
    grad_unit = torch.zeros_like(walk.unit[:, :, 0])
    grad_decay = inflow.new_zeros(walk.heads, *states.shape[1:])

    def adjoint_at(k: int) -> Tensor:
        arriving = plan.block(inflow, k)
        if walk.decay is None:
            return arriving.clone()
        by_power = arriving * plan.block(states, k).to(dtype)
        grad_decay[: plan.heads[k]] += (by_power * walk.carry_power_slope(k)).sum(1)
        return arriving * walk.carry_power(k)

    for k in range(plan.blocks - 1, 0, -1):
        n, a = plan.heads[k], plan.sequences[k]
        drive, rec, before, unit_k = walk.operands(drives, states, k)
        slope = walk.cell.linearize(drive, rec, before, unit_k)
        adjoint = adjoint_at(k)
        segment = flat_suffix.index_select(0, walk.readable[walk.rows(k)]).view(n, a, walk.width)
        if not plan.shared:
            padding = (plan.event_step[walk.rows(k)] == walk.steps).view(n, a, 1)
            segment = segment.masked_fill(padding, 0.0)
        adjoint[:, :, 0] += segment

        by_proposal = adjoint
        by_before = None
        if walk.masked:
            by_proposal = adjoint * walk.gate(k)
            by_kept = adjoint - by_proposal
            by_before = walk.kept(by_kept)
            if walk.decay is not None:
                grad_decay[:n] += (by_kept * before).sum(1)
        by_drive = _pull(by_proposal, slope.wrt_drive)
        by_rec = by_drive if slope.wrt_rec is None else _pull(by_proposal, slope.wrt_rec)
        plan.block(grad_drives, k).copy_(by_drive)
        through_cell = _pull(by_proposal, slope.wrt_state)
        by_before = through_cell if by_before is None else by_before + through_cell
        by_rec = by_rec.flatten(2)
        by_before[:, :, 0] += torch.bmm(by_rec, walk.recurrent[:n])
        grad_recurrent[:n].baddbmm_(by_rec.transpose(1, 2), before[:, :, 0])
        if slope.wrt_unit is not None:
            grad_unit[:, :n] += _pull(by_proposal, slope.wrt_unit).sum(1).transpose(0, 1)
        plan.block(inflow, k - 1)[:n, :a] += by_before

    grad_x, grad_weight, grad_bias = walk.project_backward(grad_drives)
    del grad_drives
    if gate_needs_grad:
        grad_gate = _gate_gradient(walk, gate, states, inflow, suffix, relevant).to(gate.dtype)
    else:
        grad_gate = torch.zeros_like(gate, memory_format=torch.contiguous_format)
    grad_state = adjoint_at(0).flatten(0, 1)[plan.initial_source.argsort()]
    grad_state = grad_state.unflatten(0, (walk.batch, walk.heads))
    if decay is None:
        grad_state[..., 0, :] += suffix[0] * ~plan.is_open[0].unsqueeze(-1)
    grad_decay[:, 0] = 0  # by contract a constant
    unsorted = plan.head_rank
    return (
        grad_x,
        grad_weight.to(weight.dtype),
        grad_bias.to(bias.dtype),
        grad_recurrent[unsorted].view_as(recurrent).to(recurrent.dtype),
        grad_unit[:, unsorted].to(unit.dtype),
        grad_gate,
        grad_state.to(states.dtype),
        grad_decay[unsorted].to(states.dtype if decay is None else decay.dtype),
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
    like = [torch.empty_like(v, memory_format=torch.contiguous_format) for v in
            (x, weight, bias, recurrent, unit, gate)]
    by_state = states.new_empty(grad_last.shape)
    kind = states if decay is None else decay
    return (*like, by_state, kind.new_empty(heads, states.shape[1], width))


def _pull(adjoint: Tensor, slope: Tensor) -> Tensor:
    """Vector-Jacobian product: [..., C, D] with [..., C, X, D] gives [..., X, D]."""
    if adjoint.shape[-2] == 1:
        return adjoint * slope[..., 0, :, :]
    return (adjoint.unsqueeze(-2) * slope).sum(-3)


def segment_suffix_sums(values: Tensor, index: Tensor) -> Tensor:
    """Sum of ``values`` [T, B, N, D] from t to the end of t's segment, for every t.

    A segment is a run of equal ``index`` [T, b, N], which never falls. Done in chunks of about
    sqrt(T) steps, first inside all chunks at once, then across them: depth 2 sqrt(T), two passes
    over memory.
    """
    steps = values.shape[0]
    length = math.isqrt(max(steps - 1, 0)) + 1
    chunks = -(-steps // length)
    sums = values.new_zeros(chunks * length, *values.shape[1:])
    sums[:steps] = values
    segment = index.new_full((chunks * length, *index.shape[1:], 1), -1)
    segment[:steps] = index.unsqueeze(-1)
    v, i = sums.unflatten(0, (chunks, length)), segment.unflatten(0, (chunks, length))
    for j in range(length - 2, -1, -1):
        v[:, j].addcmul_(v[:, j + 1], (i[:, j] == i[:, j + 1]).to(v.dtype))
    for c in range(chunks - 2, -1, -1):
        v[c].addcmul_(v[c + 1, 0], (i[c] == i[c + 1, 0]).to(v.dtype))
    return sums[:steps]


def _gate_gradient(
    walk: _Walk,
    gate: Tensor,
    states: Tensor,
    inflow: Tensor,
    suffix: Tensor,
    relevant: Tensor | None,
) -> Tensor:
    """dL/dg [T, b, N, m] = adjoint of the state after step t, times (proposal - kept).

    At every step, open or closed, all in parallel: a closed step's proposal starts from the
    carried state and feeds nothing. ``relevant`` may leave steps out.
    """
    steps = walk.steps
    if relevant is None:
        when = torch.arange(steps, device=gate.device)[:, None, None]  # [T, 1, 1]
    else:
        when = event_list(relevant).time.long()  # [Q, b, N], padded with T
    grad = gate.new_zeros(steps + 1, *gate.shape[1:], dtype=walk.dtype)
    chunk = max(1, _CHUNK_ELEMENTS // (walk.batch * walk.heads * walk.drives * walk.width))
    for first in range(0, when.shape[0], chunk):
        t = when[first : first + chunk]
        grad.scatter_(
            0,
            t[..., None].expand(t.shape[0], *gate.shape[1:]),
            _gate_gradient_at(walk, gate, states, inflow, suffix, t),
        )
    return grad[:-1].contiguous()


def _gate_gradient_at(
    walk: _Walk, gate: Tensor, states: Tensor, inflow: Tensor, suffix: Tensor, t: Tensor
) -> Tensor:
    """The gate's gradient [q, b, N, m] at steps t [q, 1 or b, 1 or N]."""
    plan, dtype = walk.plan, walk.dtype
    batch, heads, width = walk.batch, walk.heads, walk.width
    device = t.device
    inside = t.clamp(max=walk.steps - 1)
    listed = inside.expand(-1, plan.gate_batch, heads)
    index = plan.events.index.long()
    now = index.gather(0, listed)
    earlier = torch.where(listed > 0, index.gather(0, (listed - 1).clamp(min=0)), 0)

    def head_major(per_step: Tensor) -> Tensor:  # [q, B, N] -> [N, q * B]
        return per_step.expand(-1, batch, heads).permute(2, 0, 1).reshape(heads, -1)

    place = inside * batch + torch.arange(batch, device=device)[:, None]  # [q, B, 1 or N]
    if place.shape[-1] == 1:
        drive = input_projection(walk.x.flatten(0, 1)[place.flatten()], walk.weight, walk.bias)
        drive = drive.transpose(0, 1)
    else:
        x = walk.x.flatten(0, 1)[head_major(place)]  # [N, q * B, I]
        weight = walk.weight.flatten(1, 2).transpose(1, 2).to(x.dtype)
        drive = torch.baddbmm(walk.bias.flatten(1)[:, None].to(x.dtype), x, weight)
        drive = drive.unflatten(-1, (walk.drives, width))
    drive = drive.to(dtype)  # [N, q * B, S, D]

    row_now, row_before = head_major(plan.row_of(now)), head_major(plan.row_of(earlier))
    before = states[row_before].to(dtype)  # [N, q * B, C, D]
    adjoint = inflow[row_now]
    rank = plan.head_rank
    if walk.decay is not None:
        decay = walk.decay[rank]
        assert walk.closed_after is not None
        time = head_major(inside)
        waited = time - plan.event_step[row_before] - 1
        ahead = walk.closed_after[row_now] - (time - plan.event_step[row_now])
        before = before * decay ** waited[..., None, None].to(dtype)
        adjoint = adjoint * decay ** ahead.clamp(min=0)[..., None, None].to(dtype)
    by_output = suffix.reshape(-1, width)
    adjoint[..., 0, :] += by_output[head_major(place * heads + torch.arange(heads, device=device))]
    rec = torch.bmm(before[:, :, 0], walk.recurrent_t[rank]).view(drive.shape)
    proposed = walk.cell.update(drive, rec, before, walk.unit[:, rank].unbind(0))
    change = proposed - (before if walk.decay is None else before * walk.decay[rank])
    if not change.sum().isfinite():
        # As in blend: what a closed unit did not read cannot reach it through its gate either.
        change = torch.where(change.isfinite(), change, 0.0)
    grad = (adjoint * change).sum(-2).view(heads, -1, batch, width)  # [N, q, B, D]
    if gate.shape[-1] == 1:
        grad = grad.sum(-1, keepdim=True)
    if plan.shared:
        grad = grad.sum(2, keepdim=True)
    return grad.permute(1, 2, 0, 3)


# ---------------------------------------------------------------------------- autograd


def _setup_context(ctx, inputs, output) -> None:
    *tensors, _state, decay, lengths, relevant, cell, binary, _rows = inputs
    _, _, states, drives = output
    ctx.save_for_backward(*tensors, states, drives, decay, lengths, relevant)
    ctx.cell, ctx.binary = cell, binary


def _backward(ctx, grad_y, grad_last, _grad_states, _grad_drives):
    needs = ctx.needs_input_grad
    grads = events_backward(
        grad_y, grad_last, *ctx.saved_tensors, ctx.cell, ctx.binary, needs[5]
    )
    wanted = [grad if need else None for grad, need in zip(grads, needs, strict=False)]
    return (*wanted, None, None, None, None, None)


events_forward.register_autograd(_backward, setup_context=_setup_context)


# ---------------------------------------------------------------------------- public


def event_rows(gate: Tensor, batch: int) -> int:
    """Event states that a scan of this gate keeps, initial ones included."""
    return EventPlan(gate, batch).rows


def scan(inputs: ScanInputs) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, N, D] and the last state [B, N, C, D]."""
    steps, batch = inputs.x.shape[:2]
    gate = inputs.closed_past_length()
    relevant = inputs.relevant
    alive = None if inputs.lengths is None else step_mask(steps, inputs.lengths)
    if relevant is not None and alive is not None:
        relevant = relevant & alive.unsqueeze(-1)
    # A traced graph cannot let a size depend on data: there it makes room for every step.
    if torch.compiler.is_compiling():
        rows = (steps + 1) * batch * inputs.weight.shape[0]
    else:
        rows = event_rows(gate.detach(), batch)
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
