"""Gates that are functions of time alone: one schedule for the whole batch, known in advance.

All phases are computed in float64 from integer step numbers: at t = 10^9 a float32 phase is off
by whole cycles. That costs nothing, since a schedule is shared by the batch.
"""

import math
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..eager import has_triton, is_captured, is_traced
from ..surrogate import Surrogate
from .base import Gate, bias_for_rate

# Longest stretch of steps on which an initial rate is measured; longer horizons are sampled.
_CALIBRATION_STEPS = 4096


@cache
def _kept_numbers(numbers: tuple[int, ...], *, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # whoever asks first, all may train with it
        return torch.tensor(numbers, device=device)


class ClockGate(Gate):
    """A gate of (t, unit) only, with a bias that sets its initial rate.

    Args:
        horizon: the sequence length that the gate is made for: periods, splines and tables span
            it, and the initial rate is exact over it. Any length runs.
        **options: see :class:`Gate`.
    """

    bias: nn.Parameter

    def __init__(self, *, horizon: int = 1024, **options) -> None:
        super().__init__(**options)
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1 step, got {horizon}")
        self.horizon = horizon

    def wave(self, t: Tensor) -> Tensor:
        """The pre-activation without its bias: [T, b, width] in float64."""
        raise TypeError(f"{type(self).__name__} must define wave(t)")

    def preactivation(self, t, x, memory):
        return self.wave(t) + self.bias.double(), memory

    @torch.no_grad()
    def _calibrate_bias(self, width: int) -> None:
        self.bias = nn.Parameter(torch.zeros(width))
        t = torch.arange(1, self.horizon + 1)
        if self.horizon > _CALIBRATION_STEPS:
            t = t[torch.linspace(0, self.horizon - 1, _CALIBRATION_STEPS).long()]
        self.bias.copy_(bias_for_rate(self.wave(t[:, None])[:, 0], self.rate))


def frequency_grid(
    min_period: float, max_period: float, count: int, device: torch.device
) -> Tensor:
    """ω_k = 2π / P_k, P log-spaced: made from two numbers, so no cast can bend it."""
    low, high = math.log2(min_period), math.log2(max_period)
    exponent = torch.linspace(low, high, count, dtype=torch.float64, device=device)
    return 2 * math.pi * torch.exp2(-exponent)


@cache
def _kept_grid(min_period: float, max_period: float, count: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # whoever asks first, all may train with it
        return frequency_grid(min_period, max_period, count, device)


def sinusoids(tau: Tensor, omega: Tensor, amplitude: Tensor, phase: Tensor) -> Tensor:
    """Σ_k α_ik sin(ω_k τ + φ_ik) at times τ [T, b], as two matrix products, in float64."""
    angle = tau.unsqueeze(-1) * omega
    amplitude, phase = amplitude.double(), phase.double()
    by_sin = functional.linear(angle.sin(), amplitude * phase.cos())
    return by_sin + functional.linear(angle.cos(), amplitude * phase.sin())


class Rhythm(ClockGate):
    """The paper's gate (eq. 6): a learned sum of sinusoids of time, one threshold per unit.

    ``a_{t,i} = b_i + Σ_k α_ik sin(ω_k t + φ_ik)``. Frequencies are shared by the layer and
    log-spaced; amplitudes, phases and bias are each gate's own.

    Args:
        frequencies: K, the number of sinusoids.
        min_period: shortest period, in steps.
        max_period: longest period; twice the horizon by default.
        train_frequencies: learn ω too.
        horizon: see :class:`ClockGate`.
        **options: see :class:`Gate`.

    Example:
        >>> gate = Rhythm(rate=0.25, horizon=100).bind(hidden_size=8)
        >>> schedule, _ = gate(torch.arange(1, 101)[:, None])
        >>> schedule.g.shape, round(schedule.g.mean().item(), 2)
        (torch.Size([100, 1, 8]), 0.25)
    """

    def __init__(
        self,
        *,
        frequencies: int = 64,
        min_period: float = 2.0,
        max_period: float | None = None,
        train_frequencies: bool = False,
        horizon: int = 1024,
        **options,
    ) -> None:
        super().__init__(horizon=horizon, **options)
        self.frequencies = frequencies
        self.min_period = min_period
        self.max_period = 2.0 * horizon if max_period is None else max_period
        self.train_frequencies = train_frequencies
        if frequencies < 1:
            raise ValueError(f"frequencies must be at least 1, got {frequencies}")
        if not 0 < self.min_period <= self.max_period:
            raise ValueError(
                f"periods must satisfy 0 < min_period <= max_period, "
                f"got {self.min_period} and {self.max_period}"
            )

    def setup(self, width, input_size):
        k = self.frequencies
        self.amplitude = nn.Parameter(torch.randn(width, k) * math.sqrt(2 / k))
        self.phase = nn.Parameter(torch.rand(width, k) * (2 * math.pi))
        if self.train_frequencies:
            self.omega = nn.Parameter(self._grid(torch.device("cpu")).float())
        self._calibrate_bias(width)

    def _grid(self, device: torch.device) -> Tensor:
        return frequency_grid(self.min_period, self.max_period, self.frequencies, device)

    def angular_frequency(self) -> Tensor:
        """ω [K] in float64, learned or not."""
        if self.train_frequencies:
            return self.omega.double()
        return self._grid(self.amplitude.device)

    def preactivation(self, t, x, memory):
        plain = not t.is_cuda or is_traced(t) or not has_triton()
        if plain or self.train_frequencies or not self._is_a_plain_rhythm():
            return super().preactivation(t, x, memory)
        from .sinusoids import FusedSinusoids  # noqa: PLC0415 (triton is not everywhere)

        # Memory of a graph that is being captured cannot be kept for others.
        make = frequency_grid if is_captured(t) else _kept_grid
        omega = make(self.min_period, self.max_period, self.frequencies, t.device)
        return FusedSinusoids.apply(t, omega, self.amplitude, self.phase, self.bias), memory

    def _is_a_plain_rhythm(self) -> bool:
        names = ("wave", "_sinusoids", "angular_frequency", "_grid")
        return all(getattr(type(self), n) is getattr(Rhythm, n) for n in names)

    def wave(self, t):
        return self._sinusoids(t.double())

    def _sinusoids(self, tau: Tensor) -> Tensor:
        return sinusoids(tau, self.angular_frequency(), self.amplitude, self.phase)


class WarpedRhythm(Rhythm):
    """A rhythm on a clock that runs faster or slower along the sequence.

    t is replaced by ``τ(t)``, monotone and piecewise linear over ``bins`` learned stretches of
    the horizon, the identity at the start and repeated beyond the horizon.

    Args:
        bins: stretches of the horizon.
        per_unit: a clock for each gate instead of one for the layer (cost K times larger).
        **options: see :class:`Rhythm`.
    """

    def __init__(self, *, bins: int = 16, per_unit: bool = False, **options) -> None:
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
        share = pace / pace.sum(-1, keepdim=True)  # of the horizon's length, per bin
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
    """Ablation: a random rhythm that is never trained, its bias drawn from N(0, 0.5).

    With ``rate`` given, biases are calibrated to it instead, for comparison at equal rates.
    """

    def __init__(self, *, rate: float | None = None, **options) -> None:
        options["frozen"] = True
        super().__init__(rate=0.5 if rate is None else rate, **options)
        self.calibrated = rate is not None

    def setup(self, width, input_size):
        super().setup(width, input_size)
        if not self.calibrated:
            nn.init.normal_(self.bias, std=0.5)


class Spline(ClockGate):
    """Uniform cubic B-splines over the horizon, repeated beyond it.

    Compact support: at any t only 4 of the ``knots`` coefficients matter, so learning one moment
    leaves the others alone.

    Args:
        knots: M, coefficients per gate and horizon.
        **options: see :class:`ClockGate`.
    """

    def __init__(self, *, knots: int = 64, **options) -> None:
        super().__init__(**options)
        if knots < 4:
            raise ValueError(f"a cubic spline needs at least 4 knots, got {knots}")
        self.knots = knots

    def setup(self, width, input_size):
        # Σ B² averages 0.479 over a uniform cubic spline: unit variance of the sum.
        self.coefficient = nn.Parameter(torch.randn(self.knots, width) / math.sqrt(0.479))
        self._calibrate_bias(width)

    def wave(self, t):
        scaled = torch.remainder(t * self.knots, self.horizon * self.knots)  # exact integers
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

    The ``bins`` frequencies are the lowest half of them and log-spaced ones above; the signal is
    the inverse transform of length ``horizon``, tiled. Phases are exact at any t.

    Args:
        bins: F, frequencies per gate.
        **options: see :class:`ClockGate`.
    """

    def __init__(self, *, bins: int = 64, **options) -> None:
        super().__init__(**options)
        if bins < 1:
            raise ValueError(f"bins must be at least 1, got {bins}")
        self.bins = bins

    def _frequencies(self) -> list[int]:
        """Whole numbers of cycles per horizon, each once."""
        highest = max(self.horizon // 2, 1)
        low = list(range(1, min(self.bins // 2, highest) + 1)) or [1]
        wanted = min(self.bins, highest)
        grid = torch.logspace(math.log10(low[-1]), math.log10(highest), 4 * self.bins)
        candidates = sorted(set(grid.round().long().tolist()) - set(low))
        extra = wanted - len(low)
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
        """Share of coefficients switched on; differentiable, for an L0 penalty."""
        return Surrogate(slope=4.0).step(self.mask).mean()

    def wave(self, t):
        # A graph that is being captured takes nothing from the host.
        kept = t.is_cuda and not is_traced(t)
        cycles = (_kept_numbers if kept else torch.tensor)(self.cycles, device=t.device)
        turn = torch.remainder(t.unsqueeze(-1) * cycles, self.horizon).double() / self.horizon
        angle = turn * (2 * math.pi)
        on = Surrogate(slope=4.0).step(self.mask.double())
        by_cos = functional.linear(angle.cos(), self.real.double() * on)
        return by_cos - functional.linear(angle.sin(), self.imag.double() * on)
