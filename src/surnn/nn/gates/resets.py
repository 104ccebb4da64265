"""Schedules of clock gates whose sequences restart."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from ..resets import last_reset, restart_clock
from ..runtime import can_branch_on

if TYPE_CHECKING:
    from .base import Gate, Schedule


def look_up(gate: "Gate", t: Tensor, memory: Tensor, reset: Tensor) -> "Schedule":
    """The schedule of a gate that reads the clock alone, with resets: [T, B, width].

    All sequences pass through the same time steps after a reset. They are computed once, for the
    whole batch, and looked up.
    """
    if t.shape[1] > 1:  # every sequence has its own clock before its first reset
        return gate._schedule(restart_clock(t, reset), None, memory)[0]
    steps = torch.arange(t.shape[0], device=t.device)[:, None]
    start = last_reset(reset)
    row, table = torch.where(start < 0, steps, steps - start), t
    if not (t.is_cpu and can_branch_on(t) and int(t[0, 0]) == 1):
        row, table = row + torch.where(start < 0, t.shape[0], 0), torch.cat((steps + 1, t))
    schedule, _ = gate._schedule(table, None, memory)
    g = functional.embedding(row, schedule.g[:, 0])  # its gradient sums in a fixed order
    relevant = None if schedule.relevant is None else schedule.relevant[:, 0][row]
    return type(schedule)(g, relevant)
