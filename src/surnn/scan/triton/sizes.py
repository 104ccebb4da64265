"""How large tiles are, and how many programs share the work.

Sizes depend on shapes and the device, never on data, so that results repeat bit for bit.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from surnn.nn.runtime import cdiv, is_interpreted, next_power_of_2

from ..contract import ScanOperands, open_heads
from .cells import KernelCell, kernel_cell
from .lists import DeviceEventList

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
class ScanLaunch:
    """One scan as the kernels read it: its operands, its event lists, and its sizes."""

    operands: ScanOperands
    """Contiguous, with matrices in x's dtype; weights and biases lie as :func:`by_drive` says."""
    lists: DeviceEventList
    precision: str

    @classmethod
    def prepare(
        cls, operands: ScanOperands, lists: DeviceEventList, precision: str
    ) -> "ScanLaunch":
        """Convert the operands to the layout that kernels read."""
        dtype = operands.x.dtype
        values: dict[str, Tensor | None] = {
            "weight": by_drive(operands.weight.to(dtype)),
            "recurrent": by_drive(operands.recurrent.to(dtype)),
            "bias": by_drive(operands.bias),
        }
        for name in ("x", "unit", "gate", "decay", "lengths", "relevant"):
            value = getattr(operands, name)
            values[name] = None if value is None else value.contiguous()
        if operands.reset is not None:
            values["reset"] = operands.reset.view(torch.uint8).contiguous()
        return cls(operands.replace(**values), lists, precision)

    @cached_property
    def kernel_cell(self) -> KernelCell:
        cell = kernel_cell(self.operands.cell)
        assert cell is not None
        return cell

    @cached_property
    def open(self) -> Tensor | None:
        """[T, B, N]: where heads are open, if events may also be resets of closed heads."""
        if self.operands.reset is None:
            return None
        return open_heads(self.operands.gate).view(torch.uint8)

    @cached_property
    def silent(self) -> Tensor | None:
        """[S, N, D]: recurrent products with a state of zeros, if there are such states inside.
        They are 0, or NaN by weights that are not finite."""
        if self.operands.decay is None and self.operands.reset is None:
            return None
        return (self.operands.recurrent.transpose(0, 1) * 0).sum(-1)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """T, B, N."""
        return self.operands.x.shape[0], self.operands.x.shape[1], self.operands.weight.shape[0]

    @property
    def width(self) -> int:
        return self.operands.weight.shape[2]

    @property
    def features(self) -> int:
        return self.operands.x.shape[2]

    @property
    def rows(self) -> int:
        return self.lists.rows(self.sizes[1])

    @property
    def rows_of_a_head(self) -> int:
        """An upper bound, padding included."""
        steps, batch, _ = self.sizes
        return min(self.rows, (steps + 2) * batch)

    @property
    def tile_rows(self) -> int:
        return tile_rows(self.tile_width, self.operands.x.itemsize)

    def tile_depth_of(self, features: int) -> int:
        return feature_tile(features, tile_depth(self.tile_width, self.operands.x.itemsize))

    @property
    def chunk(self) -> int:
        return CHUNK if self.sizes[0] <= LONG else LONG_CHUNK

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(
            shape, dtype=dtype or self.operands.x.dtype, device=self.operands.x.device
        )

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

    def serial_constants(self) -> dict[str, Any]:
        """Constants of the serial kernels."""
        whole, drives = padded(self.width), self.kernel_cell.drives
        part, warps = whole, {16: 2, 32: 4, 64: 8}.get(whole, 8)
        kind, device = self.operands.x.dtype, self.operands.x.device
        if not is_interpreted() and not fits_on_chip(drives, self.width, kind, device):
            part, warps = part_of_head(drives, self.width, kind, device), 8
        meta = {
            **self.kernel_cell.meta(self.operands.x.dtype),
            **self._common(part),
            "KD": whole,
            "TEAM": cdiv(self.width, part),
            "BT": SERIAL_SEQUENCES,
            "MASKED": not self.operands.binary
            or self.operands.gate.shape[-1] > 1
            or self.operands.reset is not None,  # a reset is an event, open or closed
            "RESETS": self.operands.reset is not None,
            "GATE_UNITS": self.operands.gate.shape[-1],
            "HAS_LENGTHS": self.operands.lengths is not None,
            "num_warps": warps,
        }
        if meta["TEAM"] > 1:  # programs of a team wait for each other, so all must run at once
            meta["launch_cooperative_grid"] = True
        return meta

    def _common(self, width: int) -> dict[str, Any]:
        return {
            "D": self.width,
            "BD": width,
            "SHARED": self.lists.shared,
            "DECAYS": self.operands.decay is not None,
            "PRECISION": self.precision,
        }

    def parallel_constants(self) -> dict[str, Any]:
        """Constants of the parallel kernels that compute the cell."""
        meta = {**self.kernel_cell.meta(self.operands.x.dtype), **self._common(self.tile_width)}
        return meta | {"RESETS": self.operands.reset is not None}

    def output_constants(self) -> dict[str, Any]:
        """Constants of the kernels between states and steps."""
        meta = self._common(self.tile_width)
        del meta["PRECISION"]
        return meta | {"C": self.kernel_cell.components}

    def pointer(self, tensor: Tensor | None) -> Tensor:
        """``tensor``, or for None some tensor that the kernel does not read."""
        return self.lists.first if tensor is None else tensor


def by_drive(values: Tensor) -> Tensor:
    """[N, S, ...] that lies in memory as [S, N, ...], the layout of torch's weights."""
    return values.transpose(0, 1).contiguous().transpose(0, 1)


def by_drive_like(values: Tensor) -> Tensor:
    """New memory for [N, S, ...] in that layout."""
    return values.new_empty(values.transpose(0, 1).shape).transpose(0, 1)


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


def gate_tile(scan: ScanLaunch) -> tuple[int, int]:
    """Sequences and warps of a program of the gate's gradient."""
    sequences = batch_tile(scan.sizes[1], max(16, 1024 // scan.tile_width))
    return sequences, max(1, min(8, sequences * scan.tile_width // 256))


def weight_tile(scan: ScanLaunch, features: int) -> tuple[int, int, int, int]:
    """Rows and features of a tile of weight gradients, warps, and stages of its pipeline."""
    width, size, drives = scan.tile_width, scan.operands.x.itemsize, scan.kernel_cell.drives
    inner = feature_tile(features, tile_rows(width, size))
    light = drives < 4 and size == 2  # else 4 warps spill
    deep = max(16, min(128, 65536 // (4 ** (drives > 1) * width * size)))
    return deep, inner, 4 if light else 8, 2
