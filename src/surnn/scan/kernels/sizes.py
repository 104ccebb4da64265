"""How large tiles are, and how many programs share the work.

Chosen by shape and device alone, never by data, so that results repeat bit for bit.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
import triton
from torch import Tensor

from ...cells import get_cell
from .cells import KernelCell, kernel_cell
from .lists import Lists

# Sequences that one program walks: as few as tensor cores take.
WALKED = 16
# Bytes of recurrent weights on one multiprocessor: a whole head's; one part of a wide head's that
# stays; one that is read anew at every event, of which two are there at a time.
ON_CHIP, KEPT_BYTES, READ_BYTES = 200 * 1024, 128 * 1024, 48 * 1024
# Bytes of one unit's recurrent weights, beyond which not even the smallest part has room.
UNIT_BYTES = 4608
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
    def wide(self) -> bool:
        """Whether a head's recurrent weights are too large to stay on chip."""
        return not fits_on_chip(self.kernel_cell.drives, self.width, self.x.dtype)

    @cached_property
    def tile_width(self) -> int:
        """Units that the parallel kernels handle at a time."""
        return min(padded(self.width), 64 if self.width > 128 else 128)

    @property
    def head_parts(self) -> int:
        """Programs for all units of all heads."""
        return self.sizes[2] * triton.cdiv(self.width, self.tile_width)

    def walking(self) -> dict[str, Any]:
        """Constants of the serial kernels."""
        width = padded(self.width)
        return {
            **self._walking(),
            **self._common(width),
            "HAS_LENGTHS": self.lengths is not None,
            "num_warps": {16: 2, 32: 4, 64: 8, 128: 8}[width],
        }

    def walking_wide(self) -> dict[str, Any]:
        """Constants of the serial kernels of heads that do not fit on chip."""
        width, heads = padded(self.width), self.sizes[2]
        walks = triton.cdiv(self.sizes[1], WALKED) * heads
        room = multiprocessors(self.x.device) // walks
        for budget in (KEPT_BYTES, READ_BYTES):
            part = budget // (self.kernel_cell.drives * width * self.x.itemsize)
            part = max(16, min(64, previous_power_of_2(part)))
            parts = triton.cdiv(self.width, part)
            if parts <= room:
                break
        team = max(1, min(parts, room))
        meta = self._walking() | self._common(part)
        del meta["DECAYS"]
        if team > 1:  # they wait for each other, so all must run at once
            meta["launch_cooperative_grid"] = True
        return meta | {"KD": width, "TEAM": team, "num_warps": 8}

    def _walking(self) -> dict[str, Any]:
        return {
            **self.kernel_cell.meta(),
            "BT": WALKED,
            "MASKED": not self.binary or self.gate.shape[-1] > 1,
            "GATE_UNITS": self.gate.shape[-1],
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
    return max(16, triton.next_power_of_2(width))


@cache
def multiprocessors(device: torch.device) -> int:
    return (
        torch.cuda.get_device_properties(device).multi_processor_count
        if device.type == "cuda"
        else 1
    )


def previous_power_of_2(n: int) -> int:
    return 1 << (max(n, 1).bit_length() - 1)


def fits_on_chip(drives: int, width: int, dtype: torch.dtype) -> bool:
    """Whether one program can keep a head's recurrent weights, beside what else it needs."""
    return padded(width) <= 128 and drives * padded(width) ** 2 * dtype.itemsize <= ON_CHIP


def widest_head(drives: int, dtype: torch.dtype) -> int:
    """The most units that a head can have."""
    return previous_power_of_2(UNIT_BYTES // (drives * dtype.itemsize))


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
