"""The two passes on the host: buffers and kernel launches, nothing else.

Sizes of tiles are chosen by shape alone, never by data, so that results repeat bit for bit.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from ...cells import get_cell
from .cells import KernelCell, kernel_cell
from .events import (
    input_gradient_kernel,
    linearize_kernel,
    project_kernel,
    weight_gradient_kernel,
)
from .gate import gate_kernel
from .lists import Lists
from .outputs import join_kernel, output_kernel, segment_kernel
from .walk import backward_kernel, forward_kernel

# Chunks of steps: long enough to be worth a program, short enough that there are many of them.
CHUNK, LONG_CHUNK = 64, 256
LONG = 1 << 14


@dataclass(frozen=True)
class Pass:
    """What both passes know of one scan: its tensors as the kernels read them, and its sizes."""

    x: Tensor
    weight: Tensor
    bias: Tensor
    recurrent: Tensor
    unit: Tensor
    gate: Tensor
    decay: Tensor | None
    lengths: Tensor | None
    lists: Lists
    cell: str
    binary: bool
    precision: str

    @property
    def kernel_cell(self) -> KernelCell:
        found = kernel_cell(get_cell(self.cell))
        assert found is not None
        return found

    @property
    def sizes(self) -> tuple[int, int, int]:
        """T, B, N."""
        return self.x.shape[0], self.x.shape[1], self.weight.shape[0]

    @property
    def width(self) -> int:
        return self.weight.shape[2]

    @property
    def features(self) -> int:
        return self.x.shape[2]

    @property
    def rows(self) -> int:
        return self.lists.rows(self.sizes[1])

    @property
    def rows_of_a_head(self) -> int:
        """At most, padding included."""
        steps, batch, _ = self.sizes
        return min(self.rows, (steps + 2) * batch)

    @property
    def tile_rows(self) -> int:
        return rows_beside(padded(self.width), self.x.itemsize)

    def tile_depth_of(self, features: int) -> int:
        return feature_tile(features, depth_beside(padded(self.width), self.x.itemsize))

    @property
    def chunk(self) -> int:
        return CHUNK if self.sizes[0] <= LONG else LONG_CHUNK

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(shape, dtype=dtype or self.x.dtype, device=self.x.device)

    def walking(self) -> dict[str, Any]:
        """Constants of the serial kernels."""
        width = padded(self.width)
        return {
            **self.kernel_cell.meta(),
            **self._common(width),
            "BT": 16,
            "MASKED": not self.binary or self.gate.shape[-1] > 1,
            "GATE_UNITS": self.gate.shape[-1],
            "HAS_LENGTHS": self.lengths is not None,
            "num_warps": {16: 2, 32: 4, 64: 8, 128: 8}[width],
        }

    def _common(self, width: int) -> dict[str, Any]:
        return {
            "D": self.width,
            "BD": width,
            "SHARED": self.lists.shared,
            "DECAYS": self.decay is not None,
            "PRECISION": self.precision,
        }

    def parallel(self, rows: int) -> dict[str, Any]:
        """Constants of the parallel kernels that know the cell; tiles of ``rows``."""
        return {**self.kernel_cell.meta(), **self._common(padded(self.width)), "BM": rows}

    def outputs(self) -> dict[str, Any]:
        """Constants of the kernels between states and steps."""
        meta = self._common(padded(self.width))
        del meta["PRECISION"]
        return meta | {"C": self.kernel_cell.components, "HAS_LENGTHS": self.lengths is not None}

    def optional(self, tensor: Tensor | None) -> Tensor:
        """A kernel takes a tensor for every pointer; this one is not read."""
        return self.lists.first if tensor is None else tensor


def padded(width: int) -> int:
    """Tile width of a head: tensor cores take 16 at least, tiles are powers of two."""
    return max(16, triton.next_power_of_2(width))


def batch_tile(batch: int, most: int) -> int:
    return min(most, max(16, triton.next_power_of_2(batch)))


def feature_tile(features: int, most: int) -> int:
    return min(most, max(16, triton.next_power_of_2(features)))


def rows_beside(width: int, itemsize: int) -> int:
    """Rows of a tile, when a few tiles of a head's width are held at once."""
    return max(16, min(128, 16384 // (width * itemsize)))


def depth_beside(width: int, itemsize: int) -> int:
    """Input features taken at a time, when weights for a head's width are held beside."""
    return max(16, min(64, 8192 // (width * itemsize)))


# ---------------------------------------------------------------------------- forward


def project(scan: Pass) -> Tensor:
    """The drives [rows, S, D] at events."""
    steps, batch, heads = scan.sizes
    drives = scan.empty(scan.rows, *scan.weight.shape[1:3])
    rows = scan.tile_rows
    project_kernel[(triton.cdiv(scan.rows_of_a_head, rows), heads)](
        scan.x, scan.weight, scan.bias, scan.lists.time, scan.lists.sequence, scan.lists.first,
        drives, steps, batch, scan.features,
        S=scan.weight.shape[1], D=scan.width, BD=padded(scan.width), BM=rows,
        BI=scan.tile_depth_of(scan.features), SHARED=scan.lists.shared, PRECISION=scan.precision,
        num_warps=8, num_stages=3,
    )  # fmt: skip
    return drives


def walk_forward(scan: Pass, drives: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """States at events [rows, C, D] and the last state [B, N, C, D]."""
    batch, heads = scan.sizes[1:]
    states = scan.empty(scan.rows, *state.shape[2:], dtype=state.dtype)
    last = torch.empty_like(state)
    meta = scan.walking()
    forward_kernel[(triton.cdiv(batch, meta["BT"]), heads)](
        drives, scan.recurrent, scan.unit, scan.optional(scan.decay), scan.gate, scan.lists.time,
        scan.lists.first, scan.optional(scan.lengths), state, states, last, *scan.sizes, **meta,
    )  # fmt: skip
    return states, last


def outputs(scan: Pass, states: Tensor) -> Tensor:
    """y [T, B, N, D] from the states at events."""
    steps, batch, heads = scan.sizes
    y = scan.empty(steps, batch, heads, scan.width)
    rows = max(16, 4096 // padded(scan.width))
    output_kernel[(triton.cdiv(steps * batch, rows), heads)](
        states, scan.lists.index, scan.lists.first, scan.optional(scan.lengths), y, *scan.sizes,
        BM=rows, **scan.outputs(), num_warps=4,
    )  # fmt: skip
    return y


# ---------------------------------------------------------------------------- backward


def linearize(scan: Pass, drives: Tensor, states: Tensor) -> Tensor:
    """Derivatives at events [rows, K, D]."""
    heads = scan.sizes[2]
    work = scan.empty(scan.rows, scan.kernel_cell.coefficients, scan.width)
    rows = max(16, scan.tile_rows // 2)
    grid = (triton.cdiv(scan.rows_of_a_head, rows), heads)
    linearize_kernel[grid](
        drives, scan.recurrent, scan.unit, scan.optional(scan.decay), scan.lists.time,
        scan.lists.sequence, scan.lists.first, states, work, *scan.sizes, BI=scan.tile_depth_of(scan.width), **scan.parallel(rows),
        num_warps=8,
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
    chunks = triton.cdiv(steps, scan.chunk)
    tail = scan.empty(chunks + 1, batch, heads, scan.width, dtype=torch.float32)
    tile = batch_tile(batch, 32)
    tiles = triton.cdiv(batch, tile)
    meta = scan.outputs() | {"BT": tile, "CHUNK": scan.chunk}
    suffix = torch.empty_like(grad_y) if each_step else grad_y.new_empty(0)
    segment_kernel[(chunks, heads, tiles)](
        grad_y, scan.lists.index, scan.lists.first, scan.optional(scan.lengths), inflow, tail,
        suffix, *scan.sizes, HAS_SUFFIX=each_step, **meta, num_warps=2,
    )  # fmt: skip
    del meta["DECAYS"], meta["HAS_LENGTHS"]
    join_kernel[(heads, tiles)](
        scan.lists.index, scan.lists.first, inflow, tail, *scan.sizes, **meta, num_warps=4
    )
    return inflow, tail, suffix


def walk_backward(
    scan: Pass, work: Tensor, states: Tensor, inflow: Tensor, grad_last: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by state, unit and decay; ``work`` and ``inflow`` are overwritten."""
    batch, heads = scan.sizes[1:]
    meta = scan.walking() | {"G": scan.kernel_cell.columns}
    tiles = triton.cdiv(batch, meta["BT"])
    components = states.shape[1]
    grad_state = torch.empty_like(grad_last)
    by_unit = scan.empty(tiles, *scan.unit.shape, dtype=torch.float32)
    by_decay = scan.empty(
        tiles if scan.decay is not None else 0, heads, components, scan.width, dtype=torch.float32
    )
    backward_kernel[(tiles, heads)](
        work, scan.recurrent, scan.unit, scan.optional(scan.decay), scan.gate, scan.lists.time,
        scan.lists.first, scan.optional(scan.lengths), states, inflow, grad_last, grad_state,
        by_unit, by_decay, *scan.sizes, **meta,
    )  # fmt: skip
    return grad_state, by_unit.sum(0), by_decay.sum(0)


def weight_gradients(scan: Pass, work: Tensor, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """By weight [N, S, D, I], bias [N, S, D] and recurrent [N, S, D, D], in float32."""
    by_weight, by_bias = _over_rows(scan, work, scan.x, scan.features, False)
    by_recurrent, _ = _over_rows(scan, work, states, scan.width, True)
    assert by_bias is not None
    return by_weight, by_bias, by_recurrent


def _over_rows(
    scan: Pass, work: Tensor, source: Tensor, features: int, recurrent: bool
) -> tuple[Tensor, Tensor | None]:
    steps, batch, heads = scan.sizes
    shape, cell = scan.weight.shape[:3], scan.kernel_cell
    width = padded(scan.width)
    inner = feature_tile(features, rows_beside(width, scan.x.itemsize))
    across = triton.cdiv(features, inner)
    # About two programs for each multiprocessor of a large GPU, but some work for each of them.
    splits = max(1, min(256 // (heads * across), triton.cdiv(steps * batch, 512)))
    deep = max(16, min(128, 65536 // (4 ** (cell.drives > 1) * width * scan.x.itemsize)))
    total = scan.empty(splits, *shape, features, dtype=torch.float32)
    bias = scan.empty(0 if recurrent else splits, *shape, dtype=torch.float32)
    weight_gradient_kernel[(heads, across, splits)](
        work, source, scan.lists.time, scan.lists.sequence, scan.lists.first, total, bias,
        *scan.sizes, features,
        S=cell.drives, K=cell.coefficients, LAST=(cell.columns if recurrent else cell.drives) - 1,
        D=scan.width, BD=width, CD=cell.components * scan.width, BM=deep, BI=inner, SPLITS=splits,
        SHARED=scan.lists.shared, RECURRENT=recurrent, DECAYS=scan.decay is not None,
        PRECISION=scan.precision, num_warps=4 if cell.drives < 4 else 8, num_stages=2,
    )  # fmt: skip
    return total.sum(0), None if recurrent else bias.sum(0)


def input_gradient(scan: Pass, work: Tensor) -> Tensor:
    """By x [T, B, I]."""
    steps, batch, heads = scan.sizes
    columns = scan.weight.shape[1] * scan.width
    grad = torch.empty_like(scan.x)
    rows, block = 64, feature_tile(columns, 128 // scan.x.itemsize)
    inner = feature_tile(scan.features, 512 // scan.x.itemsize)
    grid = (triton.cdiv(steps * batch, rows), triton.cdiv(scan.features, inner))
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
    tiles = triton.cdiv(batch, tile)
    shape = (tiles, steps) if scan.lists.shared else (steps, batch)
    grad = scan.empty(*shape, heads, units, dtype=torch.float32)
    gate_kernel[(heads * tiles * steps,)](
        scan.x, scan.weight, scan.bias, scan.recurrent, scan.unit, scan.optional(scan.decay),
        scan.lists.time, scan.lists.index, scan.lists.first, scan.optional(scan.lengths),
        scan.optional(relevant), suffix, states, inflow, tail, grad, *scan.sizes, scan.features,
        BI=scan.tile_depth_of(scan.features), CHUNK=scan.chunk, GATE_UNITS=units,
        HAS_LENGTHS=scan.lengths is not None, HAS_RELEVANT=relevant is not None,
        **scan.parallel(tile), num_warps=8 if tile > 32 else 4, num_stages=3,
    )  # fmt: skip
    return grad.sum(0).unsqueeze(1) if scan.lists.shared else grad
