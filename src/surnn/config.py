"""Every choice of a run, as typed fields; each is a flag of ``surnn train``. No torch in here."""

from dataclasses import dataclass, field
from typing import Any, Literal

GateKind = Literal[
    "rhythm", "warped", "spline", "spectral", "input", "ssm", "open", "every_n",
    "fixed_rhythm", "fixed_random", "threshold", "table",
]  # fmt: skip
ModelKind = Literal[
    "sugru", "sulstm", "surnn", "susnn", "gru", "lstm", "rnn", "transformer", "s4d", "mingru"
]


@dataclass(frozen=True)
class GateConfig:
    """When units update; of surnn's own models."""

    kind: GateKind = "rhythm"
    rate: float = 0.1
    """Share of open steps at the start."""
    target_rate: float | None = None
    """What the update rate is pulled towards; None lets it drift."""
    granularity: Literal["auto", "unit", "head", "layer"] = "auto"
    """Who shares a gate."""
    mode: Literal["default", "hard", "sampled", "soft"] = "default"
    """How the threshold is trained; soft is the sigmoid ablation."""
    surrogate: Literal["sigmoid", "triangle", "rectangle", "arctan"] = "sigmoid"
    slope: float = 4.0
    always_on: float = 0.0
    """Share of gates that are always open."""
    frozen: bool = False
    horizon: int | None = None
    """Length that a clock is made for; None is the task's."""


@dataclass(frozen=True)
class ModelConfig:
    """What is trained: one of surnn's layers or a baseline, in a stack or in residual blocks."""

    kind: ModelKind = "sugru"
    layers: int = 2
    width: int = 256
    """Units of a layer, and features between layers."""
    heads: int = 16
    """Blocks of the recurrence (surnn's own) or attention heads."""
    block: Literal["residual", "stack"] = "residual"
    """norm, layer, GELU, GLU around a residual; or the layers alone."""
    norm: Literal["layer", "batch"] = "layer"
    prenorm: bool = True
    dropout: float = 0.0
    pool: Literal["last", "mean"] = "last"
    """Which outputs a sequence's prediction is read from."""
    expand: int = 1
    """State size, in widths."""
    groups: int = 1
    bidirectional: bool = False
    chrono: bool = False
    """Biases that tell a GRU or LSTM to hold on from the start; the fair control."""
    state: int = 64
    """Modes per channel of s4d."""
    backend: Literal["auto", "reference", "events", "onepass", "triton"] = "auto"
    max_rate: float | None = None
    """Room for updates on a GPU, as a share of steps; see SuGRU."""


@dataclass(frozen=True)
class TrainConfig:
    """How it is trained."""

    steps: int = 1000
    """Updates in all."""
    batch: int = 64
    """Sequences of an update, over all processes and accumulated parts."""
    learning_rate: float = 2e-3
    gate_learning_rate: float | None = None
    """Of the gates' own parameters; None is the same."""
    weight_decay: float = 0.0
    """Of weight matrices; never of gates, biases and norms."""
    warmup: int = 100
    """Updates over which the learning rate rises."""
    hold: float = 0.5
    """Share of the updates at the full rate before it decays."""
    final: float = 0.05
    """Share of the learning rate at the end of a cosine."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    rate_penalty: float = 0.0
    """Weight of |update rate - target rate| in the loss."""
    anneal: tuple[float, float] | None = None
    """Shares of the updates between which sampled gates harden."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: autocast; gates and states stay float32."""
    accumulate: int = 1
    """Parts that a batch is taken in."""
    evaluate_every: int = 200
    """Updates between evaluations on the validation set."""
    evaluation_batches: int | None = None
    """Of the validation set; None is all."""
    patience: int | None = None
    """Evaluations without improvement before training stops."""
    checkpoint_every: int = 500
    log_every: int = 20
    minutes: float | None = None
    """Time after which training stops, cleanly; it can be resumed."""
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    compile: bool = False
    """By torch.compile."""
    tensorboard: bool = False
    """Write what is logged for TensorBoard too, into the run's folder."""

    def __post_init__(self) -> None:
        counts = ("steps", "batch", "accumulate", "evaluate_every", "checkpoint_every", "log_every")
        for name in counts:
            if getattr(self, name) < 1:
                raise ValueError(f"train.{name} must be at least 1, got {getattr(self, name)}")
        if self.evaluation_batches is not None and self.evaluation_batches < 1:
            raise ValueError("train.evaluation_batches must be at least 1, or left out for all")


@dataclass(frozen=True)
class RunConfig:
    """A run: task, model, gates, training."""

    task: Any
    """A task, with its own options."""
    model: ModelConfig = field(default_factory=ModelConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
