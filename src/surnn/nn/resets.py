"""Resets inside a sequence: where the last one was, and the clock that restarts there.

A reset is an entry of a mask [T, B]: the sequence restarts before that time step.
"""

import torch
from torch import Tensor


def last_reset(reset: Tensor) -> Tensor:
    """[T, B] int64: the latest reset up to each time step, -1 before the first."""
    steps = torch.arange(reset.shape[0], device=reset.device)[:, None]
    return torch.where(reset, steps, -1).cummax(0).values


def steps_since_reset(reset: Tensor) -> Tensor:
    """[T, B] int64: time steps since the latest reset, or since the first time step; 0 there."""
    steps = torch.arange(reset.shape[0], device=reset.device)[:, None]
    return steps - last_reset(reset).clamp(min=0)


def restart_clock(t: Tensor, reset: Tensor) -> Tensor:
    """The time steps t [T, b] with a clock that starts at 1 at every reset: [T, B]."""
    return torch.where(last_reset(reset) < 0, t, steps_since_reset(reset) + 1)


def is_visible(reset: Tensor, lag: int) -> Tensor:
    """[T, B] bool: whether the time step ``lag`` before lies in the same part of the sequence."""
    steps = torch.arange(reset.shape[0], device=reset.device)[:, None]
    start = last_reset(reset)
    return (start < 0) | (steps - lag >= start)
