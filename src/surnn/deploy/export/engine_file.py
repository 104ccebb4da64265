"""The engine's file, byte by byte as in ``csrc/FORMAT.md``: arrays, vectors, operations.

This module knows nothing about models: :mod:`surnn.deploy.export.engine` adds their operations.
"""

import struct
import zlib
from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np

MAGIC = b"SURNN\r\n\x1a"
HEADER_SIZE, ALIGNMENT = 64, 64
FLOAT32, INT8, INT8_BY_INT8 = 0, 1, 2
"""Types of weights. 8-bit weights multiply numbers of 16 bits, or of 8 bits."""
LANES = 16
"""Outputs of a linear map, or units of a recurrent layer, that are computed together."""


class Op(IntEnum):
    """Kinds of operations."""

    EMBED = 1
    LINEAR = 2
    NORM = 3
    AFFINE = 4
    GELU = 5
    GLU = 6
    ADD = 7
    MEAN = 8
    LEAK = 9
    CLEAN = 10
    GATE_PERIODIC = 11
    GATE_RHYTHM = 12
    GATE_HASH = 13
    GATE_ABOVE = 14
    GATE_LEVEL = 15
    RECURRENT = 16
    CONVOLVE = 17
    GATE_CYCLES = 18
    ACTIVATE = 19
    MULTIPLY = 20
    PART = 21
    WINDOW = 22
    SINUSOIDS = 23


class EngineFile:
    """Collects a model's parts and lays them out.

    Args:
        input_size: numbers of a frame, or the vocabulary's size.
        takes_tokens: whether the input is a token.
    """

    def __init__(self, input_size: int, takes_tokens: bool) -> None:
        self.input_size, self.takes_tokens = input_size, takes_tokens
        self.buffers = [1 if takes_tokens else input_size]
        self.gates = 0
        self.weight_types: set[int] = set()
        self._operations: list[bytes] = []
        self._arrays: list[bytes] = []
        self._end = HEADER_SIZE

    @property
    def version(self) -> int:
        """The version of the format; engines refuse a newer one than they know by the header."""
        return 2 if INT8_BY_INT8 in self.weight_types else 1

    def vector(self, size: int) -> int:
        """Add a vector of numbers; returns its number. Vector 0 is the input."""
        self.buffers.append(size)
        return len(self.buffers) - 1

    def gate(self) -> int:
        """Add a set of gates; returns its number."""
        self.gates += 1
        return self.gates - 1

    def array(self, values: np.ndarray) -> int:
        """Store an array; returns its offset in the file."""
        raw = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).tobytes()
        offset = self._end
        self._arrays.append(raw + bytes(-len(raw) % ALIGNMENT))
        self._end += len(self._arrays[-1])
        return offset

    def add(
        self,
        kind: Op,
        into: int,
        out: int,
        second: int = 0,
        numbers: Sequence[int] = (),
        data: Sequence[np.ndarray | None] = (),
    ) -> int:
        """Add an operation that reads vector ``into`` and writes ``out``; returns ``out``."""
        offsets = [0 if a is None or not a.size else self.array(a) for a in data]
        numbers = [*numbers, *[0] * (12 - len(numbers))]
        offsets += [0] * (8 - len(offsets))
        record = struct.pack("<4I12I8Q", kind, into, second, out, *numbers, *offsets)
        self._operations.append(record)
        return out

    def to_bytes(self, output: int) -> bytes:
        """The whole file of a model whose output is vector ``output``."""
        sizes = self.array(np.array(self.buffers, np.uint32))
        table = self.array(np.frombuffer(b"".join(self._operations), np.uint8))
        rest = struct.pack(
            "<Q6I2Q",
            self._end,
            len(self._operations),
            len(self.buffers),
            self.gates,
            int(self.takes_tokens),
            self.input_size,
            output,
            table,
            sizes,
        ) + b"".join(self._arrays)
        return MAGIC + struct.pack("<2I", self.version, zlib.crc32(rest)) + rest


def float_bits(value: float) -> int:
    """The bits of a float32 as an integer."""
    return struct.unpack("<I", struct.pack("<f", value))[0]


# ---------------------------------------------------------------------------- layouts of weights


def quantise(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows [..., n] as 8-bit numbers and a float32 scale for each row."""
    scale = np.abs(rows).max(-1, initial=0.0) / 127.0
    scale = np.where(scale > 0, scale, 1.0)
    return np.rint(rows / scale[..., None]).astype(np.int8), scale.astype(np.float32)


def tile_weights(rows: np.ndarray, lanes: int) -> np.ndarray:
    """Rows [S, units, n] of at most ``lanes`` units as one flat array of the same dtype."""
    drives, units, n = rows.shape
    if lanes == 1:
        return _interleaved_rows(rows[:, 0])
    pad = 1 if rows.dtype != np.int8 else -n % 4 + 1
    tile = np.zeros((n + pad - 1, drives, lanes), rows.dtype)
    tile[:n, :, :units] = rows.transpose(2, 0, 1)
    if rows.dtype == np.int8:
        tile = tile.reshape(-1, 4, drives, lanes).transpose(0, 2, 3, 1)
    return tile.ravel()


def _interleaved_rows(rows: np.ndarray) -> np.ndarray:
    """[S, n] in chunks of columns: all rows of the first chunk, then of the second, ..."""
    drives, n = rows.shape
    if rows.dtype == np.int8:
        rows = np.pad(rows, ((0, 0), (0, -n % 64)))
        return rows.reshape(drives, -1, 64).transpose(1, 0, 2).ravel()
    whole = n - n % 16
    chunks = rows[:, :whole].reshape(drives, -1, 16).transpose(1, 0, 2)
    return np.concatenate((chunks.ravel(), rows[:, whole:].ravel()))


def linear(
    file: EngineFile,
    into: int,
    weight: np.ndarray,
    bias: np.ndarray | None,
    weights: int,
    selective: bool = False,
) -> int:
    """Add a linear map with weight [out, in], or [groups, out, in] if it is block-diagonal.

    ``selective`` marks an input that mostly does not change from one time step to the next.
    """
    blocks = weight[None] if weight.ndim == 2 else weight
    groups, outputs, _ = blocks.shape
    pieces: list[np.ndarray] = []
    scales: list[np.ndarray] = []
    sums: list[np.ndarray] = []
    for block in blocks.astype(np.float32):
        for first in range(0, outputs, LANES):
            rows: Any = block[first : first + LANES]
            if weights != FLOAT32:
                rows, scale = quantise(rows)
                scales.append(_padded(scale, LANES))
                sums.append(_padded(rows.astype(np.int32).sum(-1), LANES))
            pieces.append(tile_weights(rows[None], LANES))
    data = [
        np.concatenate(pieces),
        None if bias is None else bias.astype(np.float32),
        np.concatenate(scales).astype(np.float32) if scales else None,
        np.concatenate(sums).astype(np.int32) if sums else None,
    ]
    out = file.vector(groups * outputs)
    file.weight_types.add(weights)
    changes = int(selective and groups == 1 and weights == FLOAT32)
    return file.add(Op.LINEAR, into, out, numbers=[groups, weights, changes], data=data)


def _padded(values: np.ndarray, size: int) -> np.ndarray:
    return np.pad(values, (0, size - len(values)))


def cut_tiles(units: int, heads: int, gates: int) -> tuple[list[tuple[int, ...]], int]:
    """Cut units into tiles of at most ``lanes`` units of one head and one gate.

    Returns:
        (first unit, units, gate, head) of each tile, and ``lanes``.
    """
    in_head, in_gate = units // heads, units // gates
    edges = sorted({*range(0, units + 1, in_head), *range(0, units + 1, in_gate)})
    spans = list(pairwise(edges))
    lanes = 1
    if units >= 6 * len(spans):  # smaller groups would leave lanes empty
        waste = {width: sum(-(b - a) % width for a, b in spans) for width in (16, 8)}
        lanes = min(waste, key=lambda width: (waste[width], -width))
    tiles = [
        (first, min(lanes, end - first), first // in_gate, first // in_head)
        for begin, end in spans
        for first in range(begin, end, lanes)
    ]
    return tiles, lanes


def recurrent(
    file: EngineFile,
    into: int,
    gate: tuple[int, int],
    cell: int,
    heads: int,
    arrays: dict[str, np.ndarray],
    weights: int,
    options: Sequence[int],
) -> int:
    """Add a recurrent layer.

    Args:
        file: the file.
        into: the vector that it reads.
        gate: number of its set of gates, and the size of that set.
        cell: the cell's number.
        heads: blocks of the recurrence.
        arrays: ``input`` [S, H, I], ``recurrent`` [S, H, D], ``bias`` [S, H], ``unit`` [P, H].
        weights: FLOAT32, INT8 or INT8_BY_INT8.
        options: further numbers of the cell.
    """
    units = arrays["bias"].shape[1]
    tiles, lanes = cut_tiles(units, heads, gate[1])
    pieces, scales, sums, parameters = [], [], [], []
    per_unit = np.concatenate((arrays["bias"], arrays["unit"])).astype(np.float32)
    for first, count, _, _ in tiles:
        chosen = slice(first, first + count)
        for name in ("input", "recurrent"):
            rows: Any = arrays[name][:, chosen].astype(np.float32)
            if weights != FLOAT32:
                rows, scale = quantise(rows)
                fill = ((0, 0), (0, lanes - count))
                scales.append(np.pad(scale, fill).ravel())
                sums.append(np.pad(rows.astype(np.int32).sum(-1), fill).ravel())
            pieces.append(tile_weights(rows, lanes))
        parameters.append(np.pad(per_unit[:, chosen], ((0, 0), (0, lanes - count))).ravel())
    firsts = np.searchsorted([tile[2] for tile in tiles], np.arange(gate[1] + 1))
    data = [
        np.concatenate(pieces),
        np.concatenate(parameters),
        np.array(tiles, np.uint32),
        firsts.astype(np.uint32),
        np.concatenate(scales).astype(np.float32) if scales else None,
        np.concatenate(sums).astype(np.int32) if sums else None,
    ]
    numbers = [cell, units, heads, lanes, weights, len(tiles), *options]
    file.weight_types.add(weights)
    return file.add(Op.RECURRENT, into, file.vector(units), gate[0], numbers, data)
