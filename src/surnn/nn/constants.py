"""Small tensors that never change, kept between calls: making one costs a GPU's host time.

Nothing should write to them: those written to are new at every later call. Each CUDA stream has its
own: on another one, they could be read before they are written. In a traced computation or a CUDA
graph, whose memory belongs to it, they are new.
"""

from functools import lru_cache

import torch
from torch import Tensor

from .runtime import can_branch_on, stream_of


def count_steps(steps: int, x: Tensor) -> Tensor:
    """1, 2, ..., ``steps`` as [steps, 1] on x's device."""
    if not _can_keep(x):
        return _count(steps, x.device)
    kept = _cached_count(steps, x.device, stream_of(x))
    return _count(steps, x.device) if kept._version else kept


def constant_zeros(shape: tuple[int, ...], dtype: torch.dtype, like: Tensor) -> Tensor:
    """Zeros on the device of ``like``."""
    if not _can_keep(like):
        return _zeros(shape, dtype, like.device)
    kept = _cached_zeros(tuple(shape), dtype, like.device, stream_of(like))
    return _zeros(shape, dtype, like.device) if kept._version else kept


def zero_clock(x: Tensor) -> Tensor:
    """The clock before the first time step: a scalar, the same tensor at every eager call."""
    return constant_zeros((), torch.int64, x)


def is_start(clock: Tensor, x: Tensor) -> bool:
    """Whether ``clock`` is that of :func:`zero_clock`."""
    return _can_keep(x) and clock is zero_clock(x)


def _can_keep(x: Tensor) -> bool:
    return (x.is_cuda or x.is_cpu) and can_branch_on(x) and not torch.jit.is_tracing()


def _count(steps: int, device: torch.device) -> Tensor:
    return torch.arange(1, steps + 1, device=device)[:, None]


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)


@lru_cache(maxsize=8)
def _cached_count(steps: int, device: torch.device, _stream: int) -> Tensor:
    with torch.inference_mode(False):  # later callers may train with the cached tensor
        return _count(steps, device)


@lru_cache(maxsize=8)
def _cached_zeros(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, _stream: int
) -> Tensor:
    with torch.inference_mode(False):
        return _zeros(shape, dtype, device)
