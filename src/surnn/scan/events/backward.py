"""The event scan backwards: a serial loop over events, latest first.

``inflow`` [rows, C, D] is the adjoint of an event state just before its next event (or at the
end): the part of the gradient that arrives from there. The output gradients over the segment in
which the state is carried add to it; that sum is the adjoint at the event itself. Only the step
from one event to the one before is serial; the rest is computed for many events at once.
"""

import math

import torch
from torch import Tensor

from surnn.nn.cells import Linearization

from .gate_gradient import gate_gradient
from .packed import PackedScan


class BackwardPass:
    """Gradients of an event scan.

    Args:
        packed: the scan.
        states: packed event states [rows, C, D].
        drives: packed drives [rows, S, D].
        grad_y: [T, B, N, D] gradient by the outputs.
        grad_last: [B, N, C, D] gradient by the last state.
    """

    def __init__(
        self,
        packed: PackedScan,
        states: Tensor,
        drives: Tensor,
        grad_y: Tensor,
        grad_last: Tensor,
    ) -> None:
        self.packed, self.states, self.drives = packed, states, drives
        plan = packed.plan
        # Output gradients, summed from each step to the end of its segment. With a decay a carried
        # unit's output is 0, so that a segment is its event alone.
        self.suffix = grad_y.to(packed.dtype)
        if packed.decay is None:
            self.suffix = segment_suffix_sums(self.suffix, plan.events.index)
        self.flat_suffix = self.suffix.reshape(-1, packed.width)
        shape = (plan.rows, *states.shape[1:])
        self.inflow = torch.zeros(shape, dtype=packed.dtype, device=states.device)
        self.inflow[plan.row_of(plan.events.index[-1:].long())[0]] = grad_last.to(packed.dtype)
        self.drive = self.inflow.new_zeros(plan.rows, *drives.shape[1:])
        self.recurrent = torch.zeros_like(packed.recurrent)
        self.unit = torch.zeros_like(packed.unit[:, :, 0]).transpose(0, 1).contiguous()  # [N, P, D]
        self.decay = self.inflow.new_zeros(packed.heads, *states.shape[1:])
        self.guarded = not _are_finite(packed.recurrent, self.suffix)  # whether 0 times them is 0
        for first, last in packed.chunks():
            self._chunk(first, last)
        initial = packed.rows(0)
        self.state = self._at_events(initial)[plan.initial_source.argsort()]

    def gradients(self, gate_needs_grad: bool) -> tuple[Tensor, ...]:
        """By x, weight, bias, recurrent, unit, gate (0 if not needed), decay and state."""
        packed, plan, operands = self.packed, self.packed.plan, self.packed.operands
        grad_x, grad_weight, grad_bias = packed.project_backward(self.drive)
        gate = operands.gate
        if gate_needs_grad:
            grad_gate = gate_gradient(packed, self.states, self.inflow, self.suffix)
        else:
            grad_gate = torch.zeros_like(gate, memory_format=torch.contiguous_format)
        grad_state = self.state.unflatten(0, (packed.batch, packed.heads))
        decay_dtype = self.states.dtype
        if operands.decay is None:
            grad_state[..., 0, :] += self.suffix[0] * ~plan.is_open[0].unsqueeze(-1)
        else:
            decay_dtype = operands.decay.dtype
        self.decay[:, 0] = 0  # by contract a constant
        unsorted = plan.head_rank
        recurrent, unit = operands.recurrent, operands.unit
        return (
            grad_x,
            grad_weight.to(operands.weight.dtype),
            grad_bias.to(operands.bias.dtype),
            self.recurrent[unsorted].view_as(recurrent).to(recurrent.dtype),
            self.unit[unsorted].transpose(0, 1).contiguous().to(unit.dtype),
            grad_gate.to(gate.dtype),
            self.decay[unsorted].to(decay_dtype),
            grad_state.to(self.states.dtype),
        )

    def _chunk(self, first: int, last: int) -> None:
        """Blocks [first, last): derivatives in parallel, the loop, then sums in parallel."""
        packed, plan = self.packed, self.packed.plan
        rows = slice(packed.rows(first).start, packed.rows(last - 1).stop)
        before, slope, unread = self._linearize(rows, first, last)
        by_rec_slope = slope.wrt_drive if slope.wrt_rec is None else slope.wrt_rec
        segment = self.flat_suffix.index_select(0, packed.readable[rows])
        if packed.padding is not None:
            segment.masked_fill_(packed.padding[rows].unsqueeze(-1), 0.0)
        power = None if packed.decay is None else packed.carry_power(rows)
        gate = packed.gate(rows) if packed.masked else None
        adjoint = self.inflow[rows].clone()  # filled block by block
        by_rec = torch.empty_like(by_rec_slope[:, 0])
        for k in range(last - 1, first - 1, -1):
            n, a = plan.heads[k], plan.sequences[k]
            own = packed.rows(k)
            here = slice(own.start - rows.start, own.stop - rows.start)
            arriving = self.inflow[own]
            at = adjoint[here].copy_(arriving if power is None else arriving * power[here])
            at[:, 0] += segment[here]
            by_proposal = at if gate is None else at * gate[here]
            if unread is not None:
                by_proposal = torch.where(unread[here], 0.0, by_proposal)
            by_rec[here] = pull(by_proposal, by_rec_slope[here])
            by_before = pull(by_proposal, slope.wrt_state[here])
            if gate is not None:
                kept = at - by_proposal
                by_before += kept if packed.decay is None else kept * packed.decay_of(own)
            flat = by_rec[here].view(n, a, -1)
            by_before[:, 0] += torch.bmm(flat, packed.recurrent[:n]).flatten(0, 1)
            if unread is not None and packed.padding is not None:
                by_before.masked_fill_(packed.padding[own, None, None], 0.0)
            by_before = packed.cut(by_before, own)
            output = before[here, 0].view(n, a, -1)
            self.recurrent[:n].baddbmm_(flat.transpose(1, 2), output)
            plan.block(self.inflow, k - 1)[:n, :a] += by_before.view(n, a, *by_before.shape[1:])

        by_proposal = adjoint if gate is None else adjoint * gate
        if unread is not None:
            by_proposal = torch.where(unread, 0.0, by_proposal)
        self.drive[rows] = by_rec if slope.wrt_rec is None else pull(by_proposal, slope.wrt_drive)
        head = plan.head_rank[plan.head[rows]]
        if slope.wrt_unit is not None:
            self.unit.index_add_(0, head, pull(by_proposal, slope.wrt_unit))
        if packed.decay is not None:
            if gate is not None:
                by_kept = adjoint - by_proposal
                self.decay.index_add_(0, head, torch.where(by_kept == 0, 0.0, by_kept * before))
            self._by_carry_power(rows)

    def _linearize(
        self, rows: slice, first: int, last: int
    ) -> tuple[Tensor, Linearization, Tensor | None]:
        """States before events and derivatives there; and, if these must be hidden, unread units.

        The gradient of a unit that reads nothing is 0. A product with 0 is 0 only if the other
        number is finite.
        """
        before, slope = self.packed.linearize(self.drives, self.states, first, last)
        unread = self.packed.unread(rows)
        if unread is None:
            return before, slope, None
        self.guarded = self.guarded or not _are_finite(before, *slope)
        if not self.guarded:
            return before, slope, None
        return *_hide_unread(unread, before, slope), unread

    def _at_events(self, rows: slice) -> Tensor:
        """The inflow of these rows, pulled back over the carry to the event itself."""
        if self.packed.decay is None:
            return self.inflow[rows]
        self._by_carry_power(rows)
        return self.inflow[rows] * self.packed.carry_power(rows)

    def _by_carry_power(self, rows: slice) -> None:
        """Add the decay's gradient through the closed steps that follow these events."""
        plan = self.packed.plan
        by_power = self.inflow[rows] * self.states[rows].to(self.packed.dtype)
        head = plan.head_rank[plan.head[rows]]
        slope = self.packed.carry_power_slope(rows)
        # A state that decays over no step has no part in the gradient, whatever its value is.
        self.decay.index_add_(0, head, torch.where(slope == 0, 0.0, by_power * slope))


def _are_finite(*tensors: Tensor | None) -> bool:
    return all(bool(v.sum().isfinite()) for v in tensors if v is not None)


def _hide_unread(
    unread: Tensor, before: Tensor, slope: Linearization
) -> tuple[Tensor, Linearization]:
    """States and derivatives, 0 where nothing reads them: their products with 0 must be 0."""
    everywhere = unread.unsqueeze(-2)  # over the C rows of derivatives too
    hidden = slope._replace(
        **{k: torch.where(everywhere, 0.0, v) for k, v in slope._asdict().items() if v is not None}
    )
    ended = unread.all(-1, keepdim=True)  # units read the states of the whole head
    return torch.where(ended, 0.0, before), hidden


def pull(adjoint: Tensor, slope: Tensor) -> Tensor:
    """Vector-Jacobian product: [..., C, D] with [..., C, X, D] gives [..., X, D]."""
    if adjoint.shape[-2] == 1:
        return adjoint * slope[..., 0, :, :]
    return (adjoint.unsqueeze(-2) * slope).sum(-3)


def segment_suffix_sums(values: Tensor, index: Tensor) -> Tensor:
    """Sum of ``values`` [T, B, N, D] from t to the end of t's segment, for every t.

    A segment is a stretch of equal ``index`` [T, b, N], which is non-decreasing. Done in chunks of
    about sqrt(T) steps, first inside all chunks at once, then across them: depth 2 sqrt(T), two
    passes over memory.
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
