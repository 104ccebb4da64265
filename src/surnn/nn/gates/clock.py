"""Gates that depend on time alone: one schedule for the whole batch, known in advance.

All phases are computed in float64 from integer time steps: at t = 10^9 a float32 phase is off by
whole cycles. The cost is negligible, because the batch shares one schedule. On devices without
float64, rhythms are computed in integers (:mod:`.fixed_point`), other clocks on the CPU.
"""

import math
from functools import cache
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..options import check_known
from ..runtime import has_float64, is_traced
from ..surrogate import Surrogate
from .base import Gate
from .calibration import bias_for_rate
from .options import ClockOptions, FixedRhythmOptions, GateOptions, RhythmOptions
from .parts import GateParts, check_sinusoids, on_host, steps_of_horizon, wave_in_chunks

# Products of two numbers below it fit in 64 bits.
_LONGEST_HORIZON = 1 << 31


@cache
def _cached_tensor(numbers: tuple[int, ...], *, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # later callers may train with the cached tensor
        return torch.tensor(numbers, device=device)


class ClockGate(Gate):
    """Base of gates that depend on time alone, with a bias that sets the initial rate.

    Args:
        horizon: the sequence length that the gate is designed for: periods, splines and tables
            span it, and the initial rate is exact over it. Sequences may have any length.
        **options: see :class:`Gate`.
    """

    bias: nn.Parameter

    def __init__(self, *, horizon: int = 1024, **options: Unpack[GateOptions]) -> None:
        super().__init__(**options)
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1 time step, got {horizon}")
        if horizon > _LONGEST_HORIZON:
            raise ValueError(f"horizon must be at most 2^31 time steps, got {horizon}")
        self.horizon = horizon

    def wave(self, t: Tensor) -> Tensor:
        """The pre-activation without its bias: [T, b, width] in float64."""
        raise TypeError(f"{type(self).__name__} must define wave(t)")

    def preactivation(self, t, x, memory):
        if not has_float64(t.device):
            return on_host(self, t), memory
        return wave_in_chunks(self, self.wave, t) + self.bias.double(), memory

    @torch.no_grad()
    def _calibrate_bias(self, width: int) -> None:
        self.bias = nn.Parameter(torch.zeros(width))
        t = steps_of_horizon(self.horizon)
        self.bias.copy_(bias_for_rate(self.wave(t[:, None])[:, 0], self.rate))


class Rhythm(GateParts, ClockGate):
    """The paper's gate (eq. 6): a learned sum of sinusoids of time, one threshold per unit.

    ``a_{t,i} = b_i + Σ_k α_ik sin(ω_k t + φ_ik)``. All gates of a layer share log-spaced
    frequencies; each gate has its own amplitudes, phases and bias.

    Args:
        frequencies: K, the number of sinusoids.
        min_period: shortest period, in time steps.
        max_period: longest period; by default twice the horizon.
        train_frequencies: learn ω too.
        **options: see :class:`ClockGate`.

    Example:
        >>> gate = Rhythm(rate=0.25, horizon=100).bind(hidden_size=8)
        >>> schedule, _ = gate(torch.arange(1, 101)[:, None])
        >>> schedule.g.shape, round(schedule.g.mean().item(), 2)
        (torch.Size([100, 1, 8]), 0.25)
    """

    rhythm = True

    def __init__(
        self,
        *,
        frequencies: int = 64,
        min_period: float = 2.0,
        max_period: float | None = None,
        train_frequencies: bool = False,
        **options: Unpack[ClockOptions],
    ) -> None:
        super().__init__(**options)
        self.frequencies = frequencies
        self.min_period = min_period
        self.max_period = 2.0 * self.horizon if max_period is None else max_period
        self.train_frequencies = train_frequencies
        check_sinusoids(frequencies, self.min_period, self.max_period)

    def setup(self, width, input_size):
        self.create_parts(width, input_size)
        self._calibrate_bias(width)


class WarpedRhythm(Rhythm):
    """A rhythm on a clock that runs faster or slower along the sequence.

    A learned monotone function ``τ(t)`` replaces t. It is piecewise linear over ``bins`` equal
    parts of the horizon, starts as the identity, and repeats beyond the horizon.

    Args:
        bins: number of parts of the horizon, each with its own speed.
        per_unit: one clock per gate instead of one per layer (K times the cost).
        **options: see :class:`Rhythm`.

    Example:
        >>> gate = WarpedRhythm(rate=0.25, horizon=100).bind(hidden_size=8)
        >>> round(gate(torch.arange(1, 101)[:, None])[0].g.mean().item(), 2)
        0.25
    """

    def __init__(
        self, *, bins: int = 16, per_unit: bool = False, **options: Unpack[RhythmOptions]
    ) -> None:
        super().__init__(**options)
        if bins < 1:
            raise ValueError(f"bins must be at least 1, got {bins}")
        self.bins = bins
        self.per_unit = per_unit

    def setup(self, width, input_size):
        self.speed = nn.Parameter(torch.zeros(width if self.per_unit else 1, self.bins))
        super().setup(width, input_size)

    def warped(self, t: Tensor) -> Tensor:
        """τ [T, b, width or 1] in float64."""
        pace = functional.softplus(self.speed.double())
        share = pace / pace.sum(-1, keepdim=True)  # of the horizon, per bin
        edges = functional.pad(share.cumsum(-1), (1, 0))
        turn = torch.div(t, self.horizon, rounding_mode="floor")
        inside = (t - turn * self.horizon).double() * (self.bins / self.horizon)
        bin_ = inside.long().clamp(max=self.bins - 1)
        left, right = edges[:, bin_], edges[:, bin_ + 1]  # [width or 1, T, b]
        within = left + (right - left) * (inside - bin_)
        return (turn + within).movedim(0, -1) * self.horizon

    def wave(self, t):
        tau = self.warped(t)
        if not self.per_unit:
            return self._sinusoids(tau[..., 0])
        angle = tau.unsqueeze(-1) * self.angular_frequency() + self.phase.double()
        return (self.amplitude.double() * angle.sin()).sum(-1)


class FixedRhythm(Rhythm):
    """Ablation: a random rhythm that is never trained.

    Args:
        rate: share of time steps at which a gate is open, exact over the horizon, to compare gates
            at equal rates. By default each bias is drawn from N(0, 0.5) instead.
        **options: see :class:`Rhythm`.

    Example:
        >>> gate = FixedRhythm(rate=0.25, horizon=100).bind(hidden_size=8)
        >>> round(gate(torch.arange(1, 101)[:, None])[0].g.mean().item(), 2)
        0.25
    """

    def __init__(self, *, rate: float | None = None, **options: Unpack[FixedRhythmOptions]) -> None:
        training = ("train_frequencies", "target_rate", "frozen")
        check_known(type(self), [name for name in training if name in options])
        super().__init__(rate=0.5 if rate is None else rate, frozen=True, **options)
        self.calibrated = rate is not None

    def setup(self, width, input_size):
        super().setup(width, input_size)
        if not self.calibrated:
            nn.init.normal_(self.bias, std=0.5)


class Spline(ClockGate):
    """Uniform cubic B-splines over the horizon, repeated beyond it.

    At any t only 4 of the ``knots`` coefficients matter (compact support), so learning at one
    moment does not change the others.

    Args:
        knots: number of coefficients per gate over the horizon.
        **options: see :class:`ClockGate`.

    Example:
        >>> gate = Spline(rate=0.25, horizon=100).bind(hidden_size=8)
        >>> round(gate(torch.arange(1, 101)[:, None])[0].g.mean().item(), 2)
        0.25
    """

    def __init__(self, *, knots: int = 64, **options: Unpack[ClockOptions]) -> None:
        super().__init__(**options)
        if knots < 4:
            raise ValueError(f"a cubic spline needs at least 4 knots, got {knots}")
        self.knots = knots

    def setup(self, width, input_size):
        # Σ B² averages 0.479 over a uniform cubic spline: the sum has unit variance.
        self.coefficient = nn.Parameter(torch.randn(self.knots, width) / math.sqrt(0.479))
        self._calibrate_bias(width)

    def wave(self, t):
        scaled = torch.remainder(t, self.horizon) * self.knots  # exact integers, reduced first
        first = torch.div(scaled, self.horizon, rounding_mode="floor")
        u = (scaled - first * self.horizon).double() / self.horizon
        basis = (
            (1 - u) ** 3 / 6,
            (3 * u**3 - 6 * u**2 + 4) / 6,
            (-3 * u**3 + 3 * u**2 + 3 * u + 1) / 6,
            u**3 / 6,
        )
        coefficient = self.coefficient.double()
        active = torch.stack([coefficient[(first + j) % self.knots] for j in range(4)])
        return (torch.stack(basis).unsqueeze(-1) * active).sum(0)


class Spectral(ClockGate):
    """A periodic signal given by Fourier coefficients, each switched by a learned binary mask.

    Half of the ``bins`` frequencies are the lowest ones, the others are log-spaced above them. The
    signal is the inverse transform of length ``horizon``, tiled. Phases are exact at any t.

    Args:
        bins: number of frequencies per gate.
        **options: see :class:`ClockGate`.

    Example:
        >>> gate = Spectral(rate=0.25, horizon=100).bind(hidden_size=8)
        >>> round(gate(torch.arange(1, 101)[:, None])[0].g.mean().item(), 2)
        0.25
    """

    def __init__(self, *, bins: int = 64, **options: Unpack[ClockOptions]) -> None:
        super().__init__(**options)
        if bins < 1:
            raise ValueError(f"bins must be at least 1, got {bins}")
        self.bins = bins

    def _frequencies(self) -> list[int]:
        """Distinct whole numbers of cycles per horizon."""
        highest = max(self.horizon // 2, 1)
        low = list(range(1, min(self.bins // 2, highest) + 1)) or [1]
        count = min(self.bins, highest)
        grid = torch.logspace(math.log10(low[-1]), math.log10(highest), 4 * self.bins)
        candidates = sorted(set(grid.round().long().tolist()) - set(low))
        extra = count - len(low)
        spread = torch.linspace(0, len(candidates) - 1, max(extra, 0)).round().long().tolist()
        return low + sorted({candidates[i] for i in spread}) if candidates else low

    def setup(self, width, input_size):
        self.cycles = tuple(self._frequencies())
        count = len(self.cycles)
        scale = math.sqrt(2 / count)  # half the masks start open
        self.real = nn.Parameter(torch.randn(width, count) * scale)
        self.imag = nn.Parameter(torch.randn(width, count) * scale)
        self.mask = nn.Parameter(torch.randn(width, count) * 0.5)
        self._calibrate_bias(width)

    @property
    def density(self) -> Tensor:
        """Share of coefficients that are switched on; differentiable, for an L0 penalty."""
        return Surrogate(slope=4.0).step(self.mask).mean()

    def wave(self, t):
        # Nothing can be copied from the host while a CUDA graph is captured.
        cached = t.is_cuda and not is_traced(t)
        cycles = (_cached_tensor if cached else torch.tensor)(self.cycles, device=t.device)
        inside = torch.remainder(t, self.horizon).unsqueeze(-1)  # reduced first: t may be large
        turn = torch.remainder(inside * cycles, self.horizon).double() / self.horizon
        angle = turn * (2 * math.pi)
        on = Surrogate(slope=4.0).step(self.mask.double())
        by_cos = functional.linear(angle.cos(), self.real.double() * on)
        return by_cos - functional.linear(angle.sin(), self.imag.double() * on)
