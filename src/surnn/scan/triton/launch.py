"""The host side of both passes: buffers and kernel launches, nothing else."""
# pyright: reportCallIssue=false
# (a kernel's launch takes options that its function does not have)

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from surnn.nn.kernel_launch import launch
from surnn.nn.runtime import cdiv, next_power_of_2

from .gate import gate_kernel
from .outputs import join_kernel, output_kernel, segment_kernel
from .parallel import (
    input_gradient_kernel,
    linearize_kernel,
    project_kernel,
    weight_gradient_kernel,
)
from .serial import backward_kernel, forward_kernel
from .sizes import (
    SERIAL_SEQUENCES,
    WALK,
    ScanLaunch,
    batch_tile,
    feature_tile,
    gate_tile,
    multiprocessors,
    weight_tile,
)

# Products with x (numbers) that are computed at a time: enough to fill a GPU, in little memory.
PRODUCTS = 1 << 25

# ---------------------------------------------------------------------------- forward


def project(scan: ScanLaunch) -> Tensor:
    """The drives [rows, S, D] at events."""
    operands, lists = scan.operands, scan.lists
    drives = scan.empty(scan.rows, *operands.weight.shape[1:3])
    rows = scan.tile_rows
    launch(
        project_kernel, (cdiv(scan.rows_of_a_head, rows), scan.head_parts), operands.x,
        operands.weight, operands.bias, lists.time, lists.sequence, lists.first, drives,
        *scan.sizes, scan.features, S=operands.weight.shape[1], D=scan.width, BD=scan.tile_width,
        BM=rows, BI=scan.tile_depth_of(scan.features), SHARED=lists.shared,
        PRECISION=scan.precision, num_warps=8, num_stages=3,
    )  # fmt: skip
    return drives


def forward_over_events(scan: ScanLaunch, drives: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """States at events [rows, C, D] and the last state [B, N, C, D]."""
    operands, lists = scan.operands, scan.lists
    states = scan.empty(scan.rows, *state.shape[2:], dtype=state.dtype)
    last = torch.empty_like(state)
    _launch_serial(
        forward_kernel, scan,
        drives, operands.recurrent, operands.unit, scan.pointer(operands.decay), operands.gate,
        lists.time, lists.first, scan.pointer(operands.lengths), scan.pointer(operands.reset),
        state, states, last,
    )  # fmt: skip
    return states, last


def _launch_serial(kernel: Any, scan: ScanLaunch, *tensors: Tensor) -> None:
    """Launch a serial kernel: for all tiles, or for as many teams at a time as run at once."""
    meta, tiles, device = scan.serial_constants(), scan.serial_tiles, scan.operands.x.device
    at_once, counter = tiles, scan.lists.first  # programs without a team do not read the counter
    if meta["TEAM"] > 1:
        at_once = max(1, multiprocessors(device) // meta["TEAM"])
        counter = torch.zeros(tiles, dtype=torch.int32, device=device)
    for first in range(0, tiles, at_once):
        programs = min(at_once, tiles - first) * meta["TEAM"]
        launch(kernel, (programs,), *tensors, counter, first, *scan.sizes, **meta)


def outputs(scan: ScanLaunch, states: Tensor) -> Tensor:
    """y [T, B, N, D] from the states at events."""
    steps, batch, heads = scan.sizes
    y = scan.empty(steps, batch, heads, scan.width)
    rows = max(16, 4096 // scan.tile_width)
    launch(
        output_kernel, (cdiv(steps * batch, rows), scan.head_parts), states, scan.lists.index,
        scan.lists.first, y, *scan.sizes, BM=rows, **scan.output_constants(), num_warps=4,
    )  # fmt: skip
    return y


# ---------------------------------------------------------------------------- backward


def linearize(
    scan: ScanLaunch, drives: Tensor, states: Tensor, with_products: bool
) -> tuple[Tensor, Tensor]:
    """Derivatives at events [rows, K, D]; recurrent products [rows, S, D], if asked for.

    The products of a row are those with the state of the row before, at ends of lists too.
    """
    operands, lists = scan.operands, scan.lists
    work = scan.empty(scan.rows, scan.kernel_cell.coefficients, scan.width)
    products = scan.empty(scan.rows if with_products else 0, scan.kernel_cell.drives, scan.width)
    rows = max(16, scan.tile_rows // 2)
    grid = (cdiv(scan.rows_of_a_head, rows), scan.head_parts)
    launch(
        linearize_kernel, grid, drives, operands.recurrent, operands.unit,
        scan.pointer(operands.decay), lists.time, lists.sequence, lists.first,
        scan.pointer(operands.reset), scan.pointer(scan.silent), states, work, products,
        *scan.sizes,
        BI=scan.tile_depth_of(scan.width), BM=rows, HAS_PRODUCTS=with_products,
        **scan.parallel_constants(), num_warps=8,
    )  # fmt: skip
    return work, products


def segment_sums(
    scan: ScanLaunch, grad_y: Tensor, components: int, by_walk: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of output gradients over segments, in component 0 of [rows, C, D]; tails of chunks; and,
    if asked for, sums from the ends of the gate's walks on."""
    steps, batch, heads = scan.sizes
    inflow = scan.empty(scan.rows, components, scan.width, dtype=torch.float32)
    chunks = cdiv(steps, scan.chunk)
    tail = scan.empty(chunks + 1, batch, heads, scan.width, dtype=torch.float32)
    walks = cdiv(steps, WALK) if by_walk else 0
    later = scan.empty(walks, batch, heads, scan.width, dtype=torch.float32)
    tile = batch_tile(batch, 32)
    tiles = cdiv(batch, tile)
    meta = scan.output_constants() | {"BT": tile, "CHUNK": scan.chunk}
    launch(
        segment_kernel, (chunks * scan.head_parts * tiles,), grad_y, scan.lists.index,
        scan.lists.first, inflow, tail, later, *scan.sizes, **meta, WALK=WALK if by_walk else 0,
        num_warps=2,
    )  # fmt: skip
    del meta["DECAYS"]
    launch(
        join_kernel, (scan.head_parts * tiles,), scan.lists.index, scan.lists.first, inflow, tail,
        *scan.sizes, **meta, num_warps=4,
    )  # fmt: skip
    return inflow, tail, later


def backward_over_events(
    scan: ScanLaunch, work: Tensor, states: Tensor, inflow: Tensor, grad_last: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by state, unit and decay; ``work`` and ``inflow`` are overwritten.

    The gradient by the unit is empty unless the cell spikes.
    """
    operands, lists = scan.operands, scan.lists
    batch, heads = scan.sizes[1:]
    cell = scan.kernel_cell
    grad_state = torch.empty_like(grad_last)
    tiles = cdiv(batch, SERIAL_SEQUENCES) if cell.spiking else 0
    by_unit = scan.empty(tiles, *operands.unit.shape, dtype=torch.float32)
    by_decay = scan.empty(tiles, heads, *states.shape[1:], dtype=torch.float32)
    _launch_serial(
        backward_kernel, scan,
        work, operands.recurrent, operands.unit, scan.pointer(operands.decay), operands.gate,
        lists.time, lists.first, scan.pointer(operands.lengths), scan.pointer(operands.reset),
        states, inflow, grad_last, grad_state, by_unit, by_decay,
    )  # fmt: skip
    if not cell.spiking:
        return grad_state, by_unit, by_decay
    return grad_state, by_unit.sum(0), by_decay.sum(0)


def weight_gradients(
    scan: ScanLaunch, work: Tensor, states: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients by weight [N, S, D, I], bias [N, S, D], recurrent [N, S, D, D] and a bias added to
    the recurrent product [N, S, D], in float32."""
    heads, drives = scan.operands.weight.shape[:2]
    rows, features = heads * drives * scan.width, (scan.features, scan.width)
    across = max(cdiv(f, weight_tile(scan, f)[1]) for f in features)
    # About two programs for each multiprocessor of a large GPU, but some work for each of them.
    steps, batch, _ = scan.sizes
    splits = max(1, min(256 // (scan.head_parts * across), cdiv(steps * batch, 512)))
    sizes = [rows * features[0], rows, rows * features[1], rows]
    parts = scan.empty(splits, sum(sizes), dtype=torch.float32)
    by_weight, by_bias, by_recurrent, by_inner = parts.split(sizes, 1)
    _over_rows(scan, work, scan.operands.x, by_weight, by_bias, splits, False)
    _over_rows(scan, work, states, by_recurrent, by_inner, splits, True)
    total = parts.sum(0) if splits > 1 else parts[0]
    shape = drives, heads, scan.width
    by_weight, by_bias, by_recurrent, by_inner = total.split(sizes)
    return (
        by_weight.view(*shape, -1).transpose(0, 1),
        by_bias.view(shape).transpose(0, 1),
        by_recurrent.view(*shape, -1).transpose(0, 1),
        by_inner.view(shape).transpose(0, 1),
    )


def _over_rows(
    scan: ScanLaunch,
    work: Tensor,
    source: Tensor,
    grad: Tensor,
    by_bias: Tensor,
    splits: int,
    recurrent: bool,
) -> None:
    """Gradients by a matrix and its bias, summed over the packed rows of each split.

    The matrix is applied to ``source``: x, or the states if it is ``recurrent``.
    """
    operands, lists, cell = scan.operands, scan.lists, scan.kernel_cell
    features = scan.width if recurrent else scan.features
    deep, inner, warps, stages = weight_tile(scan, features)
    launch(
        weight_gradient_kernel, (scan.head_parts, cdiv(features, inner), splits), work, source,
        lists.time, lists.sequence, lists.first, scan.pointer(operands.reset),
        scan.pointer(scan.open), grad, by_bias, grad.stride(0), *scan.sizes, features, splits,
        S=cell.drives, K=cell.coefficients,
        LAST=(cell.columns if recurrent else cell.drives) - 1, D=scan.width, BD=scan.tile_width,
        CD=cell.components * scan.width, BM=deep, BI=inner, SHARED=lists.shared,
        RECURRENT=recurrent, DECAYS=operands.decay is not None, RESETS=operands.reset is not None,
        PRECISION=scan.precision, num_warps=warps, num_stages=stages,
    )  # fmt: skip


def input_gradient(scan: ScanLaunch, work: Tensor) -> Tensor:
    """The gradient by x [T, B, I]."""
    operands, lists = scan.operands, scan.lists
    steps, batch, heads = scan.sizes
    columns = operands.weight.shape[1] * scan.width
    grad = torch.empty_like(operands.x)
    size = operands.x.itemsize
    inner = feature_tile(scan.features, 512 // size)
    sequences = batch_tile(batch, 128)
    tile_steps = min(128 // sequences, next_power_of_2(steps))
    tiles = cdiv(steps, tile_steps) * cdiv(batch, sequences)
    launch(
        input_gradient_kernel, (tiles, cdiv(scan.features, inner)), work, operands.weight,
        lists.index, lists.first, scan.pointer(scan.open), grad, *scan.sizes, scan.features,
        J=columns,
        KD=work.shape[1] * scan.width, D=scan.width, BS=tile_steps, BB=sequences,
        BN=next_power_of_2(heads), BJ=feature_tile(columns, 128 // size), BI=inner,
        SHARED=lists.shared, RESETS=operands.reset is not None, PRECISION=scan.precision,
        num_warps=8, num_stages=3,
    )  # fmt: skip
    return grad


def gate_gradient(
    scan: ScanLaunch, grad_y: Tensor, states: Tensor, products: Tensor, inflow: Tensor,
    tail: Tensor, later: Tensor,
) -> Tensor:  # fmt: skip
    """dL/dg [T, b, N, m] in float32, at open and closed steps."""
    operands, lists = scan.operands, scan.lists
    relevant = None if operands.relevant is None else operands.relevant.view(torch.uint8)
    steps, batch, heads = scan.sizes
    gate_batch, _, units = operands.gate.shape[1:]
    tile, warps = gate_tile(scan)
    tiles = cdiv(batch, tile)
    lead = scan.head_parts // heads if units == 1 else 1
    lead *= tiles if lists.shared else 1
    grad = scan.empty(lead, steps, gate_batch, heads, units, dtype=torch.float32)
    # torch computes the products of all heads with x at once, faster than a kernel that computes
    # them head by head, unless only some of them are needed.
    apart = relevant is None
    matrix = operands.weight.transpose(0, 1).flatten(0, 2)
    at_once = _steps_at_once(batch * len(matrix)) if apart else steps
    for start in range(0, steps, at_once):
        stop = min(start + at_once, steps)
        x = operands.x[start:stop]
        drives = linear(x, matrix) if apart else x
        launch(
            gate_kernel, (scan.head_parts * tiles * cdiv(stop - start, WALK),), operands.x, drives,
            operands.weight, operands.bias, operands.unit, scan.pointer(operands.decay), lists.time,
            lists.index, lists.first, scan.pointer(operands.lengths), scan.pointer(operands.reset),
            scan.pointer(scan.silent), scan.pointer(relevant), grad_y, states, products, inflow,
            tail, later, grad, start, stop, *scan.sizes, scan.features, BT=tile,
            BI=scan.tile_depth_of(scan.features),
            CHUNK=scan.chunk, WALK=WALK, GATE_UNITS=units, HAS_LENGTHS=operands.lengths is not None,
            HAS_RELEVANT=relevant is not None, HAS_DRIVE=apart, **scan.parallel_constants(),
            num_warps=warps,
        )  # fmt: skip
    return grad.sum(0) if lead > 1 else grad[0]


def _steps_at_once(products: int) -> int:
    """Steps, of so many products with x each, that have about ``PRODUCTS``; a multiple of WALK."""
    return cdiv(PRODUCTS, products * WALK) * WALK
