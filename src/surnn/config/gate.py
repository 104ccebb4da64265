"""When do units update? One class of options per kind of gate.

A config has the options of its gate, with the same names and defaults. None stands for the gate's
own default. :mod:`surnn.nn.gates` describes the gates; this module does not import them, because
they need torch.
"""

import difflib
from dataclasses import dataclass, fields
from typing import Any, Literal

from surnn.errors import ConfigError

from .checks import changed

GateKind = Literal[
    "rhythm", "warped", "spline", "spectral", "input", "ssm", "full", "open", "every_n",
    "cycles", "fixed_rhythm", "fixed_random", "threshold", "table",
]  # fmt: skip
Granularity = Literal["auto", "unit", "head", "layer"] | int


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """Options of every gate."""

    kind: GateKind
    """Kind of gate. Each kind has its own options: add --gate.kind KIND to --help to see them."""
    granularity: Granularity = "auto"
    """Units that share a gate. N: groups of N neighbouring units. auto: one gate per head, or one
    per unit if a layer has one head."""
    always_on: float = 0.0
    """Share of gates that are always open, rounded up."""

    def __post_init__(self) -> None:
        if self.kind != type(self).kind:
            raise ConfigError(
                f"{type(self).__name__} is the config of the gate {type(self).kind!r}, got kind "
                f"{self.kind!r}; use gate_config({self.kind!r})"
            )

    @property
    def learned(self) -> bool:
        """Whether training changes the schedule."""
        return False

    @property
    def anneals(self) -> bool:
        """Whether training uses gates that are not hard yet, random or smooth ones."""
        return False

    @property
    def soft(self) -> bool:
        """Whether gates are smooth instead of binary."""
        return False

    @property
    def has_target(self) -> bool:
        """Whether training pulls towards an update rate."""
        return False

    @property
    def has_margin(self) -> bool:
        """Whether training pushes pre-activations away from 0."""
        return False

    @property
    def sees_input(self) -> bool:
        """Whether a learned schedule depends on the input."""
        return False

    def changed(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        return changed(self, "kind")


# ---------------------------------------------------------------------------- groups of options


@dataclass(frozen=True, kw_only=True)
class SurrogateOptions:
    """Options of gates that need not be binary."""

    mode: Literal["hard", "sampled", "relaxed", "soft"] = "hard"
    """hard: a step function. sampled: random draws in training, a step function in evaluation.
    relaxed: a smooth step in training, a step function in evaluation. soft: a smooth step, which
    is never fully closed."""
    surrogate: Literal["sigmoid", "triangle", "rectangle", "arctan"] = "sigmoid"
    """Smooth step whose derivative replaces the derivative of the step function."""
    slope: float = 4.0
    """Slope of the surrogate; larger is steeper."""

    @property
    def anneals(self) -> bool:
        return self.mode in ("sampled", "relaxed")

    @property
    def soft(self) -> bool:
        return self.mode == "soft"


@dataclass(frozen=True, kw_only=True)
class HorizonOptions:
    """Options of gates that are designed for a sequence length."""

    horizon: int | None = None
    """Sequence length, in time steps, that the gate is designed for. None: the task's."""


@dataclass(frozen=True, kw_only=True)
class SinusoidOptions:
    """Options of sums of sinusoids."""

    frequencies: int = 64
    """Number of sinusoids. The paper uses as many as a layer has units."""
    min_period: float = 2.0
    """Shortest period, in time steps."""
    max_period: float | None = None
    """Longest period, in time steps. None: twice the horizon."""


@dataclass(frozen=True, kw_only=True)
class LearnedGateConfig(SurrogateOptions, GateConfig):
    """Options of every learned gate."""

    rate: float | None = None
    """Share of time steps at which a gate is open before training. None: 0.1."""
    target_rate: float | tuple[float, ...] | None = None
    """Update rate that train.rate_penalty pulls towards: one for all gated layers, or one for
    each. None: no target."""
    margin: float = 0.0
    """Distance from 0 to which train.margin_penalty pushes pre-activations, so that rounding does
    not change decisions. 0: no margin."""
    frozen: bool = False
    """Keep the initial schedule: the gate is not trained."""

    def __post_init__(self) -> None:
        super().__post_init__()
        default = SurrogateOptions()
        reshaped = (self.surrogate, self.slope) != (default.surrogate, default.slope)
        if reshaped and self.frozen and self.mode == "hard":
            raise ConfigError(
                "gate.surrogate and gate.slope are for learning, and a frozen gate does not learn: "
                f"leave them at their defaults, {default.surrogate} and {default.slope:g}"
            )
        if self.margin and not self.learned:
            raise ConfigError("gate.margin is for learning: leave it out for a frozen gate")
        if self.has_target and not self.learned:
            raise ConfigError(
                "gate.target_rate needs a learned gate, and gate.frozen keeps the rate: leave out "
                "one of them"
            )

    @property
    def learned(self) -> bool:
        return not self.frozen

    @property
    def has_target(self) -> bool:
        return self.target_rate is not None

    @property
    def has_margin(self) -> bool:
        return self.margin > 0


@dataclass(frozen=True, kw_only=True)
class ClockConfig(HorizonOptions, LearnedGateConfig):
    """Options of every learned gate that depends on time alone."""


@dataclass(frozen=True, kw_only=True)
class SeesInputConfig(LearnedGateConfig):
    """Options of every learned gate that sees the input."""

    rate: float | None = None
    """Share of time steps at which a gate is open before training. None: 0.3."""
    mode: Literal["hard", "sampled", "relaxed", "soft"] = "sampled"
    source: Literal["layer", "input"] = "layer"
    """layer: the gate reads the input of its layer. input: it reads the input of the whole stack
    (with --model.block stack)."""

    @property
    def sees_input(self) -> bool:
        return True


# ---------------------------------------------------------------------------- one class per gate


@dataclass(frozen=True, kw_only=True)
class RhythmConfig(SinusoidOptions, ClockConfig):
    """Learned sinusoids of time: the paper's gate."""

    kind: GateKind = "rhythm"
    train_frequencies: bool = False
    """Learn the periods too."""


@dataclass(frozen=True, kw_only=True)
class WarpedRhythmConfig(RhythmConfig):
    """A rhythm on a clock that runs faster or slower along the sequence."""

    kind: GateKind = "warped"
    bins: int = 16
    """Number of parts of the horizon, each with its own speed."""
    per_unit: bool = False
    """One clock per gate instead of one per layer."""


@dataclass(frozen=True, kw_only=True)
class SplineConfig(ClockConfig):
    """Learned cubic splines over the horizon."""

    kind: GateKind = "spline"
    knots: int = 64
    """Number of coefficients per gate over the horizon."""


@dataclass(frozen=True, kw_only=True)
class SpectralConfig(ClockConfig):
    """Learned Fourier coefficients, each switched by a learned mask."""

    kind: GateKind = "spectral"
    bins: int = 64
    """Number of frequencies per gate."""


@dataclass(frozen=True, kw_only=True)
class TableConfig(ClockConfig):
    """A learned number for every time step and gate."""

    kind: GateKind = "table"


@dataclass(frozen=True, kw_only=True)
class InputGateConfig(SeesInputConfig):
    """A learned function of the input at the same time step."""

    kind: GateKind = "input"
    hidden: int | None = None
    """Units of a hidden layer in the gate. None: a linear gate."""


@dataclass(frozen=True, kw_only=True)
class SSMGateConfig(HorizonOptions, SeesInputConfig):
    """A learned state-space model over the inputs so far."""

    kind: GateKind = "ssm"
    modes: int = 16
    """Number of values that the gate remembers."""


@dataclass(frozen=True, kw_only=True)
class FullGateConfig(SinusoidOptions, HorizonOptions, SeesInputConfig):
    """Time, the present input and earlier inputs; each may be left out."""

    kind: GateKind = "full"
    rhythm: bool = True
    """Add learned sinusoids of time."""
    input: bool = True
    """Add a linear map of the present input."""
    ssm: bool = True
    """Add a state-space model over the inputs so far."""
    conv: int = 0
    """Weight each of this many inputs before the present one. 0: none."""
    hidden: int | None = None
    """Units of a hidden layer between the parts that see the input and the gates. None: no such
    layer."""
    train_frequencies: bool = False
    """Learn the periods too."""
    modes: int = 16
    """Number of values that the state-space model remembers."""

    @property
    def sees_input(self) -> bool:
        return self.input or self.ssm or self.conv > 0


@dataclass(frozen=True, kw_only=True)
class AlwaysOpenConfig(GateConfig):
    """Updates at every time step."""

    kind: GateKind = "open"
    granularity: Granularity = "layer"


@dataclass(frozen=True, kw_only=True)
class EveryNConfig(GateConfig):
    """Updates at every n-th time step."""

    kind: GateKind = "every_n"
    n: int = 3
    """The period, in time steps."""
    staggered: bool = False
    """Gates take turns instead of opening all at once."""


@dataclass(frozen=True, kw_only=True)
class CyclesConfig(GateConfig):
    """Cycles of different length for every gate: the mask of Rhythm-SNN."""

    kind: GateKind = "cycles"
    min_period: float = 10.0
    """Cycle of the first gate, in whole time steps."""
    max_period: float = 100.0
    """Cycle of the last gate, in whole time steps."""


@dataclass(frozen=True, kw_only=True)
class FixedRhythmConfig(SinusoidOptions, HorizonOptions, SurrogateOptions, GateConfig):
    """Random sinusoids of time that are not trained."""

    kind: GateKind = "fixed_rhythm"
    rate: float | None = None
    """Share of time steps at which a gate is open. None: random for each gate."""


@dataclass(frozen=True, kw_only=True)
class FixedRandomConfig(GateConfig):
    """A random number for every time step and gate, drawn once."""

    kind: GateKind = "fixed_random"
    rate: float | None = None
    """Share of time steps at which a gate is open. None: 0.5."""
    seed: int = 0
    """Seed of the random schedule."""


@dataclass(frozen=True, kw_only=True)
class ThresholdConfig(GateConfig):
    """Updates where the input exceeds a level."""

    kind: GateKind = "threshold"
    granularity: Granularity = "layer"
    source: Literal["layer", "input"] = "input"
    """layer: the gate reads the input of its layer. input: it reads the input of the whole stack
    (with --model.block stack)."""
    level: float = 0.0
    """Value that the input must exceed."""


GATE_CONFIGS: dict[GateKind, type[GateConfig]] = {
    "rhythm": RhythmConfig,
    "warped": WarpedRhythmConfig,
    "spline": SplineConfig,
    "spectral": SpectralConfig,
    "input": InputGateConfig,
    "ssm": SSMGateConfig,
    "full": FullGateConfig,
    "open": AlwaysOpenConfig,
    "every_n": EveryNConfig,
    "cycles": CyclesConfig,
    "fixed_rhythm": FixedRhythmConfig,
    "fixed_random": FixedRandomConfig,
    "threshold": ThresholdConfig,
    "table": TableConfig,
}


def gate_config(kind: GateKind, **options: Any) -> GateConfig:
    """The config of a gate by its name, for a kind that is known only when the program runs.

    Example:
        >>> gate_config("rhythm", rate=0.2) == RhythmConfig(rate=0.2)
        True
    """
    for name in options:
        check_gate_option(kind, name)
    return GATE_CONFIGS[kind](**options)


def gate_option_names(kind: GateKind) -> tuple[str, ...]:
    """The options of a kind of gate."""
    return tuple(field.name for field in fields(GATE_CONFIGS[kind]) if field.name != "kind")


def check_gate_option(kind: GateKind, name: str) -> None:
    """Refuse an option that this kind of gate does not have; the message says which kinds do."""
    known = gate_option_names(kind)
    if name in known:
        return
    if others := [other for other in GATE_CONFIGS if name in gate_option_names(other)]:
        hint = f"gates with that option: {', '.join(others)}"
    elif close := difflib.get_close_matches(name, known, 1):
        hint = f"did you mean {close[0]!r}?"
    else:
        hint = f"it has {', '.join(known)}"
    raise ConfigError(f"the gate {kind!r} has no option {name!r}; {hint}")
