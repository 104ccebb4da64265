"""The host side of both passes: buffers and kernel launches, nothing else."""
# pyright: reportCallIssue=false
# (a kernel's launch takes options that its function does not have)

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from surnn.nn.kernel_launch import launch
from surnn.nn.pieces import Piece, Spec, allocate
from surnn.nn.runtime import cdiv, next_power_of_2
from surnn.nn.triton_sums import BLOCK, add_splits

from .gate import gate_kernel
from .outputs import join_kernel, output_kernel, segment_kernel
from .parallel import (
    input_gradient_kernel,
    linearize_kernel,
    project_kernel,
    weight_gradient_kernel,
    weight_sum_kernel,
)
from .serial import backward_kernel, forward_kernel
from .sizes import (
    SERIAL_SEQUENCES,
    WALK,
    Pointer,
    ScanLaunch,
    batch_tile,
    feature_tile,
    gate_tile,
    multiprocessors,
    weight_splits,
    weight_tile,
)

# Products with x (numbers) that are computed at a time: enough to fill a GPU, in little memory.
PRODUCTS = 1 << 25

# ---------------------------------------------------------------------------- forward


def project(scan: ScanLaunch, drives: Piece) -> None:
    """The drives [rows, S, D] at events."""
    operands, lists, plan = scan.operands, scan.lists, scan.plan
    rows = plan.tile_rows
    launch(
        project_kernel, (cdiv(scan.rows_of_a_head, rows), plan.head_parts), operands.x,
        operands.weight, operands.bias, scan.pointer(operands.more_bias), lists.time,
        lists.sequence, lists.first, drives, *plan.sizes, plan.features, S=plan.cell.drives,
        ADDED=plan.added, D=plan.width, BD=plan.tile_width, BM=rows,
        BI=plan.tile_depth_of(plan.features), SHARED=plan.shared, PRECISION=plan.precision,
        num_warps=8, num_stages=3,
    )  # fmt: skip


def forward_over_events(
    scan: ScanLaunch, drives: Piece, states: Piece, state: Tensor, last: Tensor
) -> None:
    """States at events [rows, C, D] and the last state, from ``state``: both [C, B, N, D]."""
    operands, lists = scan.operands, scan.lists
    _launch_serial(
        forward_kernel, scan,
        drives, operands.recurrent, scan.unit, scan.pointer(operands.decay), operands.gate,
        lists.time, lists.first, scan.pointer(operands.lengths), scan.pointer(operands.reset),
        state, states, last,
    )  # fmt: skip


def _launch_serial(kernel: Any, scan: ScanLaunch, *tensors: Pointer) -> None:
    """Launch a serial kernel: for all tiles, or for as many teams at a time as run at once."""
    plan, device = scan.plan, scan.operands.x.device
    meta, tiles = plan.serial_constants, plan.serial_tiles
    at_once, counter = tiles, scan.lists.first  # programs without a team do not read the counter
    if meta["TEAM"] > 1:
        at_once = max(1, multiprocessors(device) // meta["TEAM"])
        counter = torch.zeros(tiles, dtype=torch.int32, device=device)
    for first in range(0, tiles, at_once):
        programs = min(at_once, tiles - first) * meta["TEAM"]
        launch(kernel, (programs,), *tensors, counter, first, *plan.sizes, **meta)


def outputs(scan: ScanLaunch, states: Piece, y: Tensor) -> None:
    """y [T, B, N, D] from the states at events."""
    plan = scan.plan
    steps, batch, _ = plan.sizes
    rows = max(16, 4096 // plan.tile_width)
    launch(
        output_kernel, (cdiv(steps * batch, rows), plan.head_parts), states, scan.lists.index,
        scan.lists.first, y, *plan.sizes, BM=rows, **plan.output_constants, num_warps=4,
    )  # fmt: skip


# ---------------------------------------------------------------------------- backward


@dataclass(frozen=True)
class EventGradients:
    """What the passes back over the events hand on to each other."""

    work: Piece
    """[rows, K, D]: derivatives at events, then gradient columns."""
    products: Piece
    """[rows, S, D]: recurrent products with the state of the row before, at ends of lists too."""
    inflow: Piece
    """[rows, C, D]: sums of output gradients over segments in component 0, then adjoints."""
    tail: Piece
    """[chunks + 1, B, N, D]: the sums that reach back to a chunk's beginning."""
    later: Piece
    """[walks, B, N, D]: the sums from the ends of the gate's walks on."""

    @staticmethod
    def allocate(scan: ScanLaunch, by_gate: bool) -> "EventGradients":
        """New memory: what only the gate's gradient needs is empty without it."""
        plan, cell, rows = scan.plan, scan.plan.cell, scan.rows
        steps, batch, heads = plan.sizes
        per_step = (batch, heads, plan.width)
        _, (work,) = allocate(plan.device, [((rows, cell.coefficients, plan.width), plan.dtype)])
        specs: list[Spec] = [
            ((rows if by_gate else 0, cell.drives, plan.width), plan.dtype),
            ((rows, cell.components, plan.width), torch.float32),
            ((cdiv(steps, plan.chunk) + 1, *per_step), torch.float32),
            ((cdiv(steps, WALK) if by_gate else 0, *per_step), torch.float32),
        ]
        return EventGradients(work, *allocate(plan.device, specs)[1])

    @property
    def by_gate(self) -> bool:
        """Whether the gate's gradient is computed."""
        return self.later.shape[0] > 0


def linearize(scan: ScanLaunch, drives: Piece, states: Piece, grads: EventGradients) -> None:
    """Derivatives at events, and recurrent products for the gate's gradient."""
    operands, lists, plan = scan.operands, scan.lists, scan.plan
    rows = max(16, plan.tile_rows // 2)
    grid = (cdiv(scan.rows_of_a_head, rows), plan.head_parts)
    launch(
        linearize_kernel, grid, drives, operands.recurrent, scan.unit,
        scan.pointer(operands.decay), lists.time, lists.sequence, lists.first,
        scan.pointer(operands.reset), scan.pointer(scan.silent), states, grads.work,
        grads.products, *plan.sizes, BI=plan.tile_depth_of(plan.width), BM=rows,
        HAS_PRODUCTS=grads.by_gate, **plan.parallel_constants, num_warps=8,
    )  # fmt: skip


def segment_sums(scan: ScanLaunch, grad_y: Tensor, grads: EventGradients) -> None:
    """Sums of output gradients over segments: ``inflow``, ``tail`` and ``later``."""
    plan, lists = scan.plan, scan.lists
    steps, batch, _ = plan.sizes
    tile = batch_tile(batch, 32)
    tiles = cdiv(batch, tile)
    meta = plan.output_constants | {"BT": tile, "CHUNK": plan.chunk}
    launch(
        segment_kernel, (cdiv(steps, plan.chunk) * plan.head_parts * tiles,), grad_y, lists.index,
        lists.first, grads.inflow, grads.tail, grads.later, *plan.sizes, **meta,
        WALK=WALK if grads.by_gate else 0, num_warps=2,
    )  # fmt: skip
    del meta["DECAYS"]
    launch(
        join_kernel, (plan.head_parts * tiles,), lists.index, lists.first, grads.inflow,
        grads.tail, *plan.sizes, **meta, num_warps=4,
    )  # fmt: skip


def backward_over_events(
    scan: ScanLaunch, states: Piece, grads: EventGradients, grad_last: Tensor, grad_state: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """Writes ``grad_state``; ``work`` and ``inflow`` are overwritten.

    The results are the gradients by unit and decay, None unless the cell spikes.
    """
    operands, lists, plan = scan.operands, scan.lists, scan.plan
    cell, (_, batch, heads) = plan.cell, plan.sizes
    tiles = cdiv(batch, SERIAL_SEQUENCES)
    by_unit = by_decay = None
    if cell.spiking:
        new = {"dtype": torch.float32, "device": plan.device}
        by_unit = torch.empty(tiles, cell.units, heads, plan.width, **new)
        by_decay = torch.empty(tiles, heads, cell.components, plan.width, **new)
    _launch_serial(
        backward_kernel, scan,
        grads.work, operands.recurrent, scan.unit, scan.pointer(operands.decay), operands.gate,
        lists.time, lists.first, scan.pointer(operands.lengths), scan.pointer(operands.reset),
        states, grads.inflow, grad_last, grad_state, scan.pointer(by_unit), scan.pointer(by_decay),
    )  # fmt: skip
    if by_unit is None or by_decay is None:
        return None, None
    return by_unit.sum(0), by_decay.sum(0)


@dataclass(frozen=True)
class WeightGradients:
    """Gradients by weights and biases, in the layout of :class:`KernelOperands`."""

    weight: Tensor
    bias: Tensor
    recurrent: Tensor
    inner: Tensor | None
    """By ``more_bias``, or else by ``unit`` unless the cell spikes."""


def weight_gradients(scan: ScanLaunch, work: Piece, states: Piece, grads: WeightGradients) -> None:
    """Fill ``grads``."""
    plan, cell = scan.plan, scan.plan.cell
    rows = cell.drives * plan.sizes[2] * plan.width
    splits = weight_splits(plan)
    sizes = [rows * plan.features, rows, rows * plan.width, rows]
    _, (parts,) = allocate(plan.device, [((splits, sum(sizes)), torch.float32)])
    places = [
        Piece(parts.buffer, 4 * sum(sizes[:i]), (size,), torch.float32)
        for i, size in enumerate(sizes)
    ]
    _over_rows(scan, work, scan.operands.x, places[:2], sum(sizes), False)
    _over_rows(scan, work, states, places[2:], sum(sizes), True)
    first = rows * plan.added // cell.drives  # the row of ``inner`` with which the products' begin
    skipped = 0
    if scan.operands.more_bias is None:
        units = 0 if cell.spiking else cell.units
        first = skipped = rows * (cell.drives - units) // cell.drives
    launch(
        weight_sum_kernel, (cdiv(sum(sizes), BLOCK),), parts, grads.weight, grads.bias,
        grads.recurrent, scan.pointer(grads.inner), sizes[0], rows, sizes[2], splits,
        0 if skipped else first, first, skipped, BLOCK=BLOCK,
    )  # fmt: skip


def _over_rows(
    scan: ScanLaunch, work: Piece, source: Pointer, grads: list[Piece], stride: int, recurrent: bool
) -> None:
    """Gradients by a matrix and its bias, summed over the packed rows of each split.

    The matrix is applied to ``source``: x, or the states if it is ``recurrent``.
    """
    operands, lists, plan = scan.operands, scan.lists, scan.plan
    cell, splits = plan.cell, weight_splits(plan)
    features = plan.width if recurrent else plan.features
    deep, inner, warps, stages = weight_tile(plan, features)
    launch(
        weight_gradient_kernel, (plan.head_parts, cdiv(features, inner), splits), work, source,
        lists.time, lists.sequence, lists.first, scan.pointer(operands.reset),
        scan.pointer(scan.open), *grads, stride, *plan.sizes, features, splits, S=cell.drives,
        K=cell.coefficients, LAST=(cell.columns if recurrent else cell.drives) - 1, D=plan.width,
        BD=plan.tile_width, CD=cell.components * plan.width, BM=deep, BI=inner, SHARED=plan.shared,
        RECURRENT=recurrent, DECAYS=plan.decays, RESETS=plan.resets,
        PRECISION=plan.precision, num_warps=warps, num_stages=stages,
    )  # fmt: skip


def input_gradient(scan: ScanLaunch, work: Piece) -> Tensor:
    """The gradient by x [T, B, I]."""
    operands, lists, plan = scan.operands, scan.lists, scan.plan
    steps, batch, heads = plan.sizes
    columns = plan.cell.drives * plan.width
    grad = torch.empty_like(operands.x)
    size = plan.dtype.itemsize
    inner = feature_tile(plan.features, 512 // size)
    sequences = batch_tile(batch, 128)
    tile_steps = min(128 // sequences, next_power_of_2(steps))
    tiles = cdiv(steps, tile_steps) * cdiv(batch, sequences)
    launch(
        input_gradient_kernel, (tiles, cdiv(plan.features, inner)), work, operands.weight,
        lists.index, lists.first, scan.pointer(scan.open), grad, *plan.sizes, plan.features,
        J=columns, KD=plan.cell.coefficients * plan.width, D=plan.width, BS=tile_steps,
        BB=sequences, BN=next_power_of_2(heads), BJ=feature_tile(columns, 128 // size), BI=inner,
        SHARED=plan.shared, RESETS=plan.resets, PRECISION=plan.precision, num_warps=8,
        num_stages=3,
    )  # fmt: skip
    return grad


def gate_gradient(scan: ScanLaunch, grad_y: Tensor, states: Piece, grads: EventGradients) -> Tensor:
    """dL/dg in the gate's shape and dtype, at open and closed steps."""
    operands, lists, plan = scan.operands, scan.lists, scan.plan
    relevant = operands.relevant
    steps, batch, heads = plan.sizes
    gate_batch, units = operands.gate.shape[1], plan.gate_units
    tile, warps = gate_tile(plan)
    tiles = cdiv(batch, tile)
    lead = plan.head_parts // heads if units == 1 else 1
    lead *= tiles if lists.shared else 1
    grad = torch.empty_like(operands.gate)
    parts: Pointer = grad
    if lead > 1:
        shape = lead, steps, gate_batch, heads, units
        _, (parts,) = allocate(plan.device, [(shape, torch.float32)])
    # torch computes the products of all heads with x at once, faster than a kernel that computes
    # them head by head, unless only some of them are needed.
    apart = relevant is None
    matrix = operands.weight.t() if apart else operands.weight
    at_once = _steps_at_once(batch * len(operands.weight)) if apart else steps
    for start in range(0, steps, at_once):
        stop = min(start + at_once, steps)
        x = operands.x if stop - start == steps else operands.x[start:stop]
        drives = x.view(-1, plan.features).mm(matrix) if apart else x
        launch(
            gate_kernel, (plan.head_parts * tiles * cdiv(stop - start, WALK),), operands.x, drives,
            operands.weight, operands.bias, scan.pointer(operands.more_bias), scan.unit,
            scan.pointer(operands.decay), lists.time, lists.index, lists.first,
            scan.pointer(operands.lengths), scan.pointer(operands.reset),
            scan.pointer(scan.silent), scan.pointer(relevant), grad_y, states, grads.products,
            grads.inflow, grads.tail, grads.later, parts, start, stop, *plan.sizes, plan.features,
            ADDED=plan.added, BT=tile, BI=plan.tile_depth_of(plan.features), CHUNK=plan.chunk,
            WALK=WALK, GATE_UNITS=units, HAS_LENGTHS=plan.has_lengths,
            HAS_RELEVANT=relevant is not None, HAS_DRIVE=apart, **plan.parallel_constants,
            num_warps=warps,
        )  # fmt: skip
    if type(parts) is Piece:
        add_splits(parts, grad)
    return grad


def _steps_at_once(products: int) -> int:
    """Steps, of so many products with x each, that have about ``PRODUCTS``; a multiple of WALK."""
    return cdiv(PRODUCTS, products * WALK) * WALK
