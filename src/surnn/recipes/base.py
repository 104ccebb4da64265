"""What a recipe is, and the parts that several share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..config import GateConfig, ModelConfig, ModelKind, RunConfig, TrainConfig

Make = Callable[[], RunConfig]
Shorten = Callable[[RunConfig], RunConfig]


@dataclass(frozen=True)
class Recipe:
    """A run with a name."""

    name: str
    make: Make
    about: str
    """In a line."""
    where: str = ""
    """Table or figure of the paper; empty for what is not in there."""
    called: str = ""
    """As the paper calls the row."""
    paper: float | None = None
    """The paper's number for the metric on the test set; None where it gives none."""
    shorten: Shorten | None = None
    """How the run is made smaller where its full size says little after some minutes."""

    def __call__(self) -> RunConfig:
        """The whole configuration, at full size."""
        return self.make()

    def in_budget(self, minutes: float) -> RunConfig:
        """The same in some minutes, if need be smaller. The learning rate follows the time."""
        config = self.make()
        if self.shorten is not None:
            config = self.shorten(config)
        return replace(config, train=replace(config.train, minutes=minutes))


RECIPES: dict[str, Recipe] = {}


def add(name: str, make: Make, about: str, **known: Any) -> None:
    """Make a recipe known. ``known``: see :class:`Recipe`."""
    if name in RECIPES:
        raise ValueError(f"there are two recipes named {name!r}")
    RECIPES[name] = Recipe(name, make, about, **known)


def recipe(
    where: str = "",
    called: str = "",
    paper: float | None = None,
    *,
    shorten: Shorten | None = None,
) -> Callable[[Make], Make]:
    """Make a function known by its name, with dashes; its text's first line says what it is."""

    def enter(function: Make) -> Make:
        name, about = function.__name__.replace("_", "-"), (function.__doc__ or "").splitlines()[0]
        add(name, function, about, where=where, called=called, paper=paper, shorten=shorten)
        return function

    return enter


def with_task(**options: Any) -> Shorten:
    """Shorten a run by other options of its task."""
    return lambda config: replace(config, task=replace(config.task, **options))


# ---------------------------------------------------------------------------- parts

CLOCK = GateConfig(rate=0.1)
"""A learned rhythm for each head, the form that trains fastest."""
NEAR = replace(CLOCK, surrogate="triangle", slope=2.0)
"""The same, learning near its threshold only: far-closed steps cost nothing."""
SELECTIVE = GateConfig("input", rate=0.3, target_rate=0.1)
"""Sees the input; needs a rate penalty in training."""
WIDE = ModelConfig(layers=3, width=256, expand=2, dropout=0.1)
"""Residual blocks around 32 heads of 16."""

DROPPED: dict[str, Any] = {"dropout": 0.2, "tied_dropout": True}
"""Of what over-fits: features are dropped at all steps of a sequence or at none. Over those that
are dropped step by step a recurrence takes the mean."""

TWO_ROWS = 65
"""Taps of convolutions in which a pixel meets those before it up to the one two rows above, rows
being of 32."""

NATURAL: dict[str, Any] = {"drop_path": 0.2, "convolution": TWO_ROWS, **DROPPED}
"""Of natural images: besides, whole blocks are dropped, and neighbouring pixels meet."""

SMOOTHED: dict[str, Any] = {"learning_rate": 2e-3, "weight_decay": 0.1, "label_smoothing": 0.1}
"""How these are trained."""

AS_MANY: dict[ModelKind, int] = {"gru": 288, "lstm": 256, "mingru": 400, "linear": 480}
"""Widths at which blocks with these in them have as many parameters as ours of 256 around a state
of 512 (within 8 %). Theirs are dense, ours in heads: a state of the same size would have a GRU
three times the parameters."""


IN_CUDNN: tuple[ModelKind, ...] = ("gru", "lstm")


def epochs(count: int, sequences: int, batch: int, **options: Any) -> TrainConfig:
    """Training for so many epochs, each followed by an evaluation and a checkpoint."""
    steps = sequences // batch
    return TrainConfig(
        **{
            "steps": count * steps, "batch": batch, "learning_rate": 2e-3, "warmup": 200,
            "hold": 0.6, "evaluate_every": steps, "checkpoint_every": steps,
            "precision": "bfloat16", **options,
        }
    )  # fmt: skip


def as_many(config: RunConfig, kind: ModelKind) -> RunConfig:
    """The same with another layer and as many parameters; of models like ``WIDE``. Updates are
    captured but not compiled, and cuDNN has its states in bfloat16, to be as fast as it can."""
    config = config.beside(kind, width=AS_MANY[kind], half_state=kind in IN_CUDNN)
    return replace(config, train=replace(config.train, compile=False))


def in_words(kind: ModelKind) -> str:
    """What stands beside ours then."""
    half = " in bfloat16" if kind in IN_CUDNN else ""
    return f"as many parameters, a state of {AS_MANY[kind]}{half} to our 512"


def at_once(config: RunConfig) -> RunConfig:
    """The same with an update compiled and captured; for sequences that are all of one length."""
    return replace(config, train=replace(config.train, cuda_graph=True, compile=True))


def read_first(config: RunConfig) -> RunConfig:
    """The same with a first layer that updates at every step."""
    return replace(config, model=replace(config.model, open_layers=1))


def frozen(config: RunConfig) -> RunConfig:
    """The same with rhythms that stay as they are, at the rate that others are pulled to."""
    surrogate = {"surrogate": GateConfig.surrogate, "slope": GateConfig.slope}  # nothing is learned
    rate = config.gate.rate if config.gate.target_rate is None else config.gate.target_rate
    gate = replace(config.gate, frozen=True, rate=rate, target_rate=None, **surrogate)
    return replace(config, gate=gate, train=replace(config.train, rate_penalty=0.0))


def sigmoid(config: RunConfig) -> RunConfig:
    """The same with g = σ(a), which neither opens nor closes, so that no rate is asked for."""
    gate = replace(config.gate, mode="soft", surrogate="sigmoid", slope=1.0, target_rate=None)
    return replace(config, gate=gate, train=replace(config.train, rate_penalty=0.0))


def transformer(config: RunConfig) -> RunConfig:
    """The same with attention and feed-forward networks; slower to warm up."""
    config = config.beside("transformer")
    train = replace(config.train, learning_rate=min(config.train.learning_rate, 1e-3), warmup=1000)
    return replace(config, train=train)
