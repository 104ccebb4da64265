"""Schedules that nobody learns, and the free table: the paper's ablations."""

import torch
from torch import Tensor, nn

from .base import Gate, refuse
from .clock import ClockGate

_LEARNED = ("mode", "frozen", "surrogate", "target_rate")
_LONGEST_CYCLE = 10**9  # shares of it are products that must stay in 64 bits


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


class Cycles(Gate):
    """Each gate opens for some steps of a cycle of its own: the mask of Rhythm-SNN.

    From the first gate of a layer to the last, linearly: cycles from ``min_period`` to
    ``max_period`` steps, open for 1 % to 10 % of them, rounded up so that every gate opens, and
    beginning at the first step to half of ``max_period`` later. The ``rate`` follows from that.
    Rhythm-SNN has a ``min_period`` of 10, 20 and 30 in its three layers. Here all layers have the
    same, unless each is given a gate of its own (``gate=[Cycles(), Cycles(min_period=20), ...]``).

    Args:
        min_period: the first gate's cycle, in whole steps.
        max_period: the last gate's, at most 10^9.
        **options: see :class:`Gate`.

    Example:
        >>> gate = Cycles().bind(hidden_size=64)
        >>> round(gate.rate, 3)
        0.07
    """

    def __init__(self, *, min_period: float = 10, max_period: float = 100, **options) -> None:
        refuse(type(self), options, "rate", *_LEARNED)
        whole = min_period % 1 == 0 and max_period % 1 == 0
        if not (whole and 1 <= min_period <= max_period <= _LONGEST_CYCLE):
            raise ValueError(
                "periods must be whole steps with 1 <= min_period <= max_period <= 10^9, "
                f"got {min_period} and {max_period}"
            )
        super().__init__(rate=0.055, frozen=True, **options)  # the mean, before rounding up
        self.min_period, self.max_period = int(min_period), int(max_period)

    def setup(self, width, input_size):
        period, open_steps, _ = self.cycles()
        self.rate = (open_steps.double() / period).mean().item()

    def cycles(self, device: torch.device | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Of each gate [width]: its period, its open steps, and after how many they begin.

        In integers alone, so that rounding is the same on every device, and made anew each time,
        so that there is nothing to be cast or lost.
        """
        assert self.width is not None
        j, last = torch.arange(self.width, device=device), max(self.width - 1, 1)
        longer = self.max_period - self.min_period
        period = self.min_period + (2 * longer * j + last) // (2 * last)  # to the nearest
        percent_times_last = last + 9 * j
        open_steps = (period * percent_times_last + 100 * last - 1) // (100 * last)  # up
        return period, open_steps, (self.max_period * j + last) // (2 * last)

    def preactivation(self, t, x, memory):
        period, open_steps, shift = self.cycles(t.device)
        since = (t.unsqueeze(-1) - 1 - shift) % period
        return (since < open_steps).float() - 0.5, memory


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
