"""The two passes of a scan, from operands to results, as sequences of launches."""

from collections.abc import Sequence

import torch
from torch import Tensor

from surnn.nn.cells import get_cell
from surnn.nn.pieces import allocate, pieces_of, words
from surnn.nn.runtime import on_its_device

from . import launch
from .cells import KernelCell, kernel_cell
from .launch import EventGradients, WeightGradients
from .lists import (
    MOST_HEADS,
    MOST_STEPS,
    DeviceEventList,
    ListShape,
    ScanMemory,
    count_events,
    empty_unless_they_fit,
    write_positions,
)
from .operands import KernelOperands
from .sizes import ScanLaunch

# Up to so many bytes a forward pass takes memory for events at all steps and does not wait for
# their number.
UNCOUNTED_BYTES = 64 << 20


def kernel_cell_of(operands: KernelOperands) -> KernelCell:
    """The kernels' version of the operands' cell, which they must have."""
    cell = kernel_cell(get_cell(operands.cell))
    assert cell is not None
    return cell


def memory_of(
    operands: KernelOperands, state: Tensor, recompute: bool, lists: ListShape, capacity: int
) -> ScanMemory:
    """The shapes of what a forward pass stores for ``capacity`` positions."""
    batch = operands.x.shape[1]
    cell = kernel_cell_of(operands)
    return ScanMemory(
        lists=lists,
        capacity=capacity,
        rows=capacity * (batch if lists.lists == 1 else 1),
        drives=(0 if recompute else cell.drives, operands.width),
        states=(cell.components, operands.width),
        dtype=operands.x.dtype,
        state_dtype=state.dtype,
    )


def list_shape(operands: KernelOperands, capacity: int) -> ListShape:
    """The shape of the lists; without a capacity, those of a clock are made at once."""
    steps, lists = operands.gate.shape[:2]
    few = lists == 1 and operands.heads <= MOST_HEADS and steps <= MOST_STEPS
    return ListShape(steps, lists, operands.heads, at_once=capacity == 0 and few)


@on_its_device
def forward_pass(
    operands: KernelOperands, state: Tensor, precision: str, recompute: bool, capacity: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, ScanMemory]:
    """y [T, B, H], the last state [C, B, H], and what the backward pass needs: the memory of the
    event lists, that of states and drives at events, and their shapes.

    Args:
        operands: see :meth:`KernelOperands.readable`.
        state: [C, B, H], contiguous.
        precision: of products in float32.
        recompute: do not store drives.
        capacity: the number of list positions to allocate; 0 allocates as many as needed.
    """
    x = operands.x
    shape = list_shape(operands, capacity)
    counts, pieces = count_events(operands.gate, operands.reset, shape)
    counted = not capacity
    if counted:
        capacity = _positions(operands, state, recompute, shape, counts)
    memory = memory_of(operands, state, recompute, shape, capacity)
    events, (states, drives, *positions) = allocate(x.device, memory.events)
    lists = DeviceEventList.of_pieces(shape, capacity, pieces, positions)
    fits = None
    if not counted and capacity < shape.most_positions:
        fits = empty_unless_they_fit(lists)
    write_positions(lists, shape)
    if fits is not None:
        state = torch.where(fits, state, torch.nan)
    scan = ScanLaunch.prepare(operands, lists, precision)
    if recompute:
        full = (memory.rows, scan.plan.cell.drives, operands.width), x.dtype
        _, (drives,) = allocate(x.device, [full])
    y = x.new_empty(*x.shape[:2], operands.heads * operands.width)
    last = torch.empty_like(state)
    launch.project(scan, drives)
    launch.forward_over_events(scan, drives, states, state, last)
    launch.outputs(scan, states, y)
    if fits is not None and operands.decay is not None:
        y = torch.where(fits, y, torch.nan)  # without events, spikes would be 0 and look right
    return y, last, counts, events, memory


def _positions(
    operands: KernelOperands, state: Tensor, recompute: bool, shape: ListShape, counts: Tensor
) -> int:
    """Positions to allocate: for all steps if that is little, else as many as there are."""
    most = memory_of(operands, state, recompute, shape, shape.most_positions)
    if 8 * words(most.events) <= UNCOUNTED_BYTES:
        return shape.most_positions
    return int(counts[shape.columns])  # the host waits


@on_its_device
def backward_pass(
    operands: KernelOperands, grad_y: Tensor, grad_last: Tensor, saved: Sequence[Tensor],
    memory: ScanMemory, precision: str, needs: tuple[bool, bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients by the differentiable operands, in their order, and by the state.

    Args:
        operands: those of the forward pass.
        grad_y: by y, contiguous.
        grad_last: by the last state, contiguous.
        saved: the memory that the forward pass returned.
        memory: its shapes.
        precision: of products in float32.
        needs: whether gradients by x and by the gate are needed; they are None otherwise.
    """
    x = operands.x
    states, drives, *positions = pieces_of(saved[1], memory.events)
    counts = pieces_of(saved[0], memory.lists.counts)
    lists = DeviceEventList.of_pieces(memory.lists, memory.capacity, counts, positions)
    scan = ScanLaunch.prepare(operands, lists, precision)
    cell = scan.plan.cell
    if not memory.drives[0]:
        full = (memory.rows, cell.drives, operands.width), x.dtype
        _, (drives,) = allocate(x.device, [full])
        launch.project(scan, drives)
    over = EventGradients.allocate(scan, needs[1])
    launch.linearize(scan, drives, states, over)
    launch.segment_sums(scan, grad_y, over)
    grad_state = torch.empty_like(grad_last)
    by_unit, by_decay = launch.backward_over_events(scan, states, over, grad_last, grad_state)
    by_gate = launch.gate_gradient(scan, grad_y, states, over) if needs[1] else None
    work = over.work
    del over  # freed before the next large tensor
    by_x = launch.input_gradient(scan, work) if needs[0] else None
    own = operands.unit if operands.more_bias is None else operands.more_bias
    by_weights = WeightGradients(
        torch.empty_like(operands.weight, dtype=operands.weight_dtype),
        torch.empty_like(operands.bias),
        torch.empty_like(operands.recurrent, dtype=operands.weight_dtype),
        None if own is None or cell.spiking else torch.empty_like(own),
    )  # fmt: skip
    launch.weight_gradients(scan, work, states, by_weights)
    if own is not None and by_unit is not None:
        by_unit = by_unit.to(own.dtype)
    inner = by_weights.inner if by_unit is None else by_unit
    return (
        by_x, by_weights.weight, by_weights.recurrent, by_weights.bias,
        None if operands.more_bias is None else inner,
        inner if operands.more_bias is None else None,
        by_gate,
        None if by_decay is None or operands.decay is None else by_decay.to(operands.decay.dtype),
        grad_state,
    )  # fmt: skip
