"""Gates that see the input: a schedule for each sequence, still parallel in time.

They follow information where a clock cannot. Train them with ``mode="sampled"`` (the default
here): with a plain hard threshold, inputs that look alike all flip together, far outside what a
straight-through gradient describes, and the gate does not learn to select.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..eager import has_triton, is_traced
from .base import Gate, bias_for_rate, refuse

# Beyond this many gates a matrix product of its own pays for the passes over x before it.
_MOST_FUSED_GATES = 64

Source = Literal["layer", "input"]


class SeesInput(Gate):
    """Base of gates that read x.

    Args:
        source: ``"layer"`` reads the layer's own input, ``"input"`` the whole stack's.
        rate: see :class:`Gate`.
        mode: see :class:`Gate`; sampled by default.
        **options: see :class:`Gate`.
    """

    sees_input = True
    bias: nn.Parameter

    def __init__(self, *, source: Source = "layer", **options) -> None:
        options.setdefault("rate", 0.3)
        options.setdefault("mode", "sampled")
        super().__init__(**options)
        if source not in ("layer", "input"):
            raise ValueError(f"unknown source {source!r}; choose 'layer' or 'input'")
        self.source: Source = source

    def _calibrate_on_normal(self, width: int, input_size: int, steps: int = 1024) -> None:
        """Start with the wanted rate on standard normal inputs."""
        self.bias = nn.Parameter(torch.zeros(width))
        t = torch.arange(1, steps + 1)[:, None]
        self.calibrate(t, torch.randn(steps, 4, input_size))

    @torch.no_grad()
    def calibrate(self, t: Tensor, x: Tensor) -> None:
        """Set the bias so that the schedule on x [T, B, I] has the wanted rate."""
        a, _ = self.preactivation(t, x, self.init_memory(x.shape[1]))
        self.bias.add_(bias_for_rate(a.flatten(0, 1), self.rate).to(self.bias))


class InputGate(SeesInput):
    """A linear map of x_t, or a small MLP.

    Args:
        hidden: width of the MLP's hidden layer (GELU); None is linear.
        **options: see :class:`SeesInput`.
    """

    def __init__(self, *, hidden: int | None = None, **options) -> None:
        super().__init__(**options)
        self.hidden = hidden

    def setup(self, width, input_size):
        features = input_size if self.hidden is None else self.hidden
        if self.hidden is not None:
            self.lift = nn.Linear(input_size, self.hidden)
        self.weight = nn.Parameter(torch.randn(width, features) / math.sqrt(features))
        self._calibrate_on_normal(width, input_size)

    def reads_nan(self, x):
        """On a GPU the linear map is a kernel that reads x as it is."""
        if not x.is_cuda or is_traced(x) or not has_triton() or self.hidden is not None:
            return False
        halves = x.dtype in (torch.float32, torch.bfloat16, torch.float16)
        fits = self.weight.dtype == torch.float32 and len(self.weight) <= _MOST_FUSED_GATES
        return halves and fits and self.binary

    def preactivation(self, t, x, memory):
        if self.reads_nan(x):
            from .projection import FusedProjection  # noqa: PLC0415 (triton is not everywhere)

            return FusedProjection.apply(x, self.weight, self.bias), memory
        features = x.to(self.weight.dtype)
        if self.hidden is not None:
            features = functional.gelu(self.lift(features))
        return functional.linear(features, self.weight, self.bias), memory


class SSMGate(SeesInput):
    """A causal diagonal state-space model over x, so that a gate can see what came before.

    ``s_t = λ s_{t-1} + (1 - λ) W x_t``, with decays λ whose time constants are log-spaced up to
    the horizon and learned; the pre-activation is linear in (s_t, x_t). Parallel in time for a
    whole sequence, one step for a stream.

    Args:
        modes: size of s.
        horizon: longest time constant at the start, in steps.
        **options: see :class:`SeesInput`.
    """

    def __init__(self, *, modes: int = 16, horizon: int = 1024, **options) -> None:
        super().__init__(**options)
        if modes < 1 or horizon < 1:
            raise ValueError(f"modes and horizon must be at least 1, got {modes} and {horizon}")
        self.modes = modes
        self.horizon = horizon

    def setup(self, width, input_size):
        constants = torch.logspace(0, math.log10(max(self.horizon, 2)), self.modes)
        self.log_time = nn.Parameter(constants.log())
        self.lift = nn.Parameter(torch.randn(self.modes, input_size) / math.sqrt(input_size))
        self.read_state = nn.Parameter(torch.randn(width, self.modes) / math.sqrt(self.modes))
        self.read_input = nn.Parameter(torch.randn(width, input_size) / math.sqrt(input_size))
        self._calibrate_on_normal(width, input_size)

    def init_memory(self, batch):
        return self.lift.new_zeros(batch, self.modes)

    def preactivation(self, t, x, memory):
        x = x.to(self.lift.dtype)
        decay = torch.exp(-torch.exp(-self.log_time))
        s = diagonal_scan(decay, (1 - decay) * functional.linear(x, self.lift), memory.to(x.dtype))
        a = functional.linear(s, self.read_state) + functional.linear(x, self.read_input, self.bias)
        return a, s


class Threshold(SeesInput):
    """Ablation: every gate opens where the input exceeds a fixed level in any channel."""

    def __init__(self, level: float = 0.0, **options) -> None:
        options.setdefault("source", "input")
        options.setdefault("granularity", "layer")
        refuse(type(self), options, "rate", "mode", "frozen", "surrogate", "target_rate")
        super().__init__(rate=0.5, mode="hard", frozen=True, **options)
        self.level = level

    def preactivation(self, t, x, memory):
        return x.amax(-1, keepdim=True) - self.level, memory

    def calibrate(self, t, x):
        """Nothing to set: the level is given."""


def diagonal_scan(decay: Tensor, u: Tensor, initial: Tensor) -> Tensor:
    """``s_t = decay * s_{t-1} + u_t`` for u [T, B, M] by doubling: log2(T) parallel passes."""
    s = torch.cat(((u[:1] + decay * initial), u[1:]))
    reach, power = 1, decay
    while reach < s.shape[0]:
        s = torch.cat((s[:reach], torch.addcmul(s[reach:], s[:-reach], power)))
        reach, power = 2 * reach, power * power
    return s
