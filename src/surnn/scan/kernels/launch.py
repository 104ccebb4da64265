"""The two passes on the host: buffers and kernel launches, nothing else."""
# pyright: reportCallIssue=false
# (a kernel's launch takes options that its function does not have)

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from ...eager import cdiv
from .events import (
    input_gradient_kernel,
    linearize_kernel,
    project_kernel,
    weight_gradient_kernel,
)
from .gate import gate_kernel
from .outputs import join_kernel, output_kernel, segment_kernel
from .sizes import WALKED, Pass, batch_tile, feature_tile, multiprocessors, rows_beside
from .walk import backward_kernel, forward_kernel

# Units of a head too few for tensor cores to be busy with it alone.
NARROW = 32
# Numbers that are worth a matrix product of their own.
PRODUCTS = 1 << 25

# ---------------------------------------------------------------------------- forward


def project(scan: Pass) -> Tensor:
    """The drives [rows, S, D] at events."""
    steps, batch, _ = scan.sizes
    drives = scan.empty(scan.rows, *scan.weight.shape[1:3])
    rows = scan.tile_rows
    project_kernel[(cdiv(scan.rows_of_a_head, rows), scan.head_parts)](
        scan.x, scan.weight, scan.bias, scan.lists.time, scan.lists.sequence, scan.lists.first,
        drives, steps, batch, scan.features,
        S=scan.weight.shape[1], D=scan.width, BD=scan.tile_width, BM=rows,
        BI=scan.tile_depth_of(scan.features), SHARED=scan.lists.shared, PRECISION=scan.precision,
        num_warps=8, num_stages=3,
    )  # fmt: skip
    return drives


def walk_forward(scan: Pass, drives: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """States at events [rows, C, D] and the last state [B, N, C, D]."""
    states = scan.empty(scan.rows, *state.shape[2:], dtype=state.dtype)
    last = torch.empty_like(state)
    _walk(
        forward_kernel, scan,
        drives, scan.recurrent, scan.unit, scan.optional(scan.decay), scan.gate, scan.lists.time,
        scan.lists.first, scan.optional(scan.lengths), state, states, last,
    )  # fmt: skip
    return states, last


def _walk(kernel: Any, scan: Pass, *tensors: Tensor) -> None:
    """Launch a serial kernel: at once, or as many teams at a time as there is room for."""
    meta, walks = scan.walking(), scan.walks
    at_once, counter = walks, scan.lists.first  # the latter is not read by those who walk alone
    if meta["TEAM"] > 1:
        at_once = max(1, multiprocessors(scan.x.device) // meta["TEAM"])
        counter = torch.zeros(walks, dtype=torch.int32, device=scan.x.device)
    for first in range(0, walks, at_once):
        programs = min(at_once, walks - first) * meta["TEAM"]
        kernel[(programs,)](*tensors, counter, first, *scan.sizes, **meta)


def outputs(scan: Pass, states: Tensor) -> Tensor:
    """y [T, B, N, D] from the states at events."""
    steps, batch, heads = scan.sizes
    y = scan.empty(steps, batch, heads, scan.width)
    rows = max(16, 4096 // scan.tile_width)
    output_kernel[(cdiv(steps * batch, rows), scan.head_parts)](
        states, scan.lists.index, scan.lists.first, scan.optional(scan.lengths), y, *scan.sizes,
        BM=rows, **scan.outputs(), num_warps=4,
    )  # fmt: skip
    return y


# ---------------------------------------------------------------------------- backward


def linearize(scan: Pass, drives: Tensor, states: Tensor) -> Tensor:
    """Derivatives at events [rows, K, D]."""
    work = scan.empty(scan.rows, scan.kernel_cell.coefficients, scan.width)
    rows = max(16, scan.tile_rows // 2)
    grid = (cdiv(scan.rows_of_a_head, rows), scan.head_parts)
    linearize_kernel[grid](
        drives, scan.recurrent, scan.unit, scan.optional(scan.decay), scan.lists.time,
        scan.lists.sequence, scan.lists.first, states, work, *scan.sizes,
        BI=scan.tile_depth_of(scan.width), **scan.parallel(rows), num_warps=8,
    )  # fmt: skip
    return work


def segment_sums(
    scan: Pass, grad_y: Tensor, components: int, each_step: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of output gradients over segments, in component 0 of [rows, C, D]; tails; suffixes.

    ``each_step`` says whether the latter, sums from every step on, are wanted.
    """
    steps, batch, heads = scan.sizes
    inflow = scan.empty(scan.rows, components, scan.width, dtype=torch.float32)
    chunks = cdiv(steps, scan.chunk)
    tail = scan.empty(chunks + 1, batch, heads, scan.width, dtype=torch.float32)
    tile = batch_tile(batch, 32)
    tiles = cdiv(batch, tile)
    meta = scan.outputs() | {"BT": tile, "CHUNK": scan.chunk}
    # float16 has no room for sums over a chunk.
    kind = torch.float32 if grad_y.dtype == torch.float16 else grad_y.dtype
    suffix = torch.empty_like(grad_y, dtype=kind) if each_step else grad_y.new_empty(0)
    segment_kernel[(chunks * scan.head_parts * tiles,)](
        grad_y, scan.lists.index, scan.lists.first, scan.optional(scan.lengths), inflow, tail,
        suffix, *scan.sizes, HAS_SUFFIX=each_step, **meta, num_warps=2,
    )  # fmt: skip
    del meta["DECAYS"], meta["HAS_LENGTHS"]
    join_kernel[(scan.head_parts * tiles,)](
        scan.lists.index, scan.lists.first, inflow, tail, *scan.sizes, **meta, num_warps=4
    )
    return inflow, tail, suffix


def walk_backward(
    scan: Pass, work: Tensor, states: Tensor, inflow: Tensor, grad_last: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by state, unit and decay; ``work`` and ``inflow`` are overwritten.

    That by the unit is empty unless the cell spikes.
    """
    batch, heads = scan.sizes[1:]
    cell = scan.kernel_cell
    grad_state = torch.empty_like(grad_last)
    tiles = cdiv(batch, WALKED) if cell.spiking else 0
    by_unit = scan.empty(tiles, *scan.unit.shape, dtype=torch.float32)
    by_decay = scan.empty(tiles, heads, *states.shape[1:], dtype=torch.float32)
    _walk(
        backward_kernel, scan,
        work, scan.recurrent, scan.unit, scan.optional(scan.decay), scan.gate, scan.lists.time,
        scan.lists.first, scan.optional(scan.lengths), states, inflow, grad_last, grad_state,
        by_unit, by_decay,
    )  # fmt: skip
    if not cell.spiking:
        return grad_state, by_unit, by_decay
    return grad_state, by_unit.sum(0), by_decay.sum(0)


def weight_gradients(
    scan: Pass, work: Tensor, states: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """By weight [N, S, D, I], bias [N, S, D], recurrent [N, S, D, D] and what is added to its
    product [N, S, D], in float32."""
    by_weight, by_bias = _over_rows(scan, work, scan.x, scan.features, False)
    by_recurrent, by_inner_bias = _over_rows(scan, work, states, scan.width, True)
    return by_weight, by_bias, by_recurrent, by_inner_bias


def _over_rows(
    scan: Pass, work: Tensor, source: Tensor, features: int, recurrent: bool
) -> tuple[Tensor, Tensor]:
    steps, batch, _ = scan.sizes
    shape, cell = scan.weight.shape[:3], scan.kernel_cell
    width = scan.tile_width
    inner = feature_tile(features, rows_beside(width, scan.x.itemsize))
    across = cdiv(features, inner)
    # About two programs for each multiprocessor of a large GPU, but some work for each of them.
    splits = max(1, min(256 // (scan.head_parts * across), cdiv(steps * batch, 512)))
    light = cell.drives < 4 and scan.x.itemsize == 2  # else 4 warps spill
    deep = max(16, min(128, 65536 // (4 ** (cell.drives > 1) * width * scan.x.itemsize)))
    total = scan.empty(splits, *shape, features, dtype=torch.float32)
    bias = scan.empty(splits, *shape, dtype=torch.float32)
    weight_gradient_kernel[(scan.head_parts, across, splits)](
        work, source, scan.lists.time, scan.lists.sequence, scan.lists.first, total, bias,
        *scan.sizes, features, splits,
        S=cell.drives, K=cell.coefficients, LAST=(cell.columns if recurrent else cell.drives) - 1,
        D=scan.width, BD=width, CD=cell.components * scan.width, BM=deep, BI=inner,
        SHARED=scan.lists.shared, RECURRENT=recurrent, DECAYS=scan.decay is not None,
        PRECISION=scan.precision, num_warps=4 if light else 8, num_stages=2,
    )  # fmt: skip
    return total.sum(0), bias.sum(0)


def input_gradient(scan: Pass, work: Tensor) -> Tensor:
    """By x [T, B, I]."""
    steps, batch, heads = scan.sizes
    columns = scan.weight.shape[1] * scan.width
    grad = torch.empty_like(scan.x)
    rows, block = 64, feature_tile(columns, 128 // scan.x.itemsize)
    inner = feature_tile(scan.features, 512 // scan.x.itemsize)
    grid = (cdiv(steps * batch, rows), cdiv(scan.features, inner))
    input_gradient_kernel[grid](
        work, scan.weight, scan.lists.index, scan.lists.first, grad, steps, batch, heads,
        scan.features, J=columns, KD=work.shape[1] * scan.width, BM=rows, BJ=block, BI=inner,
        SHARED=scan.lists.shared, PRECISION=scan.precision, num_warps=4, num_stages=2,
    )  # fmt: skip
    return grad


def gate_gradient(
    scan: Pass,
    suffix: Tensor,
    states: Tensor,
    inflow: Tensor,
    tail: Tensor,
    relevant: Tensor | None,
) -> Tensor:
    """dL/dg [T, b, N, m] in float32, at open and closed steps."""
    steps, batch, heads = scan.sizes
    units = scan.gate.shape[-1]
    tile = batch_tile(batch, scan.tile_rows)
    tiles = cdiv(batch, tile)
    lists = scan.gate.shape[1]
    lead = scan.head_parts // heads if units == 1 else 1
    lead *= tiles if scan.lists.shared else 1
    grad = scan.empty(lead, steps, lists, heads, units, dtype=torch.float32)
    # Each of many narrow heads would read x for products too small to be worth it. Torch makes
    # them for all heads at once, unless few of them are wanted.
    apart = relevant is None and scan.width <= NARROW
    matrix = scan.weight.flatten(0, 2)
    at_once = _steps_at_once(scan.x, len(matrix)) if apart else steps
    for start in range(0, steps, at_once):
        x = scan.x[start : start + at_once]
        drives = linear(x, matrix) if apart else x
        gate_kernel[(scan.head_parts * tiles * x.shape[0],)](
            scan.x, drives, scan.weight, scan.bias, scan.recurrent, scan.unit,
            scan.optional(scan.decay), scan.lists.time, scan.lists.index, scan.lists.first,
            scan.optional(scan.lengths), scan.optional(relevant), suffix, states, inflow, tail,
            grad, start, *scan.sizes, scan.features,
            BI=scan.tile_depth_of(scan.features), CHUNK=scan.chunk, GATE_UNITS=units,
            HAS_LENGTHS=scan.lengths is not None, HAS_RELEVANT=relevant is not None,
            HAS_DRIVE=apart, **scan.parallel(tile), num_warps=8 if tile > 32 else 4,
            num_stages=3,
        )  # fmt: skip
    return grad.sum(0) if lead > 1 else grad[0]


def _steps_at_once(x: Tensor, columns: int) -> int:
    """Steps whose ``columns`` products take no more room than x, unless that is very little."""
    steps, batch, features = x.shape
    return max(cdiv(steps * features, columns), cdiv(PRODUCTS, batch * columns))
