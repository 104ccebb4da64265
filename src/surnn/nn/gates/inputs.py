"""Gates that see the input: one schedule per sequence, still parallel in time.

They can follow events in the input, which a clock cannot. Train them with ``mode="sampled"`` (the
default here): with a hard threshold, inputs that look alike all flip together, the
straight-through gradient does not describe such a jump, and the gate does not learn to select.
"""

from typing import Never, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..options import check_known
from ..surrogate import Mode
from .base import Gate
from .calibration import bias_for_rate
from .options import Granularity, InputOptions, LearnedOptions, Source
from .parts import GateParts, check_sinusoids, steps_of_horizon


class SeesInput(Gate):
    """Base of gates that read x.

    Args:
        source: ``"layer"`` reads the layer's own input, ``"input"`` the input of the whole stack.
        **options: see :class:`Gate`.
    """

    sees_input = True
    bias: nn.Parameter

    def __init__(
        self,
        *,
        source: Source = "layer",
        rate: float = 0.3,
        mode: Mode = "sampled",
        **options: Unpack[LearnedOptions],
    ) -> None:
        super().__init__(rate=rate, mode=mode, **options)
        if source not in ("layer", "input"):
            raise ValueError(f"unknown source {source!r}; choose 'layer' or 'input'")
        self.source: Source = source

    def _calibrate_on_normal(self, width: int, input_size: int, t: Tensor | None = None) -> None:
        """Set a bias that gives the initial rate on standard normal inputs, at time steps t."""
        self.bias = nn.Parameter(torch.zeros(width))
        t = torch.arange(1, 1025) if t is None else t
        self.calibrate(t[:, None], torch.randn(len(t), 4, input_size))

    @torch.no_grad()
    def calibrate(self, t: Tensor, x: Tensor, lengths: Tensor | None = None) -> None:
        """Set the bias so that the schedule on x [T, B, I] has the gate's ``rate``."""
        a, _ = self.preactivation(t, x, self.init_memory(x.shape[1]))
        if lengths is None:
            a = a.flatten(0, 1)
        else:
            a = a[torch.arange(len(a), device=a.device)[:, None] < lengths]
        self.bias.add_(bias_for_rate(a, self.rate).to(self.bias))


class FullGate(GateParts, SeesInput):
    """A gate that sees time, the present input, the inputs just before it, and all earlier ones.

    The pre-activation is the sum of four parts; each is optional:

    ============  ====================================================================
    ``rhythm``    ``Σ_k α_k sin(ω_k t + φ_k)``: when, as :class:`Rhythm`
    ``input``     ``W x_t``: at what, as :class:`InputGate`
    ``ssm``       a diagonal state-space model over x: in which context, as
                  :class:`SSMGate`
    ``conv``      ``Σ_j V_j x_{t-j}``: patterns of a few time steps
    ============  ====================================================================

    With one part it equals the gate of that part. Without any part that sees the input
    it is a clock: all sequences share one schedule. With ``hidden``, the parts that see the input
    lead to a hidden layer with GELU, which the gates read: a small network that decides.

    Args:
        rhythm: add the sinusoids of time.
        input: add a linear map of x_t.
        ssm: add a state-space model over the inputs so far.
        conv: weight each of this many inputs before the present one; 0 leaves this part out.
        hidden: units of the hidden layer; None is a plain sum.
        frequencies: K, the number of sinusoids.
        min_period: shortest period, in time steps.
        max_period: longest period; by default twice the horizon.
        train_frequencies: learn ω too.
        modes: values that the state-space model remembers.
        horizon: the sequence length that the gate is designed for. Periods and initial time
            constants span it.
        **options: see :class:`SeesInput`.

    Example:
        >>> import surnn
        >>> gate = FullGate(rate=0.2, horizon=100, conv=2)
        >>> layer = surnn.SuGRU(4, 32, heads=4, gate=gate)
        >>> y, h = layer(torch.randn(100, 8, 4))
        >>> y.shape
        torch.Size([100, 8, 32])
    """

    def __init__(
        self,
        *,
        rhythm: bool = True,
        input: bool = True,
        ssm: bool = True,
        conv: int = 0,
        hidden: int | None = None,
        frequencies: int = 64,
        min_period: float = 2.0,
        max_period: float | None = None,
        train_frequencies: bool = False,
        modes: int = 16,
        horizon: int = 1024,
        **options: Unpack[InputOptions],
    ) -> None:
        super().__init__(**options)
        if not (rhythm or input or ssm or conv):
            raise ValueError("a gate needs a part: set rhythm, input, ssm or conv")
        if conv < 0:
            raise ValueError(f"conv is a number of inputs, at least 0, got {conv}")
        check_state_space(modes, horizon)
        if hidden is not None and not (hidden >= 1 and (input or ssm or conv)):
            raise ValueError(
                f"hidden is a number of units that read the input, at least 1, got {hidden}; it "
                "needs input, ssm or conv"
            )
        self.rhythm, self.input, self.ssm, self.conv = rhythm, input, ssm, conv
        self.hidden = self.joint = hidden
        self.frequencies, self.train_frequencies = frequencies, train_frequencies
        self.min_period = min_period
        self.max_period = 2.0 * horizon if max_period is None else max_period
        check_sinusoids(frequencies, self.min_period, self.max_period)
        self.modes, self.horizon = modes, horizon
        self.reads_clock = rhythm
        self.sees_input = input or ssm or conv > 0

    def setup(self, width, input_size):
        self.create_parts(width, input_size)
        t = steps_of_horizon(self.horizon) if self.rhythm else None
        self._calibrate_on_normal(width, input_size, t)

    def extra_repr(self) -> str:
        parts = [f"{name}={getattr(self, name)}" for name in ("rhythm", "input", "ssm", "conv")]
        return ", ".join((*parts, super().extra_repr()))


class InputGate(GateParts, SeesInput):
    """A gate that reads the current input x_t, by a linear map or a small MLP.

    Args:
        hidden: units of the MLP's hidden layer (GELU); None is a linear map.
        **options: see :class:`SeesInput`.

    Example:
        >>> gate = InputGate(rate=0.2, mode="hard").bind(hidden_size=8, input_size=4)
        >>> schedule, _ = gate(torch.arange(1, 11)[:, None], torch.randn(10, 3, 4))
        >>> schedule.g.shape
        torch.Size([10, 3, 8])
    """

    reads_clock = False
    input = True
    _input_weight = "weight"

    def __init__(self, *, hidden: int | None = None, **options: Unpack[InputOptions]) -> None:
        super().__init__(**options)
        self.hidden = hidden

    def setup(self, width, input_size):
        features = input_size
        if self.hidden is not None:
            features = self.hidden
            self.lift = nn.Linear(input_size, features)  # type: ignore[assignment]
        self.create_parts(width, features)
        self._calibrate_on_normal(width, input_size)

    def _is_one_product(self):
        return self.hidden is None

    def _features(self, x):
        return x if self.hidden is None else functional.gelu(self.lift(x))  # type: ignore[operator]


class SSMGate(GateParts, SeesInput):
    """A causal diagonal state-space model over x, so that a gate can react to earlier inputs.

    ``s_t = λ s_{t-1} + (1 - λ) W x_t`` with learned decays λ, whose time constants are at first
    log-spaced up to the horizon; the pre-activation is linear in (s_t, x_t). A whole sequence is
    computed in parallel, a stream step by step.

    Args:
        modes: size of s.
        horizon: longest initial time constant, in time steps.
        **options: see :class:`SeesInput`.

    Example:
        >>> gate = SSMGate(rate=0.2).bind(hidden_size=8, input_size=4)
        >>> memory = gate.init_memory(3)
        >>> schedule, memory = gate(torch.arange(1, 11)[:, None], torch.randn(10, 3, 4), memory)
        >>> schedule.g.shape
        torch.Size([10, 3, 8])
    """

    reads_clock = False
    ssm = input = True

    def __init__(
        self, *, modes: int = 16, horizon: int = 1024, **options: Unpack[InputOptions]
    ) -> None:
        super().__init__(**options)
        check_state_space(modes, horizon)
        self.modes = modes
        self.horizon = horizon

    def setup(self, width, input_size):
        self.create_parts(width, input_size)
        self._calibrate_on_normal(width, input_size)


def check_state_space(modes: int, horizon: int) -> None:
    """Refuse a state-space model that does not exist."""
    if modes < 1 or horizon < 1:
        raise ValueError(f"modes and horizon must be at least 1, got {modes} and {horizon}")


class Threshold(SeesInput):
    """Ablation: every gate opens where the input exceeds a fixed level in any channel.

    Args:
        level: the value that the input must exceed.
        **options: see :class:`SeesInput`.

    Example:
        >>> gate = Threshold().bind(hidden_size=2, input_size=1)
        >>> x = torch.tensor([-1.0, 0.5, 2.0]).view(3, 1, 1)
        >>> gate(torch.arange(1, 4)[:, None], x)[0].g[..., 0].flatten().tolist()
        [0.0, 1.0, 1.0]
    """

    reads_clock = False

    def __init__(
        self,
        level: float = 0.0,
        *,
        source: Source = "input",
        granularity: Granularity = "layer",
        always_on: float = 0.0,
        **unknown: Never,
    ) -> None:
        check_known(type(self), unknown)
        super().__init__(
            source=source,
            rate=0.5,
            mode="hard",
            frozen=True,
            granularity=granularity,
            always_on=always_on,
        )
        self.level = level

    def preactivation(self, t, x, memory):
        return x.amax(-1, keepdim=True) - self.level, memory

    def calibrate(self, t, x, lengths=None):
        """Do nothing: the level is an option, not a parameter."""
