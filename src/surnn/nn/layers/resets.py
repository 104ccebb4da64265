"""The argument ``reset`` of layers: its form, and resets of the direction that reads backwards."""

from typing import Any

import torch
from torch import Tensor

from surnn.scan.contract import step_mask

from ..resets import restart_clock
from .checks import shape_of
from .sequence import reverse


def check_reset(reset: Any, x: Tensor, batched: bool, batch_first: bool) -> Tensor | None:
    """The mask of a whole sequence as [T, B], for x [T, B, I]; raises if it does not fit."""
    if reset is None:
        return None
    steps, batch = x.shape[:2]
    shape = ([batch, steps] if batch_first else [steps, batch]) if batched else [steps]
    _check_mask(reset, shape, "one entry for each time step of each sequence")
    if not batched:
        return reset.unsqueeze(1)
    return reset.t() if batch_first else reset


def check_step_reset(reset: Any, batch: int, batched: bool) -> Tensor | None:
    """The mask [B] of one time step, for a frame [B, I] or [I]; raises if it does not fit."""
    if reset is None:
        return None
    if not isinstance(reset, Tensor) and not batched:
        reset = torch.tensor(reset)
    _check_mask(reset, [batch] if batched else [], "one entry for each sequence")
    return reset.reshape(batch)


def _check_mask(reset: Any, shape: list[int], meaning: str) -> None:
    if not isinstance(reset, Tensor) or reset.dtype != torch.bool:
        kind = str(reset.dtype) if isinstance(reset, Tensor) else type(reset).__name__
        raise TypeError(
            f"reset must be a bool tensor {shape}, True where a sequence restarts, got {kind}; "
            "convert it, for example done.bool()"
        )
    if list(reset.shape) != shape:
        raise ValueError(f"reset must be {shape}, {meaning}, got {shape_of(reset)}")


def clock_after(clock: Tensor, t: Tensor, reset: Tensor | None, lengths: Tensor | None) -> Tensor:
    """The clock after the time steps t [T, b] or ``lengths`` of them, from ``clock``."""
    if reset is None:
        return clock + (t.shape[0] if lengths is None else lengths)
    t = restart_clock(t, reset)
    return t[-1] if lengths is None else t.gather(0, (lengths - 1).unsqueeze(0))[0]


def reverse_resets(reset: Tensor, lengths: Tensor | None) -> Tensor:
    """The resets [T, B] of the same sequences, read backwards.

    A segment that starts at a reset is read from its end: the state restarts at the last time
    step before the reset.
    """
    if lengths is not None:
        reset = reset & step_mask(len(reset), lengths)
    backwards = reverse(reset.unsqueeze(-1), lengths).squeeze(-1)
    return torch.cat((torch.zeros_like(reset[:1]), backwards[:-1]))
