"""The contract of all backends: the shapes and the recurrence of a scan, and event lists.

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

A sequence stops at its length: later time steps change nothing and give y = 0. The projection is
computed in x's dtype, the recurrence in the state's; y has x's dtype. The backend computes the
projection, so that it too can be restricted to events.

A reset before step t replaces ``state_{t-1}`` of a sequence by zeros, in all heads, whatever it
was and whether or not any unit is open at t. No gradient passes through it, not even a NaN. What
follows is therefore a sequence of its own, from the zero state.

A closed unit reads nothing, whatever the numbers are. A unit is closed where g is exactly 0, and
past its sequence's length. This is the law for NaN and infinity, forward and backward:

* ``state_t`` is ``kept_t``, bit for bit, also where f_t or kept_t is not finite. Likewise
  ``state_t`` is f_t at g = 1, whatever kept_t is.
* No gradient passes through f_t. The gradients by the closed unit's drive, recurrent input,
  parameters and state (through f_t) are exactly 0, also where a derivative of the cell is not
  finite. The gradient by kept_t is the adjoint itself.
* A head that has no event at step t reads neither x_t nor its own state, and multiplies neither by
  its weights: gradients by x_t, weights and biases get exactly 0 from there. At an event the
  matrix products of the whole head are computed. x_t, states or weights of that head that are not
  finite make the gradients there that they enter not finite, as IEEE arithmetic says. (``native``
  leaves out the zeros of closed units there.)
* The gradient by the gate is the sum over components (and over the units and sequences that share
  the gate) of the adjoint times ``f_t - kept_t``, at open and closed steps. A component whose
  ``f_t - kept_t`` is not finite counts as 0.
"""

from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor

from surnn.nn.cells import Cell, get_cell
from surnn.nn.runtime import can_branch_on

# Places (step, sequence, head) that an event list is built from at once.
_LIST_ELEMENTS = 1 << 22


@dataclass(frozen=True, kw_only=True)
class ScanOperands:
    """The operands that the forward and the backward pass of a scan both read.

    Functions take them as this one structure. Only a ``torch.library`` schema must be flat: see
    :mod:`surnn.scan.operators`.
    """

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
    decay: Tensor | None = None
    """[N, C, D]: the factor by which a carry multiplies the state; None is 1, the exact carry. If
    set, component 0 is the constant 0: a unit that carries emits nothing. Component 0 of such a
    state is a spike, 0 or 1."""
    lengths: Tensor | None = None
    """[B]: time steps of each sequence; None means all T."""
    relevant: Tensor | None = None
    """[T, b, N] bool: where the gate's gradient is needed; None means everywhere. Steps at which
    the surrogate's derivative is exactly 0 may be left out without loss."""
    reset: Tensor | None = None
    """[T, B] bool: the sequence's state is zero before this step; None means nowhere."""
    cell: Cell
    binary: bool = True

    def flat(self) -> tuple[Any, ...]:
        """The arguments of an operator: all fields in order, the cell by its name."""
        return (*self.tensors(), self.cell.name, self.binary)

    def tensors(self) -> tuple[Tensor | None, ...]:
        """The tensor fields, in order."""
        return tuple([getattr(self, name) for name in _TENSORS])

    @classmethod
    def from_flat(cls, arguments: Any) -> "ScanOperands":
        """The inverse of :meth:`flat`."""
        *tensors, cell, binary = arguments
        named = dict(zip(_TENSORS, tensors, strict=True))
        return ScanOperands(**named, cell=get_cell(cell), binary=binary)  # type: ignore[arg-type]

    def replace(self, **changes: Any) -> Self:
        """A copy with other values in some fields. (``torch.compile`` traces this one.)"""
        return type(self)(**{**self.__dict__, **changes})


_TENSORS = tuple(
    field.name for field in fields(ScanOperands) if field.name not in ("cell", "binary")
)


@dataclass(frozen=True, kw_only=True)
class ScanInputs(ScanOperands):
    """Everything a backend needs to run one layer in one direction."""

    state: Tensor
    """[B, N, C, D]: the state before the first step."""
    learned_gate: bool = False
    """Whether some pass may ask for the gate's gradient, even if this one does not."""
    skip_drive: float | None = None
    """C of the ``onepass`` backend; None is the exact one."""
    max_rate: float | None = None
    """Capacity of the ``triton`` backend, as a share of time steps; None is as much as needed."""
    recompute: bool = False
    """Whether the ``triton`` backend's backward pass projects x again instead of storing it."""

    @property
    def traits(self) -> "ScanTraits":
        """The properties by which a backend is chosen."""
        return ScanTraits(
            cell=self.cell,
            width=self.weight.shape[2],
            device=self.x.device,
            dtype=self.x.dtype,
            state_dtype=self.state.dtype,
            unit_gates=self.gate.shape[-1] > 1,
            binary=self.binary,
            learned_gate=self.learned_gate or self.gate.requires_grad,
            resets=self.reset is not None,
        )

    def closed_past_length(self) -> Tensor:
        """The gate with all time steps past a sequence's length closed: [T, b, N, m]."""
        if self.lengths is None:
            return self.gate
        alive = step_mask(self.x.shape[0], self.lengths)
        return torch.where(alive[:, :, None, None], self.gate, 0.0)


@dataclass(frozen=True, kw_only=True)
class ScanTraits:
    """The properties of a scan on which the choice of its backend depends.

    A layer knows them before it runs. None of them depends on the values of tensors or on whether
    gradients are enabled, so a layer runs on the same backend in training and in evaluation.
    """

    cell: Cell
    width: int
    """D: units per head."""
    device: torch.device
    dtype: torch.dtype
    """The dtype of x, in which the input projection is computed."""
    state_dtype: torch.dtype
    unit_gates: bool
    """Whether the units of a head have several gates (m > 1), one per unit or group of units."""
    binary: bool
    """Whether gates are exactly 0 or 1."""
    learned_gate: bool
    """Whether the gate's gradient may be asked for: not if it is frozen or has no parameters."""
    resets: bool = False
    """Whether sequences are reset inside the scan."""


def input_projection(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[..., I] by [N, S, D, I] -> the drive [..., N, S, D], in x's dtype."""
    flat = torch.nn.functional.linear(
        x, weight.flatten(0, 2).to(x.dtype), bias.flatten().to(x.dtype)
    )
    return flat.unflatten(-1, weight.shape[:3])


@dataclass(frozen=True)
class EventList:
    """The events of each head: the time steps at which any of its units is open.

    A reset is an event too, of every head, also where all units are closed: the state changes.

    There is one list per head (b = 1, clock gates) or per sequence and head (b = B, gates that see
    the input, or sequences of different lengths). Every event-driven backend works on such lists,
    each in its own layout: ``events`` builds this class, ``triton`` builds
    :class:`surnn.scan.triton.lists.DeviceEventList` on the device. Their ``index`` is the same.
    """

    index: Tensor
    """[T, b, N] int32: events up to and including step t. The state after step t is that of event
    number ``index - 1``, or the initial state where ``index`` is 0."""
    time: Tensor
    """[E, b, N] int32: the step of event e, padded with T; E is the longest list's length."""
    count: Tensor
    """[b, N] int32: events of each list."""


def open_heads(gate: Tensor, reset: Tensor | None = None) -> Tensor:
    """[T, b, N] bool: a head has an event where any of its units is open, and at a reset."""
    is_open = (gate != 0).any(-1)
    return is_open if reset is None else is_open | reset.unsqueeze(-1)


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
    # One row past the end takes every closed step's write, and is cut off again. Some steps at a
    # time: 64-bit places for all of them would take more memory than the list.
    when = torch.arange(steps, dtype=torch.int32, device=is_open.device)[:, None, None]
    time = index.new_full((capacity + 1, *is_open.shape[1:]), steps)
    chunk = max(1, _LIST_ELEMENTS // max(1, is_open[:1].numel()))
    for first in range(0, steps, chunk):
        now = slice(first, first + chunk)
        number = index[now]
        slot = torch.where(is_open[now] & (number <= capacity), number - 1, capacity).long()
        time.scatter_(0, slot, when[now].expand_as(slot))
    return EventList(index, time[:capacity], count)


def step_mask(steps: int, lengths: Tensor) -> Tensor:
    """[T, B] bool: time step t of sequence b is inside its length."""
    return torch.arange(steps, device=lengths.device)[:, None] < lengths


def blend(kept: Tensor, proposed: Tensor, gate: Tensor) -> Tensor:
    """``kept`` where the gate is 0 and ``proposed`` where it is 1, bit for bit.

    ``lerp`` is exact at both ends if all numbers are finite, where
    ``kept + gate * (proposed - kept)`` misses ``proposed`` one time in three. Its gradient by the
    gate is ``proposed - kept``, open or closed. This function is exact for all numbers, and a
    change that is not finite counts as 0 in the gate's gradient.
    """
    change = proposed - kept
    if can_branch_on(change) and change.isfinite().all():
        return torch.lerp(kept, proposed, gate)
    change = torch.where(change.isfinite(), change, 0.0)
    # The term is exactly 0, and its derivative by the gate is the change.
    return select(kept, proposed, gate.detach()) + (gate - gate.detach()) * change


def select(kept: Tensor, proposed: Tensor, gate: Tensor) -> Tensor:
    """The values of :func:`blend`, without its gradient by the gate."""
    between = torch.lerp(kept, proposed, gate)
    between = torch.where(between.isfinite(), between, kept + gate * (proposed - kept))
    return torch.where(gate == 0, kept, torch.where(gate == 1, proposed, between))
