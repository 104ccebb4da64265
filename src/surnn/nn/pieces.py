"""Many arrays in one allocation.

An allocation or a view costs the host several microseconds on some machines, and a short pass would
need dozens of them. Kernels need only addresses, so their scratch memory is one tensor, and its
parts are numbers.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .runtime import cdiv

# Triton compiles separate code for pointers that are not multiples of it.
_ALIGNMENT = 16

Spec = tuple[Sequence[int], torch.dtype]
"""Shape and dtype of a piece."""


class Piece:
    """A part of a tensor's memory, as kernels take it: an address and a dtype."""

    __slots__ = ("buffer", "dtype", "offset", "shape")

    def __init__(
        self, buffer: Tensor, offset: int, shape: Sequence[int], dtype: torch.dtype
    ) -> None:
        self.buffer, self.offset, self.shape, self.dtype = buffer, offset, shape, dtype

    def data_ptr(self) -> int:
        """The address; Triton calls this method of all its pointer arguments."""
        return self.buffer.data_ptr() + self.offset

    def tensor(self) -> Tensor:
        """The same memory as a tensor."""
        raw = self.buffer.detach().view(-1).view(torch.uint8)
        size = math.prod(self.shape) * self.dtype.itemsize
        return raw[self.offset : self.offset + size].view(self.dtype).view(self.shape)


def allocate(device: torch.device, specs: Sequence[Spec]) -> tuple[Tensor, list[Piece]]:
    """A new buffer for all ``specs``, and its pieces."""
    buffer = torch.empty(words(specs), dtype=torch.int64, device=device)
    return buffer, pieces_of(buffer, specs)


def words(specs: Sequence[Spec]) -> int:
    """The size of a buffer for all ``specs``, in int64."""
    return sum(_size(spec) for spec in specs) // 8


def pieces_of(buffer: Tensor, specs: Sequence[Spec]) -> list[Piece]:
    """The pieces of a buffer that was allocated for ``specs``.

    Empty ones lie at its beginning: the address after its end may belong to no allocation, and
    Triton refuses such addresses.
    """
    pieces, offset = [], 0
    for spec in specs:
        size = _size(spec)
        pieces.append(Piece(buffer, offset if size else 0, *spec))
        offset += size
    return pieces


def _size(spec: Spec) -> int:
    """Bytes, padded."""
    shape, dtype = spec
    return cdiv(math.prod(shape) * dtype.itemsize, _ALIGNMENT) * _ALIGNMENT
