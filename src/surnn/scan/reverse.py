"""The event scan backwards: a serial loop over events, latest first.

``inflow`` [rows, C, D] is the adjoint of an event state, carried to just before its next event,
that arrives from there (or from the end). The outputs' gradients over the segment in which the
state is carried add to it; that sum is the adjoint at the event itself. Only what one event hands
to the one before is serial; everything else is done for many events at once.
"""

import math

import torch
from torch import Tensor

from .walk import EventWalk


class ReverseWalk:
    """Gradients of an event scan, by everything but the gate.

    Args:
        walk: the scan.
        states: packed event states [rows, C, D].
        drives: packed drives [rows, S, D].
        suffix: [T, B, N, D] output gradients, summed to the end of each step's segment.
        grad_last: [B, N, C, D] gradient by the last state.
    """

    def __init__(
        self, walk: EventWalk, states: Tensor, drives: Tensor, suffix: Tensor, grad_last: Tensor
    ) -> None:
        self.walk, self.states, self.drives = walk, states, drives
        plan = walk.plan
        self.suffix = suffix.reshape(-1, walk.width)
        shape = (plan.rows, *states.shape[1:])
        self.inflow = torch.zeros(shape, dtype=walk.dtype, device=states.device)
        self.inflow[plan.row_of(plan.events.index[-1:].long())[0]] = grad_last.to(walk.dtype)
        self.drive = self.inflow.new_zeros(plan.rows, *drives.shape[1:])
        self.recurrent = torch.zeros_like(walk.recurrent)
        self.unit = torch.zeros_like(walk.unit[:, :, 0]).transpose(0, 1).contiguous()  # [N, P, D]
        self.decay = self.inflow.new_zeros(walk.heads, *states.shape[1:])
        for first, last in walk.chunks():
            self._chunk(first, last)
        initial = walk.rows(0)
        self.state = self._at_events(initial)[plan.initial_source.argsort()]

    def _chunk(self, first: int, last: int) -> None:
        """Blocks [first, last): derivatives in parallel, the loop, then sums in parallel."""
        walk, plan = self.walk, self.walk.plan
        rows = slice(walk.rows(first).start, walk.rows(last - 1).stop)
        before, slope = walk.linearize(self.drives, self.states, first, last)
        by_rec_slope = slope.wrt_drive if slope.wrt_rec is None else slope.wrt_rec
        segment = self.suffix.index_select(0, walk.readable[rows])
        if walk.padding is not None:
            segment.masked_fill_(walk.padding[rows].unsqueeze(-1), 0.0)
        power = None if walk.decay is None else walk.carry_power(rows)
        gate = walk.gate(rows) if walk.masked else None
        adjoint = self.inflow[rows].clone()  # filled block by block
        by_rec = torch.empty_like(by_rec_slope[:, 0])
        for k in range(last - 1, first - 1, -1):
            n, a = plan.heads[k], plan.sequences[k]
            own = walk.rows(k)
            here = slice(own.start - rows.start, own.stop - rows.start)
            arriving = self.inflow[own]
            at = adjoint[here].copy_(arriving if power is None else arriving * power[here])
            at[:, 0] += segment[here]
            by_proposal = at if gate is None else at * gate[here]
            by_rec[here] = pull(by_proposal, by_rec_slope[here])
            by_before = pull(by_proposal, slope.wrt_state[here])
            if gate is not None:
                kept = at - by_proposal
                by_before += kept if walk.decay is None else kept * walk.decay_of(own)
            flat = by_rec[here].view(n, a, -1)
            by_before[:, 0] += torch.bmm(flat, walk.recurrent[:n]).flatten(0, 1)
            output = before[here, 0].view(n, a, -1)
            self.recurrent[:n].baddbmm_(flat.transpose(1, 2), output)
            plan.block(self.inflow, k - 1)[:n, :a] += by_before.view(n, a, *by_before.shape[1:])

        by_proposal = adjoint if gate is None else adjoint * gate
        self.drive[rows] = by_rec if slope.wrt_rec is None else pull(by_proposal, slope.wrt_drive)
        head = plan.head_rank[plan.head[rows]]
        if slope.wrt_unit is not None:
            self.unit.index_add_(0, head, pull(by_proposal, slope.wrt_unit))
        if walk.decay is not None:
            if gate is not None:
                self.decay.index_add_(0, head, (adjoint - by_proposal) * before)
            self._by_carry_power(rows)

    def _at_events(self, rows: slice) -> Tensor:
        """What arrives, brought back over the carry to the event itself."""
        if self.walk.decay is None:
            return self.inflow[rows]
        self._by_carry_power(rows)
        return self.inflow[rows] * self.walk.carry_power(rows)

    def _by_carry_power(self, rows: slice) -> None:
        """The decay's gradient through the closed steps that follow these events."""
        plan = self.walk.plan
        by_power = self.inflow[rows] * self.states[rows].to(self.walk.dtype)
        head = plan.head_rank[plan.head[rows]]
        self.decay.index_add_(0, head, by_power * self.walk.carry_power_slope(rows))


def pull(adjoint: Tensor, slope: Tensor) -> Tensor:
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
