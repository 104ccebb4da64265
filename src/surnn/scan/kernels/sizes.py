"""How large tiles are, and how many programs share the work.

Chosen by shape and device alone, never by data, so that results repeat bit for bit.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...cells import get_cell
from ...eager import cdiv, is_interpreted, next_power_of_2
from .cells import KernelCell, kernel_cell
from .lists import Lists

# Sequences that one program walks: as few as tensor cores take.
WALKED = 16
# Bytes of a multiprocessor's shared memory that a walk needs beside what it keeps there.
BESIDE = 27 * 1024
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

    @cached_property
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
        return rows_beside(self.tile_width, self.x.itemsize)

    def tile_depth_of(self, features: int) -> int:
        return feature_tile(features, depth_beside(self.tile_width, self.x.itemsize))

    @property
    def chunk(self) -> int:
        return CHUNK if self.sizes[0] <= LONG else LONG_CHUNK

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(shape, dtype=dtype or self.x.dtype, device=self.x.device)

    @cached_property
    def tile_width(self) -> int:
        """Units that the parallel kernels handle at a time."""
        return min(padded(self.width), 64 if self.width > 128 else 128)

    @property
    def head_parts(self) -> int:
        """Programs for all units of all heads."""
        return self.sizes[2] * cdiv(self.width, self.tile_width)

    @property
    def walks(self) -> int:
        """Of the serial kernels: a head's list, for a tile of sequences."""
        return cdiv(self.sizes[1], WALKED) * self.sizes[2]

    def walking(self) -> dict[str, Any]:
        """Constants of the serial kernels."""
        whole, drives = padded(self.width), self.kernel_cell.drives
        part, warps = whole, {16: 2, 32: 4, 64: 8}.get(whole, 8)
        kind, device = self.x.dtype, self.x.device
        if not is_interpreted() and not fits_on_chip(drives, self.width, kind, device):
            part, warps = part_of_head(drives, self.width, kind, device), 8
        meta = {
            **self.kernel_cell.meta(),
            **self._common(part),
            "KD": whole,
            "TEAM": cdiv(self.width, part),
            "BT": WALKED,
            "MASKED": not self.binary or self.gate.shape[-1] > 1,
            "GATE_UNITS": self.gate.shape[-1],
            "HAS_LENGTHS": self.lengths is not None,
            "num_warps": warps,
        }
        if meta["TEAM"] > 1:  # they wait for each other, so all must run at once
            meta["launch_cooperative_grid"] = True
        return meta

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
        return {**self.kernel_cell.meta(), **self._common(self.tile_width), "BM": rows}

    def outputs(self) -> dict[str, Any]:
        """Constants of the kernels between states and steps."""
        meta = self._common(self.tile_width)
        del meta["PRECISION"]
        return meta | {"C": self.kernel_cell.components, "HAS_LENGTHS": self.lengths is not None}

    def optional(self, tensor: Tensor | None) -> Tensor:
        """A kernel takes a tensor for every pointer; this one is not read."""
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
    """How many programs surely run at once; of no matter to the interpreter, as of an H200."""
    return _chip(device.index)[0] if device.type == "cuda" else 132


def on_chip(device: torch.device) -> int:
    """Bytes that one program can keep on chip for a walk."""
    shared = _chip(device.index)[1] if device.type == "cuda" else 227 * 1024
    return shared - BESIDE


def previous_power_of_2(n: int) -> int:
    return 1 << (max(n, 1).bit_length() - 1)


def fits_on_chip(drives: int, width: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether one program can keep a head's recurrent weights."""
    size = drives * padded(width) ** 2 * dtype.itemsize
    return padded(width) <= 128 and size <= on_chip(device)


def part_of_head(drives: int, width: int, dtype: torch.dtype, device: torch.device) -> int:
    """Units for each of a team of programs; fewer than 16 means that there is no way.

    A program keeps its units' weights and, for its sequences, what all units feed into them.
    """
    per_unit = drives * padded(width) * dtype.itemsize
    return min(64, previous_power_of_2(on_chip(device) // per_unit - WALKED))


def batch_tile(batch: int, most: int) -> int:
    return min(most, max(16, next_power_of_2(batch)))


def feature_tile(features: int, most: int) -> int:
    return min(most, max(16, next_power_of_2(features)))


def rows_beside(width: int, itemsize: int) -> int:
    """Rows of a tile, when a few tiles of a head's width are held at once."""
    return max(16, min(128, 16384 // (width * itemsize)))


def depth_beside(width: int, itemsize: int) -> int:
    """Input features taken at a time, when weights for a head's width are held beside."""
    return max(16, min(64, 8192 // (width * itemsize)))
