"""The event scan forwards: a serial loop over events, earliest first."""

import torch
from torch import Tensor

from ..contract import select
from .packed import PackedScan


def run_forward(
    packed: PackedScan, state: Tensor, rows: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Outputs [T, B, N, D], last state [B, N, C, D], and packed states and drives at events.

    ``rows`` is the number of packed rows to allocate; 0 allocates as many as the events need.
    """
    plan = packed.plan
    rows = rows or plan.rows
    if plan.rows > rows:
        raise ValueError(f"{plan.rows} event states do not fit into {rows} rows; allocate more")
    drives = packed.x.new_empty(rows, packed.drives, packed.width)
    packed.project(drives)
    states = state.new_empty(rows, *state.shape[2:])
    states[packed.rows(0)] = state.flatten(0, 1)[plan.initial_source]
    for k in range(1, plan.blocks):
        drive, rec, before, unit = packed.update_arguments(drives, states, k)
        new = packed.cell.update(drive, rec, before, unit)
        if packed.masked:
            kept = before if packed.decay is None else before * packed.decay[: len(before)]
            gate = packed.gate(packed.rows(k)).unflatten(0, new.shape[:2])
            if packed.operands.binary:
                new = torch.where(gate != 0, new, kept)
            else:
                new = select(kept, new, gate.expand_as(new))
        if packed.padding is not None:
            ended = packed.padding[packed.rows(k)].view(*new.shape[:2], 1, 1)
            new = torch.where(ended, before, new)
        plan.block(states, k).copy_(new)
    y, last = _unpack(packed, states)
    return y, last, states, drives


def _unpack(packed: PackedScan, states: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and the last state, by step, from the packed event states."""
    plan, decay = packed.plan, packed.operands.decay
    index, output = plan.events.index, states[:, 0]
    y = packed.x.new_empty(packed.steps, packed.batch, packed.heads, packed.width)
    # Some steps at a time: 64-bit rows for all of them would take more memory than y.
    chunk = max(1, packed.chunk_elements // (packed.batch * packed.heads * packed.width))
    for first in range(0, packed.steps, chunk):
        now = slice(first, first + chunk)
        row = plan.row_of(index[now].long())
        part = output.index_select(0, row.flatten()).view(*row.shape, packed.width)
        if decay is not None:
            part.masked_fill_(~plan.is_open[now].unsqueeze(-1), 0.0)
        y[now] = part
    row = plan.row_of(index[-1:].long())[0]
    last = states[row]
    if decay is not None:
        assert packed.closed_after is not None
        last = last * decay ** packed.closed_after[row][..., None, None].to(decay.dtype)
    return y, last
