"""Schedules that are not learned, and the free table: the paper's ablations."""

import math
from typing import Any, Never, Unpack

import torch
from torch import Tensor, nn

from ..options import check_known
from ..runtime import has_float64
from .base import Gate, check_share
from .clock import ClockGate
from .options import Granularity, SharedOptions
from .parts import on_host

_LONGEST_CYCLE = 10**9  # shares of it are products that must fit in 64 bits


class FixedSchedule(Gate):
    """Base of gates without anything to learn: the schedule follows from their options.

    Args:
        **options: see :class:`Gate`.
    """

    def __init__(
        self, *, granularity: Granularity = "auto", always_on: float = 0.0, **unknown: Any
    ) -> None:
        check_known(type(self), unknown)
        super().__init__(granularity=granularity, always_on=always_on, frozen=True)


class AlwaysOpen(FixedSchedule):
    """Every unit updates at every time step: the plain RNN.

    Args:
        **options: see :class:`Gate`.

    Example:
        >>> gate = AlwaysOpen().bind(hidden_size=2)
        >>> gate(torch.arange(1, 4)[:, None])[0].g.mean().item()
        1.0
    """

    reads_clock = False

    def __init__(
        self, *, granularity: Granularity = "layer", always_on: float = 0.0, **unknown: Never
    ) -> None:
        check_known(type(self), unknown)
        super().__init__(granularity=granularity, always_on=always_on)
        self.rate = 1.0

    def preactivation(self, t, x, memory):
        return torch.ones(*t.shape, 1, device=t.device), memory


class EveryN(FixedSchedule):
    """Open at t = n, 2n, 3n, ...: the same rate for all gates.

    Args:
        n: the period, in time steps.
        staggered: gate i opens i time steps earlier, so that at any time some units update.
        **options: see :class:`Gate`.

    Example:
        >>> gate = EveryN(n=3).bind(hidden_size=1)
        >>> gate(torch.arange(1, 7)[:, None])[0].g.flatten().tolist()
        [0.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    """

    def __init__(
        self, n: int = 3, *, staggered: bool = False, **options: Unpack[SharedOptions]
    ) -> None:
        super().__init__(**options)
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        self.rate = 1 / n
        self.n = n
        self.staggered = staggered

    def preactivation(self, t, x, memory):
        assert self.width is not None
        shift = torch.arange(self.width, device=t.device) if self.staggered else 0
        return ((t.unsqueeze(-1) + shift) % self.n == 0).float() - 0.5, memory


class Cycles(FixedSchedule):
    """Each gate opens for some time steps of its own cycle: the mask of Rhythm-SNN.

    Three numbers change linearly from the first gate of a layer to the last:

    - period: from ``min_period`` to ``max_period`` time steps;
    - open share of the period: from 1 % to 10 %, rounded up so that every gate opens;
    - start of the first cycle: from the first time step to ``max_period / 2`` time steps later.

    The ``rate`` follows from these. Rhythm-SNN has a ``min_period`` of 10, 20 and 30 in its three
    layers; for that, pass one gate per layer
    (``gate=[Cycles(), Cycles(min_period=20), Cycles(min_period=30)]``).

    Args:
        min_period: cycle of the first gate, in whole time steps.
        max_period: cycle of the last gate, at most 10^9.
        **options: see :class:`Gate`.

    Example:
        >>> gate = Cycles().bind(hidden_size=64)
        >>> round(gate.rate, 3)
        0.07
    """

    def __init__(
        self,
        *,
        min_period: float = 10.0,
        max_period: float = 100.0,
        **options: Unpack[SharedOptions],
    ) -> None:
        super().__init__(**options)
        whole = min_period % 1 == 0 and max_period % 1 == 0
        if not (whole and 1 <= min_period <= max_period <= _LONGEST_CYCLE):
            raise ValueError(
                "periods must be whole steps with 1 <= min_period <= max_period <= 10^9, "
                f"got {min_period:g} and {max_period:g}"
            )
        self.rate = 0.055  # the mean before rounding up; setup makes it exact
        self.min_period, self.max_period = int(min_period), int(max_period)

    def setup(self, width, input_size):
        period, open_steps, _ = self.cycles()
        self.rate = (open_steps.double() / period).mean().item()

    def cycles(self, device: torch.device | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Three tensors [width]: each gate's period, its open time steps, and where they begin.

        They are computed in integers, so that rounding is the same on every device, and not
        stored, so that no cast can change them.
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
        # Never negative: some runtimes (ExecuTorch) divide negative numbers as C does.
        since = (t.unsqueeze(-1) - 1 + (period - shift % period)) % period
        return (since < open_steps).float() - 0.5, memory


class FixedRandom(FixedSchedule):
    """A Bernoulli draw for each (time step, gate), the same for every sequence and every run.

    The draw is a hash of (seed, t, gate): it needs no table, and any t can be computed directly.

    Args:
        seed: of the draws.
        rate: share of time steps at which a gate is open, on average.
        **options: see :class:`Gate`.

    Example:
        >>> gate = FixedRandom(rate=0.5, seed=1).bind(hidden_size=8)
        >>> schedule, _ = gate(torch.arange(1, 101)[:, None])
        >>> schedule.g.shape
        torch.Size([100, 1, 8])
    """

    def __init__(
        self, *, seed: int = 0, rate: float = 0.5, **options: Unpack[SharedOptions]
    ) -> None:
        super().__init__(**options)
        check_share("rate", rate)
        self.rate = rate
        self.seed = seed

    def preactivation(self, t, x, memory):
        assert self.width is not None
        gate = torch.arange(self.width, device=t.device)
        coin = _hash(t.unsqueeze(-1) * 0x1F123BB5 + gate, self.seed)
        if has_float64(t.device):
            return self.rate - coin.double() * 2.0**-53, memory
        return (coin < math.ceil(self.rate * 2.0**53)).float() - 0.5, memory


class Table(ClockGate):
    """A free logit for every (time step, gate), repeated beyond the horizon.

    It has horizon times width parameters and does not relate neighbouring time steps.

    Args:
        **options: see :class:`ClockGate`.

    Example:
        >>> gate = Table(rate=0.25, horizon=100).bind(hidden_size=8)
        >>> round(gate(torch.arange(1, 101)[:, None])[0].g.mean().item(), 2)
        0.25
    """

    def setup(self, width, input_size):
        self.logit = nn.Parameter(torch.randn(self.horizon, width) * 0.1)
        self._calibrate_bias(width)
        # The table needs no separate bias: it becomes part of every logit.
        with torch.no_grad():
            self.logit += self.bias
        del self.bias

    def wave(self, t):
        return self.logit.double()[torch.remainder(t - 1, self.horizon)]

    def preactivation(self, t, x, memory):
        return self.wave(t) if has_float64(t.device) else on_host(self, t), memory


def _hash(key: Tensor, seed: int) -> Tensor:
    """splitmix64: uniform integers in [0, 2^53) from int64 keys, the same on every device."""
    z = key * -7046029254386353131 + (seed * 0x9E3779B1) % (1 << 62)
    z = (z ^ _shift_right(z, 30)) * -4658895280553007687
    z = (z ^ _shift_right(z, 27)) * -7723592293110705685
    z = z ^ _shift_right(z, 31)
    return _shift_right(z, 11)


def _shift_right(z: Tensor, bits: int) -> Tensor:
    """Logical shift of a signed integer."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
