"""A GPU kernel that adds up the partial sums of programs, in a fixed order."""

import triton
import triton.language as tl
from torch import Tensor

from .kernel_launch import launch
from .pieces import Piece
from .runtime import cdiv

BLOCK = 1024


@triton.jit
def total_of(PARTS, i, SIZE, SPLITS):
    """The sum over splits of entries i of [splits, SIZE]."""
    total = tl.load(PARTS + i, mask=i < SIZE, other=0.0)
    for split in range(1, SPLITS):
        total += tl.load(PARTS + tl.cast(split, tl.int64) * SIZE + i, mask=i < SIZE, other=0.0)
    return total


@triton.jit(do_not_specialize=["SIZE", "FIRST", "SPLITS"])
def sum_kernel(PARTS, OUT, MORE, SIZE, FIRST, SPLITS, BLOCK: tl.constexpr):
    """OUT has the first entries, MORE the others."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = total_of(PARTS, i, SIZE, SPLITS)
    tl.store(OUT + i, total.to(OUT.dtype.element_ty), mask=i < FIRST)
    tl.store(MORE + i - FIRST, total.to(MORE.dtype.element_ty), mask=(i >= FIRST) & (i < SIZE))


def add_splits(parts: Piece, out: Tensor, more: Tensor | None = None) -> None:
    """Write to ``out``, and then to ``more``, the sum over the first dimension of ``parts``."""
    first = out.numel()
    size = first if more is None else first + more.numel()
    launch(
        sum_kernel, (cdiv(size, BLOCK),), parts, out, out if more is None else more, size, first,
        parts.shape[0], BLOCK=BLOCK,
    )  # fmt: skip
