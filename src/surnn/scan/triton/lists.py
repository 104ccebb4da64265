"""Event lists on the device, in the layout of :mod:`surnn.scan.triton.tiles`."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from surnn.nn.kernel_launch import launch
from surnn.nn.runtime import cdiv, next_power_of_2

from ..contract import open_heads

# One program lists the events of at most so many heads and steps.
MOST_HEADS, MOST_STEPS = 64, 4096


@dataclass(frozen=True)
class DeviceEventList:
    """The events of every head: the kernels' form of :class:`surnn.scan.contract.EventList`."""

    index: Tensor
    """[T, b, N] int32: events up to and including a step."""
    time: Tensor
    """[positions] int32: the step of each event; -1 before a list's first, T after its last."""
    sequence: Tensor
    """[positions] int32: the sequence of each position; [0] where lists are shared."""
    first: Tensor
    """[N * b + 1] int64: the first position of each list, and the total."""

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


def _shared_lists(is_open: Tensor) -> DeviceEventList:
    """The lists of gates [T, 1, N] by one launch, for sequences that are not long."""
    steps, _, heads = is_open.shape
    device, wide = is_open.device, next_power_of_2(heads)
    index = torch.empty((steps, 1, heads), dtype=torch.int32, device=device)
    first = torch.empty(heads + 1, dtype=torch.int64, device=device)
    time = torch.empty(heads * (steps + 2), dtype=torch.int32, device=device)
    launch(
        shared_lists_kernel, (1,), is_open, index, first, time, steps, heads, BC=wide,
        TC=4096 // wide,
    )  # fmt: skip
    return DeviceEventList(index, time[: int(first[-1])], first.new_empty(0), first)


def make_lists(
    gate: Tensor, capacity: int | None, reset: Tensor | None = None
) -> tuple[DeviceEventList, Tensor | None]:
    """The lists of a gate [T, b, N, m], and of resets [T, b].

    ``capacity`` is the number of positions to allocate, so that no size depends on data; None
    allocates as many as needed, for which the host has to wait. The second
    result is None if the events always fit. Otherwise it says whether they do; if not, the lists
    are empty.
    """
    steps, lists, heads, units = gate.shape
    device, columns = gate.device, lists * heads
    if units == 1 and reset is None:
        is_open = gate.contiguous()
    else:
        is_open = open_heads(gate, reset).view(torch.uint8)
    if lists == 1 and heads <= MOST_HEADS and capacity is None and steps <= MOST_STEPS:
        return _shared_lists(is_open.view(steps, 1, heads)), None
    index = torch.empty((steps, lists, heads), dtype=torch.int32, device=device)
    count = torch.empty((lists, heads), dtype=torch.int32, device=device)
    first = torch.empty(columns + 1, dtype=torch.int64, device=device)
    wide = min(next_power_of_2(columns), 32)
    launch(
        index_kernel, (cdiv(columns, wide),), is_open, index, count, steps, columns, BC=wide,
        TC=4096 // wide,
    )  # fmt: skip
    launch(first_kernel, (1,), count, first, lists, heads, BLOCK=1024)
    fits = None
    if capacity is None:
        capacity = int(first[-1])
    elif capacity < columns * (steps + 2):
        fits = first[-1] <= capacity
        index = torch.where(fits, index, 0)
        first = torch.where(fits, first, 2 * torch.arange(columns + 1, device=device))
    time = torch.empty(capacity, dtype=torch.int32, device=device)
    shared = lists == 1
    sequence = torch.empty(0 if shared else capacity, dtype=torch.int32, device=device)
    launch(
        time_kernel, (cdiv(steps, 1024 // wide) * cdiv(columns, wide),), index, first, time,
        sequence, steps, lists, heads, SHARED=shared, BC=wide, TC=1024 // wide,
    )  # fmt: skip
    return DeviceEventList(index, time, sequence, first), fits
