"""How large tiles are, and how many programs share the work.

Sizes depend on shapes and the device, never on data, so that results repeat bit for bit.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from surnn.nn.cells import get_cell
from surnn.nn.pieces import Piece
from surnn.nn.runtime import cdiv, is_interpreted, next_power_of_2

from ..contract import open_heads
from .cells import KernelCell, kernel_cell
from .lists import DeviceEventList
from .operands import KernelOperands

Pointer = Tensor | Piece

# Sequences per program of the serial kernels: the smallest tile that tensor cores take.
SERIAL_SEQUENCES = 16
# Bytes of shared memory that a serial kernel needs in addition to the weights it keeps there.
RESERVED_BYTES = 27 * 1024
# Steps per chunk: long enough for a program of its own, short enough for many chunks.
CHUNK, LONG_CHUNK = 64, 256
LONG = 1 << 14
# Steps that one program of the gate's gradient walks through; divides the chunks.
WALK = 8


@dataclass(frozen=True)
class Plan:
    """What the launches of a scan derive from shapes, dtypes and options: tiles and constants.

    Plans are kept, so that a repeated shape costs no work: see :func:`plan_of`.
    """

    cell: KernelCell
    dtype: torch.dtype
    """Of x and of the matrices."""
    device: torch.device
    sizes: tuple[int, int, int]
    """T, B, N."""
    width: int
    features: int
    gate_units: int
    shared: bool
    """Whether the batch shares its lists."""
    masked: bool
    """Whether an event may leave units closed, or open in part."""
    added: int
    """Drives whose second bias is apart."""
    decays: bool
    resets: bool
    has_lengths: bool
    precision: str

    @property
    def tile_rows(self) -> int:
        return tile_rows(self.tile_width, self.dtype.itemsize)

    def tile_depth_of(self, features: int) -> int:
        return feature_tile(features, tile_depth(self.tile_width, self.dtype.itemsize))

    @property
    def chunk(self) -> int:
        return CHUNK if self.sizes[0] <= LONG else LONG_CHUNK

    @cached_property
    def tile_width(self) -> int:
        """Units that the parallel kernels handle at a time."""
        return min(padded(self.width), 64 if self.width > 128 else 128)

    @property
    def head_parts(self) -> int:
        """Programs for all units of all heads."""
        return self.sizes[2] * cdiv(self.width, self.tile_width)

    @property
    def serial_tiles(self) -> int:
        """Tiles of the serial kernels: a head's list, for some of the sequences."""
        return cdiv(self.sizes[1], SERIAL_SEQUENCES) * self.sizes[2]

    @cached_property
    def serial_constants(self) -> dict[str, Any]:
        """Constants of the serial kernels."""
        whole, drives = padded(self.width), self.cell.drives
        part, warps = whole, {16: 2, 32: 4, 64: 8}.get(whole, 8)
        if not is_interpreted() and not fits_on_chip(drives, self.width, self.dtype, self.device):
            part, warps = part_of_head(drives, self.width, self.dtype, self.device), 8
        meta = {
            **self.cell.meta(self.dtype),
            **self._common(part),
            "KD": whole,
            "TEAM": cdiv(self.width, part),
            "BT": SERIAL_SEQUENCES,
            "MASKED": self.masked,
            "RESETS": self.resets,
            "GATE_UNITS": self.gate_units,
            "HAS_LENGTHS": self.has_lengths,
            "num_warps": warps,
        }
        if meta["TEAM"] > 1:  # programs of a team wait for each other, so all must run at once
            meta["launch_cooperative_grid"] = True
        return meta

    def _common(self, width: int) -> dict[str, Any]:
        return {
            "D": self.width,
            "BD": width,
            "SHARED": self.shared,
            "DECAYS": self.decays,
            "PRECISION": self.precision,
        }

    @cached_property
    def parallel_constants(self) -> dict[str, Any]:
        """Constants of the parallel kernels that compute the cell."""
        meta = {**self.cell.meta(self.dtype), **self._common(self.tile_width)}
        return meta | {"RESETS": self.resets}

    @cached_property
    def output_constants(self) -> dict[str, Any]:
        """Constants of the kernels between states and steps."""
        meta = self._common(self.tile_width)
        del meta["PRECISION"]
        return meta | {"C": self.cell.components}


plan_of = lru_cache(maxsize=256)(Plan)


@dataclass(frozen=True)
class ScanLaunch:
    """One scan as the kernels read it: its operands, its event lists, and its plan."""

    operands: KernelOperands
    """As :meth:`KernelOperands.readable` gives them."""
    lists: DeviceEventList
    plan: Plan

    @classmethod
    def prepare(
        cls, operands: KernelOperands, lists: DeviceEventList, precision: str
    ) -> "ScanLaunch":
        """The launch of ``operands``, with the plan for their shapes."""
        cell = kernel_cell(get_cell(operands.cell))
        assert cell is not None
        x, gate = operands.x, operands.gate
        steps, batch, features = x.shape
        units = gate.numel() // (gate.shape[0] * gate.shape[1] * operands.heads)
        resets = operands.reset is not None
        added = 0
        if operands.more_bias is not None:
            added = cell.drives - (0 if cell.spiking else cell.units)
        plan = plan_of(
            cell, x.dtype, x.device, (steps, batch, operands.heads), operands.width, features,
            units, lists.shared,
            not operands.binary or units > 1 or resets,  # a reset is an event, open or closed
            added, operands.decay is not None, resets, operands.lengths is not None, precision,
        )  # fmt: skip
        return cls(operands, lists, plan)

    @property
    def rows(self) -> int:
        return self.lists.rows(self.plan.sizes[1])

    @property
    def rows_of_a_head(self) -> int:
        """An upper bound, padding included."""
        steps, batch, _ = self.plan.sizes
        return min(self.rows, (steps + 2) * batch)

    @cached_property
    def open(self) -> Tensor | None:
        """[T, B, N]: where heads are open, if events may also be resets of closed heads."""
        if self.operands.reset is None:
            return None
        steps, _, heads = self.plan.sizes
        by_head = self.operands.gate.view(steps, -1, heads, self.plan.gate_units)
        return open_heads(by_head).view(torch.uint8)

    @cached_property
    def silent(self) -> Tensor | None:
        """[S * H]: recurrent products with a state of zeros, if there are such states inside.
        They are 0, or NaN by weights that are not finite."""
        if not (self.plan.decays or self.plan.resets):
            return None
        return (self.operands.recurrent * 0).sum(-1)

    @property
    def unit(self) -> Pointer:
        """The parameters of units [P, N, D]."""
        return self.operands.unit_parameters(self.plan.cell.units)

    def pointer(self, tensor: Tensor | None) -> Pointer:
        """``tensor``, or for None some memory that the kernel does not read."""
        return self.lists.first if tensor is None else tensor


def padded(width: int) -> int:
    """Tile width of a head: tensor cores take 16 at least, tiles are powers of two."""
    return max(16, next_power_of_2(width))


@torch.compiler.assume_constant_result
def _chip(index: int | None) -> tuple[int, int]:
    """Multiprocessors of a CUDA device, and bytes of shared memory that a program can have."""
    properties = torch.cuda.get_device_properties(index)
    shared = getattr(properties, "shared_memory_per_block_optin", 99 * 1024)
    return properties.multi_processor_count, shared


def multiprocessors(device: torch.device) -> int:
    """How many programs certainly run at once; for the interpreter, those of an H200."""
    return _chip(device.index)[0] if device.type == "cuda" else 132


def on_chip(device: torch.device) -> int:
    """Bytes of weights that one program can keep on chip."""
    shared = _chip(device.index)[1] if device.type == "cuda" else 227 * 1024
    return shared - RESERVED_BYTES


def previous_power_of_2(n: int) -> int:
    return 1 << (max(n, 1).bit_length() - 1)


def fits_on_chip(drives: int, width: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether one program can keep a head's recurrent weights."""
    size = drives * padded(width) ** 2 * dtype.itemsize
    return padded(width) <= 128 and size <= on_chip(device)


def part_of_head(drives: int, width: int, dtype: torch.dtype, device: torch.device) -> int:
    """Units per program where a team of programs shares a head; below 16 the head does not fit.

    A program keeps its units' weights and, for its sequences, the outputs of all units.
    """
    per_unit = drives * padded(width) * dtype.itemsize
    return min(64, previous_power_of_2(on_chip(device) // per_unit - SERIAL_SEQUENCES))


def batch_tile(batch: int, most: int) -> int:
    return min(most, max(16, next_power_of_2(batch)))


def feature_tile(features: int, most: int) -> int:
    return min(most, max(16, next_power_of_2(features)))


def tile_rows(width: int, itemsize: int) -> int:
    """Rows of a tile where a program holds a few tiles of a head's width at once."""
    return max(16, min(128, 16384 // (width * itemsize)))


def tile_depth(width: int, itemsize: int) -> int:
    """Input features per tile where a program also holds weights for a head's width."""
    return max(16, min(64, 8192 // (width * itemsize)))


def gate_tile(plan: Plan) -> tuple[int, int]:
    """Sequences and warps of a program of the gate's gradient."""
    sequences = batch_tile(plan.sizes[1], max(16, 1024 // plan.tile_width))
    return sequences, max(1, min(8, sequences * plan.tile_width // 256))


def weight_tile(plan: Plan, features: int) -> tuple[int, int, int, int]:
    """Rows and features of a tile of weight gradients, warps, and stages of its pipeline."""
    width, size, drives = plan.tile_width, plan.dtype.itemsize, plan.cell.drives
    inner = feature_tile(features, tile_rows(width, size))
    light = drives < 4 and size == 2  # else 4 warps spill
    deep = max(16, min(128, 65536 // (4 ** (drives > 1) * width * size)))
    return deep, inner, 4 if light else 8, 2


def weight_splits(plan: Plan) -> int:
    """Programs that share the rows of a head's weight gradients.

    About two for each multiprocessor of a large GPU, but some work for each of them.
    """
    across = max(cdiv(f, weight_tile(plan, f)[1]) for f in (plan.features, plan.width))
    steps, batch, _ = plan.sizes
    return max(1, min(256 // (plan.head_parts * across), cdiv(steps * batch, 512)))
