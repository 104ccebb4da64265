"""Schedules that nobody learns, and the free table: the paper's ablations."""

import torch
from torch import Tensor, nn

from .base import Gate, refuse
from .clock import ClockGate

_LEARNED = ("mode", "frozen", "surrogate", "target_rate")


class AlwaysOpen(Gate):
    """Every unit updates at every step: the plain RNN."""

    def __init__(self, **options) -> None:
        refuse(type(self), options, "rate", *_LEARNED)
        options.setdefault("granularity", "layer")
        super().__init__(rate=1.0, frozen=True, **options)

    def preactivation(self, t, x, memory):
        return torch.ones(*t.shape, 1, device=t.device), memory


class EveryN(Gate):
    """Open at t = n, 2n, 3n, ...: one rate for all.

    Args:
        n: the period.
        staggered: gate i opens i steps earlier, so that some unit updates at any time.
    """

    def __init__(self, n: int = 3, *, staggered: bool = False, **options) -> None:
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        refuse(type(self), options, "rate", *_LEARNED)
        super().__init__(rate=1 / n, frozen=True, **options)
        self.n = n
        self.staggered = staggered

    def preactivation(self, t, x, memory):
        assert self.width is not None
        shift = torch.arange(self.width, device=t.device) if self.staggered else 0
        return ((t.unsqueeze(-1) + shift) % self.n == 0).float() - 0.5, memory


class FixedRandom(Gate):
    """A coin for every (step, gate), tossed once: the same for every sequence and every run.

    The coin is a hash of (seed, t, gate), so that it needs no table and any t can be asked for.
    """

    def __init__(self, *, seed: int = 0, **options) -> None:
        refuse(type(self), options, *_LEARNED)
        options.setdefault("rate", 0.5)
        super().__init__(frozen=True, **options)
        self.seed = seed

    def preactivation(self, t, x, memory):
        assert self.width is not None
        gate = torch.arange(self.width, device=t.device)
        coin = _uniform_hash(t.unsqueeze(-1) * 0x1F123BB5 + gate, self.seed)
        return self.rate - coin, memory


class Table(ClockGate):
    """A free logit for every (step, gate), repeated beyond the horizon.

    As many parameters as steps times gates, and no notion that neighbouring steps are alike.
    """

    def setup(self, width, input_size):
        self.logit = nn.Parameter(torch.randn(self.horizon, width) * 0.1)
        self._calibrate_bias(width)
        # The table needs no separate bias: fold it in, so that every logit is free.
        with torch.no_grad():
            self.logit += self.bias
        del self.bias

    def wave(self, t):
        return self.logit.double()[torch.remainder(t - 1, self.horizon)]

    def preactivation(self, t, x, memory):
        return self.wave(t), memory


def _uniform_hash(key: Tensor, seed: int) -> Tensor:
    """splitmix64: int64 keys to uniform numbers in [0, 1), the same on every device."""
    z = key * -7046029254386353131 + (seed * 0x9E3779B1) % (1 << 62)
    z = (z ^ _shift_right(z, 30)) * -4658895280553007687
    z = (z ^ _shift_right(z, 27)) * -7723592293110705685
    z = z ^ _shift_right(z, 31)
    return _shift_right(z, 11).double() * 2.0**-53


def _shift_right(z: Tensor, bits: int) -> Tensor:
    """Logical shift of a signed integer."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
