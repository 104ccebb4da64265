"""The parts of a gate's pre-activation, each with its parameters: one implementation for all.

``a_t = b + rhythm(t) + W x_t + (a state-space model over x)_t + Σ_j V_j x_{t-j}``

With a hidden layer, the parts that see the input give its units, and the gates read those:
``a_t = b + rhythm(t) + R GELU(c + W x_t + ...)``.

:class:`~surnn.FullGate` has any of these parts; ``Rhythm``, ``InputGate`` and ``SSMGate`` are its
special cases with one part or two. A part that is absent has no parameters and costs nothing.
"""

import copy
import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from ..resets import is_visible, steps_since_reset
from ..runtime import has_float64, is_captured, is_traced, runs_kernels, stream_of
from ..surrogate import Surrogate
from .base import Gate
from .fixed_point import wave_sums

# Most time steps on which an initial rate is measured; longer horizons are sampled.
_CALIBRATION_STEPS = 4096
# Time steps whose waves are computed at once.
_CHUNK_STEPS = 8192
# With more gates, a separate matrix product is faster although it needs more passes over x.
_MOST_FUSED_GATES = 64


class GateParts(Gate):
    """A gate whose pre-activation is a sum of parts. Which ones there are is up to the gate."""

    rhythm: bool = False
    """Whether there is a sum of sinusoids of time."""
    ssm: bool = False
    """Whether there is a state-space model over the inputs so far."""
    conv: int = 0
    """How many inputs before the present one are weighted one by one."""
    input: bool = False
    """Whether there is a linear map of the present input."""
    joint: int | None = None
    """Units of a hidden layer that all parts that see the input lead to; None is no such layer."""

    _input_weight = "read_input"
    """The parameter of the map of the present input."""

    bias: nn.Parameter
    amplitude: nn.Parameter
    phase: nn.Parameter
    omega: nn.Parameter
    log_time: nn.Parameter
    lift: nn.Parameter
    read_state: nn.Parameter
    read_recent: nn.Parameter
    joint_bias: nn.Parameter
    read_joint: nn.Parameter
    frequencies: int
    min_period: float
    max_period: float
    train_frequencies: bool
    modes: int

    # ------------------------------------------------------------ parameters

    def create_parts(self, width: int, input_size: int) -> None:
        """Create the parameters of all parts but the bias. Each part has about unit variance."""
        if self.rhythm:
            self._create_rhythm(width)
        if self.joint is not None:
            self.read_joint = nn.Parameter(torch.randn(width, self.joint) / math.sqrt(self.joint))
            self.joint_bias = nn.Parameter(torch.zeros(self.joint))
            width = self.joint
        if self.ssm:
            self._create_state_space(width, input_size)
        if self.conv:
            size = (width, self.conv, input_size)
            self.read_recent = nn.Parameter(torch.randn(size) / math.sqrt(self.conv * input_size))
        if self.input:
            weight = torch.randn(width, input_size) / math.sqrt(input_size)
            self.register_parameter(self._input_weight, nn.Parameter(weight))

    def _create_rhythm(self, width: int) -> None:
        k = self.frequencies
        self.amplitude = nn.Parameter(torch.randn(width, k) * math.sqrt(2 / k))
        self.phase = nn.Parameter(torch.rand(width, k) * (2 * math.pi))
        if self.train_frequencies:
            self.omega = nn.Parameter(self._grid(torch.device("cpu")).float())

    def _create_state_space(self, width: int, input_size: int) -> None:
        constants = torch.logspace(0, math.log10(max(self.horizon, 2)), self.modes)  # type: ignore[call-overload]
        self.log_time = nn.Parameter(constants.log())
        self.lift = nn.Parameter(torch.randn(self.modes, input_size) / math.sqrt(input_size))
        self.read_state = nn.Parameter(torch.randn(width, self.modes) / math.sqrt(self.modes))

    # ------------------------------------------------------------ the sum

    def preactivation(self, t: Tensor, x: Any, memory: Tensor) -> tuple[Tensor, Any]:
        if not self.sees_input:
            return self._rhythm_and_bias(t), memory
        a, after = self._input_parts(x, memory)
        if self.rhythm:  # its phase is exact; the sum has the precision of the input's part
            a = a + self._rhythm_and_bias(t).to(a.dtype)
        return a, after

    def preactivation_with_resets(self, t, x, memory, reset):
        memory = torch.where(reset[0].unsqueeze(-1), 0.0, memory)
        a, after = self._input_parts(x, memory, reset)
        if self.rhythm:
            a = a + self._rhythm_and_bias(t).to(a.dtype)
        return a, after

    def init_memory(self, batch):
        size = (self.modes if self.ssm else 0) + self.conv * self._input_size
        return self.bias.new_zeros(batch, size) if size else super().init_memory(batch)

    def _fused_gate(self, t, x):
        marginal = self.margin and self.training and not self.frozen
        plain = self.binary and not (self._forced_open or marginal or self.surrogate.compact)
        if not plain or type(self).preactivation is not GateParts.preactivation:
            return None
        sampled = self.mode == "sampled" and self.training
        if self.sees_input:
            return None if x is None else self._fused_input_gate(x, sampled)
        if sampled or not self.rhythm or not runs_kernels(t) or not self._has_kernel_sinusoids():
            return None
        return self._kernel_sinusoids(t, self.surrogate)

    def _fused_input_gate(self, x: Tensor, sampled: bool) -> Tensor | None:
        fits = self.reads_nan(x) and not self.rhythm and not self.frozen
        known = not sampled or (self.surrogate.kind == "sigmoid" and type(self.noise) is not Tensor)
        if not fits or not known:
            return None
        from .triton_projection import FusedProjection  # noqa: PLC0415 (triton is optional)

        weight = self.get_parameter(self._input_weight)
        noise, trains = float(self.noise) if sampled else None, torch.is_grad_enabled()
        return FusedProjection.apply(x, weight, self.bias, self.surrogate, noise, trains)  # type: ignore[return-value]

    # ------------------------------------------------------------ parts that see the input

    def reads_nan(self, x):
        """True where the fused GPU kernel runs, which handles NaN itself."""
        if not runs_kernels(x) or not self._is_one_product():
            return False
        readable = x.dtype in (torch.float32, torch.bfloat16, torch.float16)
        fits = self.bias.dtype == torch.float32 and len(self.bias) <= _MOST_FUSED_GATES
        return readable and fits and self.binary

    def _is_one_product(self) -> bool:
        """Whether the input enters by one product with the present x alone."""
        return self.input and not self.ssm and not self.conv and self.joint is None

    def _input_parts(
        self, x: Tensor, memory: Tensor, reset: Tensor | None = None
    ) -> tuple[Tensor, Tensor | tuple[Tensor, ...]]:
        """The sum of all parts that see the input, and the memory after each time step.

        The bias is in the last part, unless there is a rhythm, which has it then.
        """
        bias = None if self.rhythm else self.bias
        if self.reads_nan(x):
            from .triton_projection import FusedProjection  # noqa: PLC0415 (triton is optional)

            shift = torch.zeros_like(self.bias) if bias is None else bias
            return FusedProjection.apply(x, self.get_parameter(self._input_weight), shift), memory
        x = x.to(self.bias.dtype)
        products, memories = [], []
        if self.ssm:
            s = self._state_space(x, memory[:, : self.modes], reset)
            products.append((s, self.read_state))
            memories.append(s)
        if self.conv:
            recent = memory[:, self.modes if self.ssm else 0 :]
            earlier, window = _windows(x, recent, self.conv, reset)
            products += zip(earlier, self.read_recent.unbind(1), strict=True)
            memories.append(window)
        if self.input:
            products.append((self._features(x), getattr(self, self._input_weight)))
        *others, (value, weight) = products
        a = functional.linear(value, weight, bias if self.joint is None else self.joint_bias)
        for value, weight in others:
            a = functional.linear(value, weight) + a
        if self.joint is not None:
            a = functional.linear(functional.gelu(a), self.read_joint, bias)
        return a, _joined(memories, memory)

    def _features(self, x: Tensor) -> Tensor:
        """The input of the map of the present input."""
        return x

    def _state_space(self, x: Tensor, before: Tensor, reset: Tensor | None) -> Tensor:
        """s [T, B, modes] after each time step."""
        decay = torch.exp(-torch.exp(-self.log_time))
        drive = (1 - decay) * functional.linear(x, self.lift)
        age = None if reset is None else steps_since_reset(reset).unsqueeze(-1)
        return diagonal_scan(decay, drive, before.to(x.dtype), age)

    # ------------------------------------------------------------ the rhythm

    def _rhythm_and_bias(self, t: Tensor) -> Tensor:
        """The sinusoids and the bias, [T, b, width] in float64, or in float32 if there is none."""
        if not has_float64(t.device):
            return self._rhythm_without_float64(t)
        fused = runs_kernels(t)
        if t.is_cpu and not fused and not self.train_frequencies and self._has_plain_sinusoids():
            from .cpu_sinusoids import CpuSinusoids, Grid, is_supported  # noqa: PLC0415 (it imports this module)

            grid = Grid(self.min_period, self.max_period, self.frequencies)
            if is_supported(t, grid):
                return CpuSinusoids.apply(t, grid, self.amplitude, self.phase, self.bias)  # type: ignore[return-value]
        if not fused or not self._has_kernel_sinusoids():
            return wave_in_chunks(self, self.wave, t) + self.bias.double()
        return self._kernel_sinusoids(t, None)

    def _has_kernel_sinusoids(self) -> bool:
        return not self.train_frequencies and self._has_plain_sinusoids()

    def _kernel_sinusoids(self, t: Tensor, surrogate: Surrogate | None) -> Tensor:
        """The rhythm and the bias in one kernel; with a surrogate, the gate."""
        from .triton_sinusoids import FusedSinusoids  # noqa: PLC0415 (triton is optional)

        # A tensor made while a CUDA graph is captured belongs to that graph: it is not cached.
        grid = self.min_period, self.max_period, self.frequencies, t.device
        omega = frequency_grid(*grid) if is_captured(t) else _cached_grid(*grid, stream_of(t))
        trains = torch.is_grad_enabled() and not self.frozen
        parameters = self.amplitude, self.phase, self.bias
        values = FusedSinusoids.apply(t, omega, *parameters, surrogate, trains)
        return values if trains else values.detach()  # type: ignore[union-attr,return-value]

    def _rhythm_without_float64(self, t: Tensor) -> Tensor:
        if not self._has_plain_sinusoids():
            return on_host(self, t)
        omega = self.omega if self.train_frequencies else self._frequencies_of_grid()

        def wave(t: Tensor) -> Tensor:
            return wave_sums(t, omega, self.amplitude, self.phase, self.bias)

        return wave_in_chunks(self, wave, t)

    def _frequencies_of_grid(self) -> tuple[float, ...]:
        return _grid_numbers(self.min_period, self.max_period, self.frequencies)

    def _has_plain_sinusoids(self) -> bool:
        names = ("wave", "_sinusoids", "angular_frequency", "_grid")
        return all(getattr(type(self), n) is getattr(GateParts, n) for n in names)

    def wave(self, t: Tensor) -> Tensor:
        """The sinusoids without the bias: [T, b, width] in float64."""
        return self._sinusoids(t.double())

    def _sinusoids(self, tau: Tensor) -> Tensor:
        return sinusoids(tau, self.angular_frequency(), self.amplitude, self.phase)

    def angular_frequency(self) -> Tensor:
        """ω [K] in float64."""
        if self.train_frequencies:
            return self.omega.double()
        return self._grid(self.amplitude.device)

    def _grid(self, device: torch.device) -> Tensor:
        return frequency_grid(self.min_period, self.max_period, self.frequencies, device)


# ---------------------------------------------------------------------------- clocks


def check_sinusoids(frequencies: int, min_period: float, max_period: float) -> None:
    """Refuse sinusoids that do not exist."""
    if frequencies < 1:
        raise ValueError(f"frequencies must be at least 1, got {frequencies}")
    if not 0 < min_period <= max_period:
        raise ValueError(
            f"periods must satisfy 0 < min_period <= max_period, got {min_period} and {max_period}"
        )


def steps_of_horizon(horizon: int, most: int = _CALIBRATION_STEPS) -> Tensor:
    """Time steps 1, ..., ``horizon``, or ``most`` of them at equal distances."""
    t = torch.arange(1, horizon + 1)
    return t if horizon <= most else t[torch.linspace(0, horizon - 1, most).long()]


def wave_in_chunks(gate: nn.Module, wave: Callable[[Tensor], Tensor], t: Tensor) -> Tensor:
    """``wave(t)``, some time steps at a time: its intermediate values are not all kept.

    The backward pass computes them again, chunk by chunk.
    """
    if t.shape[0] <= _CHUNK_STEPS or is_traced(t):
        return wave(t)
    learned = torch.is_grad_enabled() and any(p.requires_grad for p in gate.parameters())
    run = partial(checkpoint, wave, use_reentrant=False, preserve_rng_state=False)
    return torch.cat([run(c) if learned else wave(c) for c in t.split(_CHUNK_STEPS)])


def frequency_grid(
    min_period: float, max_period: float, count: int, device: torch.device
) -> Tensor:
    """ω_k = 2π / P_k for log-spaced periods P, in float64 whatever the gate's own dtype is."""
    low, high = math.log2(min_period), math.log2(max_period)
    exponent = torch.linspace(low, high, count, dtype=torch.float64, device=device)
    return 2 * math.pi * torch.exp2(-exponent)


@cache
def _cached_grid(
    min_period: float, max_period: float, count: int, device: torch.device, _stream: int
) -> Tensor:
    with torch.inference_mode(False):  # later callers may train with the cached tensor
        return frequency_grid(min_period, max_period, count, device)


@cache
def _grid_numbers(min_period: float, max_period: float, count: int) -> tuple[float, ...]:
    return tuple(frequency_grid(min_period, max_period, count, torch.device("cpu")).tolist())


def on_host(gate: Gate, t: Tensor) -> Tensor:
    """The wave of a gate, and its bias if it has one, on t's device in float32.

    For devices without float64: it is computed on the CPU, with copies of the parameters.
    """
    host: Any = copy.copy(gate)
    host._parameters = {name: p.cpu() for name, p in gate._parameters.items() if p is not None}
    a = wave_in_chunks(host, host.wave, t.cpu())
    if "bias" in host._parameters:
        a = a + host.bias.double()
    return a.float().to(t.device)


def sinusoids(tau: Tensor, omega: Tensor, amplitude: Tensor, phase: Tensor) -> Tensor:
    """Σ_k α_ik sin(ω_k τ + φ_ik) at times τ [T, b], by two matrix products in float64."""
    angle = tau.unsqueeze(-1) * omega
    amplitude, phase = amplitude.double(), phase.double()
    by_sin = functional.linear(angle.sin(), amplitude * phase.cos())
    return by_sin + functional.linear(angle.cos(), amplitude * phase.sin())


# ---------------------------------------------------------------------------- memories


def diagonal_scan(decay: Tensor, u: Tensor, initial: Tensor, age: Tensor | None = None) -> Tensor:
    """``s_t = decay * s_{t-1} + u_t`` for u [T, B, M] by doubling, in log2(T) parallel passes.

    ``age`` [T, B, 1] is the number of earlier time steps that s_t includes; by default all. A
    sequence that restarts at step t has age 0 there, and the same numbers as a separate one.
    """
    s = torch.cat(((u[:1] + decay * initial), u[1:]))
    reach, power = 1, decay
    while reach < s.shape[0]:
        more = torch.addcmul(s[reach:], s[:-reach], power)
        if age is not None:
            more = torch.where(age[reach:] < reach, s[reach:], more)
        s = torch.cat((s[:reach], more))
        reach, power = 2 * reach, power * power
    return s


def _windows(
    x: Tensor, before: Tensor, count: int, reset: Tensor | None = None
) -> tuple[list[Tensor], Tensor]:
    """The inputs 1, 2, ..., ``count`` time steps ago, each [T, B, I], and the memory of them.

    ``before`` [B, I * count] is the memory before x; the other is [T, B, I, count], after each
    time step. The oldest input is the first. Inputs behind a reset [T, B] are 0.
    """
    steps = x.shape[0]
    past = before.to(x.dtype).unflatten(-1, (x.shape[-1], count)).permute(2, 0, 1)
    both = torch.cat((past, x))
    earlier = [both[count - lag : count - lag + steps] for lag in range(1, count + 1)]
    if reset is not None:
        visible = [is_visible(reset, lag).unsqueeze(-1) for lag in range(1, count + 1)]
        earlier = [torch.where(see, v, 0.0) for see, v in zip(visible, earlier, strict=True)]
        latest = [x, *earlier][:count]
        return earlier, torch.stack(latest[::-1], -1)
    if steps == 1:
        return earlier, both[1:].permute(1, 2, 0).unsqueeze(0)
    return earlier, both.unfold(0, count, 1)[1:]


def _joined(memories: list[Tensor], unchanged: Tensor) -> Tensor | tuple[Tensor, ...]:
    """The memory of all parts; several are joined once the last time step is known."""
    if not memories:
        return unchanged
    return memories[0] if len(memories) == 1 and memories[0].dim() == 3 else tuple(memories)
