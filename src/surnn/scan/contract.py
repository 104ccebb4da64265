"""What every backend agrees on: the shapes of a scan, and the event list.

Legend, used in all of :mod:`surnn.scan`::

    T  time steps          N  heads               C  state components
    B  sequences           D  units per head      P  per-unit parameters
    b  B, or 1 if shared   S  drives per unit     m  D, or 1 if the head shares a gate

The recurrence, per head (``g`` = 1 updates, ``g`` = 0 carries)::

    drive_t = weight @ x_t + bias
    rec_t   = recurrent @ state_{t-1}[component 0]
    f_t     = cell.update(drive_t, rec_t, state_{t-1})
    kept_t  = decay * state_{t-1}                     # decay is 1 for all but spiking cells
    state_t = kept_t + g_t * (f_t - kept_t)           # exactly kept_t at g = 0, f_t at g = 1
    y_t     = state_t[component 0]

A sequence stops at its length: later steps change nothing and give y = 0. The projection is done
in x's dtype, the recurrence in the state's; y has x's. The projection is the backend's business,
so that it too may be done at events only.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..cells import Cell


@dataclass(frozen=True)
class ScanInputs:
    """All that a backend needs to run one layer in one direction."""

    cell: Cell
    x: Tensor
    """[T, B, I]: the layer's input."""
    weight: Tensor
    """[N, S, D, I]: input weights, head by head."""
    bias: Tensor
    """[N, S, D]: all biases that simply add to the input projection."""
    recurrent: Tensor
    """[N, S, D, D]: rows are outputs, as in ``nn.GRU.weight_hh``."""
    unit: Tensor
    """[P, N, D]: per-unit parameters of the cell (P may be 0)."""
    gate: Tensor
    """[T, b, N, m]: 1 updates, 0 carries; fractions only where ``binary`` is False."""
    state: Tensor
    """[B, N, C, D]: the state before the first step."""
    decay: Tensor | None = None
    """[N, C, D]: what a carry multiplies the state by; None is 1, the exact carry. Where given,
    component 0 is the constant 0: a unit that carries puts out nothing."""
    lengths: Tensor | None = None
    """[B]: steps of each sequence; None means all T."""
    relevant: Tensor | None = None
    """[T, b, N] bool: where the gate's gradient is wanted; None means everywhere. Steps where
    the surrogate's derivative is exactly 0 may be left out at no loss."""
    binary: bool = True
    skip_drive: float | None = None
    """C of the ``onepass`` backend; None is the exact one."""
    max_rate: float | None = None
    """Room of the ``triton`` backend, as a share of steps; None is what the events need."""
    recompute: bool = False
    """Whether the ``triton`` backend's backward pass projects x again instead of keeping it."""

    def closed_past_length(self) -> Tensor:
        """The gate with all steps past a sequence's length closed: [T, b, N, m]."""
        if self.lengths is None:
            return self.gate
        alive = step_mask(self.x.shape[0], self.lengths)
        return self.gate * alive[:, :, None, None].to(self.gate.dtype)


def input_projection(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[..., I] by [N, S, D, I] -> the drive [..., N, S, D], in x's dtype."""
    flat = torch.nn.functional.linear(
        x, weight.flatten(0, 2).to(x.dtype), bias.flatten().to(x.dtype)
    )
    return flat.unflatten(-1, weight.shape[:3])


@dataclass(frozen=True)
class EventList:
    """When each head updates: the contract between gates and event-driven kernels.

    A head's *events* are the steps at which any of its units is open. Lists are per head (b = 1,
    clock gates) or per sequence and head (b = B, gates that see the input).
    """

    index: Tensor
    """[T, b, N] int32: events up to and including step t, so that the state after step t is
    that of event number ``index - 1``, or the initial state where it is 0."""
    time: Tensor
    """[E, b, N] int32: the step of event e, padded with T; E is the longest list's length."""
    count: Tensor
    """[b, N] int32: events of each list."""


def open_heads(gate: Tensor) -> Tensor:
    """[T, b, N] bool: a head has an event where any of its units is open."""
    return (gate != 0).any(-1)


def event_list(is_open: Tensor, capacity: int | None = None) -> EventList:
    """The event list of ``is_open`` [T, b, N].

    ``capacity`` fixes E, so that no size depends on data; by default E is the longest list's
    length, which costs a host synchronisation on a GPU. Events past the capacity are dropped:
    compare ``count`` with it where that may happen.
    """
    steps = is_open.shape[0]
    index = is_open.cumsum(0, dtype=torch.int32)
    count = index[-1] if steps else index.new_zeros(is_open.shape[1:])
    if capacity is None:
        capacity = int(count.max()) if count.numel() else 0
    # One row past the end takes every closed step's write, and is cut off again.
    slot = torch.where(is_open & (index <= capacity), index - 1, capacity).long()
    when = torch.arange(steps, dtype=torch.int32, device=is_open.device)
    time = index.new_full((capacity + 1, *is_open.shape[1:]), steps)
    time.scatter_(0, slot, when[:, None, None].expand_as(index))
    return EventList(index, time[:capacity], count)


def step_mask(steps: int, lengths: Tensor) -> Tensor:
    """[T, B] bool: step t of sequence b is inside its length."""
    return torch.arange(steps, device=lengths.device)[:, None] < lengths


def blend(kept: Tensor, proposed: Tensor, gate: Tensor) -> Tensor:
    """``kept`` where the gate is 0 and ``proposed`` where it is 1, bit for bit.

    ``lerp`` is exact at both ends, where ``kept + gate * (proposed - kept)`` misses
    ``proposed`` one time in three; its gradient by the gate is ``proposed - kept``, open or
    closed. A proposal that is not finite cannot leak through a closed gate.
    """
    unread = (gate == 0) & ~proposed.isfinite()
    return torch.lerp(kept, torch.where(unread, kept, proposed), gate)
