"""Event lists on the device, in the layout of :mod:`surnn.scan.triton.tiles`."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from surnn.nn.kernel_launch import launch
from surnn.nn.pieces import Piece, Spec, allocate
from surnn.nn.runtime import cdiv, next_power_of_2

from ..contract import open_heads

# One program lists the events of at most so many heads and steps.
MOST_HEADS, MOST_STEPS = 64, 4096


@dataclass(frozen=True)
class ListShape:
    """The shapes of a scan's event lists, and of their memory."""

    steps: int
    lists: int
    """b: 1 if the batch shares its lists."""
    heads: int
    at_once: bool = False
    """Whether one program makes them, with memory for all steps."""

    @property
    def columns(self) -> int:
        return self.lists * self.heads

    @property
    def most_positions(self) -> int:
        """Positions where every step is an event."""
        return self.columns * (self.steps + 2)

    @property
    def counts(self) -> list[Spec]:
        """``first``, ``index``, the events of each list, and ``time`` if made at once."""
        per_step = (self.steps, self.lists, self.heads)
        specs = [((self.columns + 1,), torch.int64), (per_step, torch.int32)]
        specs.append((per_step[1:], torch.int32))
        if self.at_once:
            specs.append(((self.most_positions,), torch.int32))
        return specs

    def positions(self, capacity: int) -> list[Spec]:
        """``time`` (unless made at once) and ``sequence``."""
        sequence = 0 if self.lists == 1 else capacity
        specs: list[Spec] = [((sequence,), torch.int32)]
        return specs if self.at_once else [((capacity,), torch.int32), *specs]


@dataclass(frozen=True)
class DeviceEventList:
    """The events of every head: the kernels' form of :class:`surnn.scan.contract.EventList`."""

    index: Piece
    """[T, b, N] int32: events up to and including a step."""
    time: Piece
    """[positions] int32: the step of each event; -1 before a list's first, T after its last."""
    sequence: Piece
    """[positions] int32: the sequence of each position; [0] where lists are shared."""
    first: Piece
    """[N * b + 1] int64: the first position of each list, and the total."""

    @classmethod
    def of_pieces(
        cls, shape: ListShape, capacity: int, counts: Sequence[Piece], positions: Sequence[Piece]
    ) -> "DeviceEventList":
        """The lists in the memory of ``shape.counts`` and ``shape.positions(capacity)``."""
        first, index, _, *time = counts
        if time:
            time = [Piece(time[0].buffer, time[0].offset, (capacity,), torch.int32)]
        else:
            time = positions[:1]
        return cls(index, time[0], positions[-1], first)

    @property
    def shared(self) -> bool:
        return self.index.shape[1] == 1

    def rows(self, batch: int) -> int:
        """Packed rows, padding included."""
        return self.time.shape[0] * (batch if self.shared else 1)


@triton.jit(do_not_specialize=["T"])
def index_kernel(GATE, INDEX, COUNT, T, COLUMNS, BC: tl.constexpr, TC: tl.constexpr):
    """Running counts of nonzero entries in [T, COLUMNS] along time, and their totals."""
    column = tl.program_id(0) * BC + tl.arange(0, BC)
    count = tl.zeros((BC,), tl.int32)
    for start in range(0, T, TC):
        t = start + tl.arange(0, TC)
        at = t.to(tl.int64)[:, None] * COLUMNS + column[None, :]
        mask = (t < T)[:, None] & (column < COLUMNS)[None, :]
        opened = (tl.load(GATE + at, mask=mask, other=0) != 0).to(tl.int32)
        tl.store(INDEX + at, tl.cumsum(opened, 0) + count[None, :], mask=mask)
        count += tl.sum(opened, 0)
    tl.store(COUNT + column, count, mask=column < COLUMNS)


@triton.jit(do_not_specialize=["LISTS"])
def first_kernel(COUNT, FIRST, LISTS, N, BLOCK: tl.constexpr):
    """Where each list begins, head by head, from its events [LISTS, N]; one program."""
    total = tl.cast(0, tl.int64)
    tl.store(FIRST, total)
    for start in range(0, LISTS * N, BLOCK):
        ordered = start + tl.arange(0, BLOCK)
        inside = ordered < LISTS * N
        n, b = ordered // LISTS, ordered % LISTS
        count = tl.load(COUNT + b * N + n, mask=inside, other=-2)
        size = (count + 2).to(tl.int64)
        tl.store(FIRST + 1 + ordered, total + tl.cumsum(size, 0), mask=inside)
        total += tl.sum(size, 0)


@triton.jit(do_not_specialize=["T", "B"])
def time_kernel(
    INDEX, FIRST, TIME, SEQUENCE, T, B, N, SHARED: tl.constexpr, BC: tl.constexpr, TC: tl.constexpr
):
    """Write each event's step to its position, and the two ends of every list."""
    columns = N if SHARED else N * B
    blocks = tl.cdiv(columns, BC)
    t = tl.program_id(0) // blocks * TC + tl.arange(0, TC)
    column = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    inside = column < columns
    b, n = column // N, column % N
    ordered = n if SHARED else n * B + b  # lists are stored head by head
    first = tl.load(FIRST + ordered, mask=inside, other=0)
    following = tl.load(FIRST + ordered + 1, mask=inside, other=0)
    mask = (t < T)[:, None] & inside[None, :]
    at = t.to(tl.int64)[:, None] * columns + column[None, :]
    now = tl.load(INDEX + at, mask=mask, other=0)
    before = tl.load(INDEX + at - columns, mask=mask & (t > 0)[:, None], other=0)
    event = mask & (now != before)
    place = first[None, :] + now
    tl.store(TIME + place, tl.broadcast_to(t[:, None], (TC, BC)), mask=event)
    ends = inside & (tl.program_id(0) < blocks)
    tl.store(TIME + first, tl.full((BC,), -1, tl.int32), mask=ends)
    tl.store(TIME + following - 1, tl.full((BC,), 0, tl.int32) + T, mask=ends)
    if not SHARED:
        whose = tl.broadcast_to(b[None, :], (TC, BC))
        tl.store(SEQUENCE + place, whose, mask=event)
        tl.store(SEQUENCE + first, b, mask=ends)
        tl.store(SEQUENCE + following - 1, b, mask=ends)


@triton.jit(do_not_specialize=["T"])
def shared_lists_kernel(
    GATE, INDEX, FIRST, TIME, T, N, BC: tl.constexpr, TC: tl.constexpr
):  # fmt: skip
    """All of the above for [T, N] in one program."""
    n = tl.arange(0, BC)
    inside = n < N
    count = tl.zeros((BC,), tl.int32)
    for start in range(0, T, TC):
        t = start + tl.arange(0, TC)
        mask = (t < T)[:, None] & inside[None, :]
        at = t[:, None] * N + n[None, :]
        opened = (tl.load(GATE + at, mask=mask, other=0) != 0).to(tl.int32)
        tl.store(INDEX + at, tl.cumsum(opened, 0) + count[None, :], mask=mask)
        count += tl.sum(opened, 0)
    size = tl.where(inside, count + 2, 0).to(tl.int64)
    end = tl.cumsum(size, 0)
    first = end - size
    tl.store(FIRST + n, first, mask=inside)
    tl.store(FIRST + 1 + n, end, mask=inside)
    tl.store(TIME + first, tl.full((BC,), -1, tl.int32), mask=inside)
    tl.store(TIME + end - 1, tl.full((BC,), 0, tl.int32) + T, mask=inside)
    count = tl.zeros((BC,), tl.int32)
    for start in range(0, T, TC):
        t = start + tl.arange(0, TC)
        mask = (t < T)[:, None] & inside[None, :]
        at = t[:, None] * N + n[None, :]
        opened = (tl.load(GATE + at, mask=mask, other=0) != 0).to(tl.int32)
        place = first[None, :] + tl.cumsum(opened, 0) + count[None, :]
        tl.store(TIME + place, tl.broadcast_to(t[:, None], (TC, BC)), mask=opened != 0)
        count += tl.sum(opened, 0)


def count_events(
    gate: Tensor, reset: Tensor | None, shape: ListShape
) -> tuple[Tensor, list[Piece]]:
    """The memory of ``shape.counts``, filled.

    Args:
        gate: contiguous, with the entries of [T, b, N, m].
        reset: [T, b] bytes, or None.
        shape: that of the lists.
    """
    is_open = gate
    units = gate.numel() // (shape.steps * shape.columns)
    if units > 1 or reset is not None:
        by_head = gate.view(shape.steps, shape.lists, shape.heads, units)
        is_open = open_heads(by_head, None if reset is None else reset != 0).view(torch.uint8)
    buffer, pieces = allocate(gate.device, shape.counts)
    first, index, count, *time = pieces
    if shape.at_once:
        wide = next_power_of_2(shape.heads)
        launch(
            shared_lists_kernel, (1,), is_open, index, first, *time, shape.steps, shape.heads,
            BC=wide, TC=4096 // wide,
        )  # fmt: skip
        return buffer, pieces
    wide = min(next_power_of_2(shape.columns), 32)
    launch(
        index_kernel, (cdiv(shape.columns, wide),), is_open, index, count, shape.steps,
        shape.columns, BC=wide, TC=4096 // wide,
    )  # fmt: skip
    launch(first_kernel, (1,), count, first, shape.lists, shape.heads, BLOCK=1024)
    return buffer, pieces


def write_positions(lists: DeviceEventList, shape: ListShape) -> None:
    """Write the steps of all events, unless :func:`count_events` has done so."""
    if shape.at_once:
        return
    wide = min(next_power_of_2(shape.columns), 32)
    launch(
        time_kernel, (cdiv(shape.steps, 1024 // wide) * cdiv(shape.columns, wide),), lists.index,
        lists.first, lists.time, lists.sequence, shape.steps, shape.lists, shape.heads,
        SHARED=lists.shared, BC=wide, TC=1024 // wide,
    )  # fmt: skip


def empty_unless_they_fit(lists: DeviceEventList) -> Tensor:
    """Whether there are positions for all events; if not, the lists become empty."""
    index, first = lists.index.tensor(), lists.first.tensor()
    fits = first[-1] <= lists.time.shape[0]
    index.masked_fill_(~fits, 0)
    empty = 2 * torch.arange(len(first), device=first.device)
    first.copy_(torch.where(fits, first, empty))
    return fits


@dataclass(frozen=True)
class ScanMemory:
    """The shapes of what a forward pass stores."""

    lists: ListShape
    capacity: int
    """Positions of the lists."""
    rows: int
    drives: tuple[int, int]
    """S, D; S is 0 if drives are not stored."""
    states: tuple[int, int]
    """C, D"""
    dtype: torch.dtype
    """Of drives."""
    state_dtype: torch.dtype

    @property
    def events(self) -> list[Spec]:
        """States and drives at events, then the positions of the lists."""
        states = (self.rows, *self.states), self.state_dtype
        drives = (self.rows, *self.drives), self.dtype
        return [states, drives, *self.lists.positions(self.capacity)]
