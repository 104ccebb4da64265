"""The gate's gradient of the event scan: exact at open and closed steps, all in parallel.

dL/dg_t is the adjoint of the state after step t times (proposal - kept). A closed step's proposal
starts from the carried state and feeds nothing, so no step waits for another.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..contract import event_list, input_projection
from .packed import PackedScan


def gate_gradient(packed: PackedScan, states: Tensor, inflow: Tensor, suffix: Tensor) -> Tensor:
    """dL/dg [T, b, N, m], at least where the operand ``relevant`` [T, b, N] is True.

    Args:
        packed: the scan.
        states: packed event states.
        inflow: packed gradients by the states, as they are just before the next event.
        suffix: [T, B, N, D] output gradients summed to the end of the segment.
    """
    steps, gate, relevant = packed.steps, packed.operands.gate, packed.operands.relevant
    dense = relevant is None or not packed.gathering_pays(relevant.float().mean().item())
    if relevant is None or dense:
        when = torch.arange(steps, device=gate.device)[:, None, None]  # [T, 1, 1]
    else:
        when = event_list(relevant).time.long()  # [Q, b, N], padded with T
    grad = gate.new_zeros(steps + 1, *gate.shape[1:], dtype=packed.dtype)
    chunk = max(
        1, packed.chunk_elements // (packed.batch * packed.heads * packed.drives * packed.width)
    )
    flat_suffix = suffix.reshape(-1, packed.width)
    for first in range(0, when.shape[0], chunk):
        t = when[first : first + chunk]
        place = t.expand(t.shape[0], *gate.shape[1:3])
        change = _change_times_adjoint(
            packed, states, inflow, flat_suffix, t, dense
        )  # [N, q, B, D]
        if gate.shape[-1] == 1:
            change = change.sum(-1, keepdim=True)
        if packed.plan.shared:
            change = change.sum(2, keepdim=True)
        grad.scatter_(
            0, place[..., None].expand(*place.shape, gate.shape[-1]), change.permute(1, 2, 0, 3)
        )
    return grad[:-1].contiguous()


def _change_times_adjoint(
    packed: PackedScan, states: Tensor, inflow: Tensor, flat_suffix: Tensor, t: Tensor, dense: bool
) -> Tensor:
    """(proposal - kept) times the adjoint, [N, q, B, D], at steps t [q, 1 or b, 1 or N].

    ``dense`` says that t is a run of consecutive steps, for all heads alike.
    """
    plan, dtype = packed.plan, packed.dtype
    batch, heads = packed.batch, packed.heads
    inside = t.clamp(max=packed.steps - 1)  # the results of padding are dropped
    listed = inside.expand(-1, plan.gate_batch, heads)
    index = plan.events.index.long()
    now = index.gather(0, listed)
    earlier = torch.where(listed > 0, index.gather(0, (listed - 1).clamp(min=0)), 0)
    place = inside * batch + torch.arange(batch, device=t.device)[:, None]  # [q, B, 1 or N]
    head = torch.arange(heads, device=t.device)

    def rows(packed: Tensor, per_step: Tensor) -> Tensor:  # [q, B, N] -> [N, q * B, ...]
        order = per_step.expand(-1, batch, heads).permute(2, 0, 1).flatten()
        return packed.index_select(0, order).unflatten(0, (heads, -1))

    row_now, row_before = plan.row_of(now), plan.row_of(earlier)
    before = rows(states, row_before).to(dtype)
    adjoint = rows(inflow, row_now)
    kept = before
    if packed.decay is not None:
        before, adjoint = _carry(packed, rows, inside, row_before, row_now, before, adjoint)
        kept = before * packed.decay[plan.head_rank]
    if packed.operands.reset is not None:
        fresh = rows(packed.operands.reset.flatten(), place.expand(-1, batch, heads))
        before, kept = (torch.where(fresh[..., None, None], 0.0, v) for v in (before, kept))
    adjoint[..., 0, :] += rows(flat_suffix, place * heads + head)
    drive = _drive_at(packed, place, dense)
    rec = torch.bmm(before[:, :, 0], packed.recurrent_t[plan.head_rank]).view(drive.shape)
    proposed = packed.cell.update(drive, rec, before, packed.unit[:, plan.head_rank].unbind(0))
    change = proposed - kept
    if not change.sum().isfinite():
        # By contract: a change that is not finite counts as 0.
        change = torch.where(change.isfinite(), change, 0.0)
    product = (adjoint * change).sum(-2) if change.shape[-2] > 1 else (adjoint * change)[..., 0, :]
    return product.view(heads, -1, batch, packed.width)


def _drive_at(packed: PackedScan, place: Tensor, dense: bool) -> Tensor:
    """The input projection [N, q * B, S, D] at rows ``place`` [q, B, 1 or N] of x."""
    flat_x = packed.x.flatten(0, 1)
    if dense:
        x = flat_x[int(place[0, 0, 0]) : int(place[-1, -1, 0]) + 1]  # consecutive steps
        return input_projection(x, packed.weight, packed.bias).transpose(0, 1).to(packed.dtype)
    places = place.expand(-1, packed.batch, packed.heads).permute(2, 0, 1).flatten(1)  # [N, q * B]
    return torch.stack([packed.project_head(n, p) for n, p in enumerate(places)]).to(packed.dtype)


def _carry(
    packed: PackedScan,
    rows: Callable[[Tensor, Tensor], Tensor],
    time: Tensor,
    row_before: Tensor,
    row_now: Tensor,
    before: Tensor,
    adjoint: Tensor,
) -> tuple[Tensor, Tensor]:
    """States carried up to step t, and adjoints carried back to it, where carries decay."""
    assert packed.decay is not None
    assert packed.closed_after is not None
    plan = packed.plan
    decay = packed.decay[plan.head_rank]
    now = rows(time.expand_as(row_now).reshape(-1), _positions(row_now))
    waited = now - rows(plan.event_step, row_before) - 1
    ahead = rows(packed.closed_after, row_now) - (now - rows(plan.event_step, row_now))
    return (
        before * decay ** waited[..., None, None].to(packed.dtype),
        adjoint * decay ** ahead.clamp(min=0)[..., None, None].to(packed.dtype),
    )


def _positions(like: Tensor) -> Tensor:
    return torch.arange(like.numel(), device=like.device).view_as(like)
