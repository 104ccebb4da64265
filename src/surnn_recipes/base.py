"""The class of recipes, and parts that several recipes share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from surnn.config import (
    InputGateConfig,
    LearnedGateConfig,
    ModelConfig,
    ModelKind,
    RhythmConfig,
    RunConfig,
    TrainConfig,
)

Make = Callable[[], RunConfig]
Shorten = Callable[[RunConfig], RunConfig]


@dataclass(frozen=True)
class Recipe:
    """A named configuration."""

    name: str
    make: Make
    about: str
    """One line for listings."""
    paper_table: str = ""
    """The paper's table or figure; empty for rows of our own."""
    paper_name: str = ""
    """The row's name in the paper."""
    paper: float | None = None
    """The paper's test metric; None if it has none."""
    shorten: Shorten | None = None
    """Makes the run smaller, if its full size needs more than minutes to learn anything."""

    def __call__(self) -> RunConfig:
        """The complete configuration at full size."""
        return self.make()

    def in_budget(self, minutes: float) -> RunConfig:
        """The configuration for a number of minutes, made smaller if necessary. The learning-rate
        schedule follows the time."""
        config = self.make()
        if self.shorten is not None:
            config = self.shorten(config)
        return replace(config, train=replace(config.train, minutes=minutes))


RECIPES: dict[str, Recipe] = {}


def add(name: str, make: Make, about: str, **options: Any) -> None:
    """Register a recipe. ``options`` are fields of :class:`Recipe`."""
    if name in RECIPES:
        raise ValueError(f"there are two recipes named {name!r}")
    RECIPES[name] = Recipe(name, make, about, **options)


def recipe(
    paper_table: str = "",
    paper_name: str = "",
    paper: float | None = None,
    *,
    shorten: Shorten | None = None,
) -> Callable[[Make], Make]:
    """Register a function as a recipe. Its name, with dashes, becomes the recipe's, the first line
    of its docstring the recipe's ``about``."""

    def register(function: Make) -> Make:
        name, about = function.__name__.replace("_", "-"), (function.__doc__ or "").splitlines()[0]
        add(
            name,
            function,
            about,
            paper_table=paper_table,
            paper_name=paper_name,
            paper=paper,
            shorten=shorten,
        )
        return function

    return register


def with_task(**options: Any) -> Shorten:
    """Shorten a run with other options of its task."""
    return lambda config: replace(config, task=replace(config.task, **options))


# ---------------------------------------------------------------------------- parts

CLOCK = RhythmConfig(rate=0.1)
"""A learned rhythm per head, the form that trains fastest."""
TRIANGLE_CLOCK = replace(CLOCK, surrogate="triangle", slope=2.0)
"""The same with a triangular surrogate: only gates near their threshold have a gradient, which
saves time at all other time steps."""
SELECTIVE = InputGateConfig(rate=0.3, target_rate=0.1)
"""Depends on the input; needs a rate penalty in training."""
WIDE = ModelConfig(layers=3, width=256, expand=2, dropout=0.1)
"""Residual blocks with 32 heads of 16."""

DROPOUT: dict[str, Any] = {"dropout": 0.2, "sequence_dropout": True}
"""Against over-fitting: a feature is dropped at all time steps of a sequence or at none. A
recurrence would average out a feature that is dropped at single time steps."""

TWO_ROWS = 65
"""Taps of convolutions that reach from a pixel to the one two rows above it, in rows of 32."""

IMAGE_OPTIONS: dict[str, Any] = {"drop_path": 0.2, "convolution": TWO_ROWS, **DROPOUT}
"""For natural images: also drops whole blocks, and convolves neighbouring pixels."""

IMAGE_TRAINING: dict[str, Any] = {
    "learning_rate": 2e-3,
    "weight_decay": 0.1,
    "label_smoothing": 0.1,
}
"""Training options for natural images."""

MATCHED_WIDTHS: dict[ModelKind, int] = {
    "gru": 288, "lstm": 256, "mingru": 416, "s4d": 512, "linear": 480
}  # fmt: skip
"""Widths at which blocks with these layers have as many parameters (within 5 %) as SuGRU blocks of
width 256 with a state of 512. Their recurrence is dense, that of SuGRU is in heads: with a state of
the same size a GRU would have three times the parameters."""
PAIR_WIDTHS: dict[ModelKind, int] = {"mingru": 392, "s4d": 480}
"""Widths that differ from these where two sequences are compared: the readout is larger."""
MATCHED_FEEDFORWARD = 832
"""Units of the feed-forward network at which a Transformer of width 256 has as many parameters."""

IN_CUDNN: tuple[ModelKind, ...] = ("gru", "lstm")


def epochs(count: int, sequences: int, batch: int, **options: Any) -> TrainConfig:
    """Training for ``count`` epochs, each followed by an evaluation and a checkpoint."""
    steps = sequences // batch
    return TrainConfig(
        **{
            "steps": count * steps, "batch": batch, "learning_rate": 2e-3, "warmup": 200,
            "hold": 0.6, "evaluate_every": steps, "checkpoint_every": steps,
            "precision": "bfloat16", **options,
        }
    )  # fmt: skip


def match_parameters(config: RunConfig, kind: ModelKind) -> RunConfig:
    """The configuration with another layer and as many parameters, for models like ``WIDE``.

    Steps are captured but not compiled. cuDNN holds its states in bfloat16, its fastest mode. A
    Transformer has a learning rate of 1e-3 at most. All other options remain.
    """
    if kind == "transformer":
        config = config.with_model(kind, feedforward=MATCHED_FEEDFORWARD)
        rate = min(config.train.learning_rate, 1e-3)
    else:
        width = matched_width(kind, pairs=config.task.output.pairs)
        config = config.with_model(kind, width=width, half_state=kind in IN_CUDNN)
        rate = config.train.learning_rate
    return replace(config, train=replace(config.train, compile=False, learning_rate=rate))


def matched_width(kind: ModelKind, *, pairs: bool) -> int:
    """The width at which blocks with this layer have as many parameters."""
    return PAIR_WIDTHS.get(kind, MATCHED_WIDTHS[kind]) if pairs else MATCHED_WIDTHS[kind]


def size_note(kind: ModelKind, *, pairs: bool = False) -> str:
    """A note on the size of such a model."""
    if kind == "transformer":
        return f"as many parameters, feed-forward networks of {MATCHED_FEEDFORWARD} units"
    width = matched_width(kind, pairs=pairs)
    if kind == "s4d":
        return f"as many parameters, {width} channels of 64 modes"
    half = " in bfloat16" if kind in IN_CUDNN else ""
    return f"as many parameters, a state of {width}{half} to our 512"


def with_compile_and_graph(config: RunConfig) -> RunConfig:
    """The configuration with a compiled step in a CUDA graph; needs sequences of one length."""
    return replace(config, train=replace(config.train, cuda_graph=True, compile=True))


def with_ungated_first_layer(config: RunConfig) -> RunConfig:
    """The configuration with a first layer that updates at every time step."""
    return replace(config, model=replace(config.model, ungated_layers=1))


def with_frozen_gates(config: RunConfig) -> RunConfig:
    """The configuration with untrained rhythms, at the target rate of the trained ones."""
    gate, default = config.gate, RhythmConfig()
    assert isinstance(gate, LearnedGateConfig)
    assert not isinstance(gate.target_rate, tuple), "rates of layers differ: freeze them one by one"
    rate = gate.rate if gate.target_rate is None else gate.target_rate
    surrogate = {"surrogate": default.surrogate, "slope": default.slope}  # not needed
    gate = replace(gate, frozen=True, rate=rate, target_rate=None, **surrogate)
    return replace(config, gate=gate, train=replace(config.train, rate_penalty=0.0))


def with_soft_gates(config: RunConfig) -> RunConfig:
    """The configuration with soft gates, g = σ(a), and no target rate."""
    gate = replace(config.gate, mode="soft", surrogate="sigmoid", slope=1.0, target_rate=None)
    return replace(config, gate=gate, train=replace(config.train, rate_penalty=0.0))


def with_transformer(config: RunConfig) -> RunConfig:
    """The configuration with a Transformer and a slower warm-up."""
    config = config.with_model("transformer")
    train = replace(config.train, learning_rate=min(config.train.learning_rate, 1e-3), warmup=1000)
    return replace(config, train=train)
