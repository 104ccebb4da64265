"""Every choice of a run, as typed fields; each is a flag of ``surnn train``. No torch in here.

An option that a run would not use is an error, not a thing to be ignored in silence.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

GateKind = Literal[
    "rhythm", "warped", "spline", "spectral", "input", "ssm", "open", "every_n",
    "cycles", "fixed_rhythm", "fixed_random", "threshold", "table",
]  # fmt: skip
ModelKind = Literal["sugru", "sulstm", "surnn", "susnn", "gru", "lstm", "rnn", "transformer",
                    "s4d", "mingru", "linear"]  # fmt: skip
OURS: tuple[ModelKind, ...] = ("sugru", "sulstm", "surnn", "susnn")
HEAD_SIZE = 16
"""Units of a block of the recurrence, unless chosen."""
SEE_INPUT: tuple[GateKind, ...] = ("input", "ssm")
"""Gates that are sampled in training unless another mode is asked for."""
FIXED: tuple[GateKind, ...] = (
    "open", "every_n", "cycles", "fixed_rhythm", "fixed_random", "threshold"
)  # fmt: skip
"""Gates that nobody learns."""


@dataclass(frozen=True)
class GateConfig:
    """When units update; of surnn's own models. What a kind of gate does not have is refused.

    None is the gate's own default.
    """

    kind: GateKind = "rhythm"
    """What it goes by: time, the input, or a fixed schedule; see surnn list gates."""
    rate: float | None = None
    """Share of open steps at the start (0.1; gates that see the input 0.3; fixed_random 0.5)."""
    target_rate: float | None = None
    """What the update rate is pulled towards, by train.rate_penalty; None lets it drift."""
    granularity: Literal["auto", "unit", "head", "layer"] | int = "auto"
    """Who shares a gate: a number is that many neighbouring units."""
    mode: Literal["hard", "sampled", "soft"] | None = None
    """How the threshold is trained (hard; sampled if it sees the input). soft: a sigmoid."""
    surrogate: Literal["sigmoid", "triangle", "rectangle", "arctan"] = "sigmoid"
    """Whose derivative stands in for the step's."""
    slope: float = 4.0
    """Of the surrogate; larger is steeper."""
    always_on: float = 0.0
    """Share of gates that are always open, rounded up."""
    frozen: bool = False
    """Keep the schedule it began with."""
    horizon: int | None = None
    """Length that a clock is made for; None is the task's."""
    frequencies: int | None = None
    """rhythm, warped, fixed_rhythm: sinusoids (64; the paper has as many as units)."""
    min_period: float | None = None
    """rhythm, warped, fixed_rhythm: shortest period, in steps (2); cycles: first gate's (10)."""
    max_period: float | None = None
    """rhythm, warped, fixed_rhythm: longest period (twice the horizon); cycles: last's (100)."""
    train_frequencies: bool = False
    """rhythm, warped: learn the periods too."""
    bins: int | None = None
    """warped: stretches of the clock (16); spectral: Fourier coefficients (64)."""
    per_unit: bool = False
    """warped: a clock for each gate."""
    knots: int | None = None
    """spline: coefficients over the horizon (64)."""
    hidden: int | None = None
    """input: units of a hidden layer; None is a linear gate."""
    modes: int | None = None
    """ssm: size of its memory (16)."""
    source: Literal["layer", "input"] | None = None
    """input, ssm: see what the layer reads (layer), or a whole stack does (input; threshold's)."""
    n: int | None = None
    """every_n: the period (3)."""
    staggered: bool = False
    """every_n: units take turns."""
    level: float | None = None
    """threshold: what the input must exceed (0)."""
    seed: int | None = None
    """fixed_random: of its coins (0)."""

    def __post_init__(self) -> None:
        shaped = (self.surrogate, self.slope) != (GateConfig.surrogate, GateConfig.slope)
        if shaped and self.frozen and self.mode != "soft" and not self.sampled:
            raise ValueError(
                "gate.surrogate and gate.slope are for learning, and a frozen gate does not learn: "
                f"leave them out, that is at {GateConfig.surrogate} and {GateConfig.slope:g}"
            )
        if self.target_rate is not None and not self.learned:
            raise ValueError("a gate that is not learned keeps its rate: leave out target_rate")

    @property
    def learned(self) -> bool:
        """Whether training changes the schedule."""
        return not self.frozen and self.kind not in FIXED

    @property
    def sampled(self) -> bool:
        """Whether it is drawn at random in training."""
        return self.mode == "sampled" or (self.mode is None and self.kind in SEE_INPUT)

    def given(self) -> dict[str, Any]:
        """The options that were chosen, kind aside."""
        return _given(self, "kind")


@dataclass(frozen=True)
class ModelConfig:
    """What is trained: one of surnn's layers or a baseline, in a stack or in residual blocks."""

    kind: ModelKind = "sugru"
    """surnn's own, or what they are compared with; see surnn list models."""
    layers: int = 2
    """How deep."""
    width: int = 256
    """Units of a layer, and features between layers."""
    heads: int | None = None
    """Blocks of the recurrence, or attention heads; None: of 16 units (32 in attention)."""
    block: Literal["auto", "residual", "feedforward", "stack"] = "auto"
    """residual: S4's; feedforward: a Transformer's, and auto for that; stack: the layers alone."""
    widths: tuple[int, ...] | None = None
    """Of a stack: units of each layer, instead of layers and width."""
    norm: Literal["layer", "batch", "rms"] = "layer"
    """Of residual and feed-forward blocks."""
    prenorm: bool = True
    """The norm before the layer, and one at the end; otherwise after each sum."""
    glu: Literal["sigmoid", "gelu", "silu", "none"] = "sigmoid"
    """How a residual block's output is gated; none is a linear map."""
    feedforward: int | None = None
    """Units of the feed-forward network; None is four times the width."""
    dropout: float = 0.0
    """Share of features dropped within blocks, or between the layers of a stack."""
    tied_dropout: bool = False
    """Drop a feature at all steps of a sequence or at none."""
    drop_path: float = 0.0
    """Share of sequences that skip the last block; less so the earlier ones."""
    input_dropout: float = 0.0
    """Share of steps whose input is dropped, all its features together."""
    convolution: int = 1
    """Steps, the present one included, that are summed before each layer's block; 1 is none. From
    ten on its memory grows with their square."""
    attention_every: int | None = None
    """A hybrid: causal attention, with a norm and a residual of its own, after so many blocks."""
    attention_heads: int | None = None
    """Of a hybrid's attention; None: of 32 features."""
    window: int | None = None
    """Steps that attention sees, the present one included, and a stream keeps; None is all."""
    tied_embedding: bool = False
    """Of models that predict the next token: read outputs by the embedding, without a bias."""
    pool: Literal["last", "mean"] = "last"
    """Which outputs a sequence's prediction is read from."""
    open_layers: int = 0
    """The first layers that update at every step, and read for the gated ones above them."""
    expand: int = 1
    """State size, in widths; between projections up and down, which residual blocks do without."""
    groups: int = 1
    """Blocks of these projections, which then residual blocks have too."""
    bidirectional: bool = False
    """Half of the units read backwards."""
    chrono: bool = False
    """Biases that tell a GRU or LSTM to hold on from the start; the fair control."""
    half_state: bool = False
    """gru, lstm, rnn: states in bfloat16 too where train.precision is, not in float32; faster."""
    state: int = 64
    """s4d: modes per channel."""
    neuron: Literal["alif", "lif"] = "alif"
    """susnn: with an adaptive threshold, or plain."""
    adaptation_goes_on: bool = False
    """susnn: the adaptation decays on carry steps too."""
    tau_m: tuple[float, float] = (20.0, 5.0)
    """susnn: mean and deviation of the membranes' time constants, in steps."""
    tau_adp: tuple[float, float] = (200.0, 25.0)
    """susnn: the same of the adaptation."""
    backend: Literal["auto", "reference", "events", "onepass", "triton"] = "auto"
    """What runs the recurrence."""
    skip_drive: float | None = None
    """sugru by onepass: how strongly a closed gate holds; None is exactly."""
    max_rate: float | None = None
    """Room for updates on a GPU, as a share of steps, so that the host need not wait; see SuGRU."""
    recompute: bool = False
    """On a GPU: less memory, project the input twice."""

    def __post_init__(self) -> None:
        chosen = _given(self, "kind")
        for name, users in _MODELS_WITH.items():
            if name in chosen and self.kind not in users:
                raise ValueError(
                    f"model.{name} is of {', '.join(users)}; {self.kind} has no use for it"
                )
        for name, users in _BLOCKS_WITH.items():
            if name in chosen and self.form not in users:
                raise ValueError(f"model.{name} is of block {' or '.join(users)}, not {self.form}")
        for name in ("max_rate", "recompute"):
            if name in chosen and self.backend not in ("auto", "triton"):
                raise ValueError(f"model.{name} is of the triton backend, not {self.backend}")
        if self.tied_dropout and not self.dropout:
            raise ValueError("model.tied_dropout is of model.dropout, which is 0: set both or none")
        self._check_attention()
        if self.skip_drive is not None and self.backend != "onepass":
            raise ValueError("model.skip_drive is of model.backend onepass")
        if self.widths is not None and ("layers" in chosen or "width" in chosen):
            raise ValueError("model.widths says how many layers of what width: leave those out")
        _at_least(self, "model", 1, "layers", "width", "heads", "expand", "groups", "state")
        _at_least(self, "model", 1, "attention_every", "attention_heads", "window", "convolution")
        _at_least(self, "model", 0, "open_layers")
        if self.open_layers >= self.layers:
            raise ValueError(
                f"model.open_layers leaves none of {self.layers} layers to be gated, got "
                f"{self.open_layers}: use fewer, or --gate.kind open"
            )
        _share(self, "model", "dropout", "drop_path", "input_dropout")

    def _check_attention(self) -> None:
        if self.attention_heads is not None and self.attention_every is None:
            raise ValueError("model.attention_heads is of a hybrid: set model.attention_every too")
        if self.attention_every is not None and self.attention_every > self.layers:
            raise ValueError(
                f"model.attention_every {self.attention_every} of {self.layers} layers would be no "
                "attention at all: use at most as many"
            )
        if self.window is not None and not self.attends:
            raise ValueError("model.window is of attention: of a transformer or attention_every")

    @property
    def form(self) -> str:
        """The block, with what ``auto`` stands for."""
        if self.block != "auto":
            return self.block
        return "feedforward" if self.kind == "transformer" else "residual"

    @property
    def projects_back(self) -> bool:
        """Whether an expanded state is projected back by its layer. A residual block has a linear
        map there anyway, which reads the whole state unless the layer's projections are grouped."""
        return self.form != "residual" or self.groups > 1

    @property
    def attends(self) -> bool:
        """Whether there is attention in it."""
        return self.kind == "transformer" or self.attention_every is not None

    def heads_of(self, units: int) -> int:
        """How many heads these units make."""
        if self.heads is not None:
            return self.heads
        return _heads(units, 32 if self.kind == "transformer" else HEAD_SIZE)

    @property
    def heads_beside(self) -> int:
        """How many heads a hybrid's attention has."""
        return self.attention_heads or _heads(self.width, 32)


def _heads(units: int, size: int) -> int:
    return units // size if units % size == 0 else 1


_MODELS_WITH: dict[str, tuple[ModelKind, ...]] = {
    "heads": (*OURS, "transformer"),
    **dict.fromkeys(
        ("attention_every", "attention_heads"),
        tuple(kind for kind in get_args(ModelKind) if kind != "transformer"),
    ),
    **dict.fromkeys(
        ("open_layers", "expand", "groups", "bidirectional", "backend", "max_rate", "recompute"),
        OURS,
    ),
    "skip_drive": ("sugru",),
    **dict.fromkeys(("neuron", "adaptation_goes_on", "tau_m", "tau_adp"), ("susnn",)),
    "chrono": ("gru", "lstm"),
    "half_state": ("gru", "lstm", "rnn"),
    "state": ("s4d",),
}
_BLOCKS_WITH: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("norm", "prenorm", "tied_dropout", "drop_path"), ("residual", "feedforward")),
    "glu": ("residual",),
    "feedforward": ("feedforward",),
    **dict.fromkeys(("attention_every", "convolution", "open_layers"), ("residual", "feedforward")),
    "widths": ("stack",),
}


@dataclass(frozen=True)
class TrainConfig:
    """How it is trained."""

    steps: int = 1000
    """Updates in all."""
    batch: int = 64
    """Sequences of an update, over all processes and accumulated parts."""
    learning_rate: float = 2e-3
    """Of AdamW, at its highest (--train.lr for short)."""
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
    average: float = 0.0
    """Decay of a running mean of the weights, evaluated and kept as best (not as last); 0: none."""
    label_smoothing: float = 0.0
    """Of tasks with a label for each sequence: how much of it is shared out among all classes."""
    mixup: float = 0.0
    """Of such tasks with values as input: mix sequences and labels by pairs, as Beta(it, it)."""
    rate_penalty: float = 0.0
    """Weight of |update rate - gate.target_rate| in the loss."""
    anneal: tuple[float, float] | None = None
    """Shares of the updates between which sampled gates harden."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: autocast, on a GPU; gates stay float32, and states (but see model.half_state)."""
    tf32: bool = True
    """float32 products in TF32 on a GPU, evaluations too: a bit coarser, several times faster."""
    accumulate: int = 1
    """Parts that a batch is taken in, one after another; not with rate_penalty."""
    evaluate_every: int = 200
    """Updates between evaluations on the validation set."""
    evaluation_batches: int | None = None
    """Of the validation set; None is all."""
    evaluation_batch: int | None = None
    """Sequences of each, also in tests: no gradients need room there; None is train.batch."""
    patience: int | None = None
    """Evaluations without improvement before training stops."""
    checkpoint_every: int = 500
    """Updates between checkpoints."""
    log_every: int = 20
    """Updates between lines of the log."""
    minutes: float | None = None
    """Time for all of it, a last evaluation included; rates follow the clock if that is ahead."""
    seed: int = 0
    """Of weights, batches and sampled gates."""
    start: str | None = None
    """Another run's folder, whose best weights this one begins with instead of random ones."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto is cuda where there is one."""
    compile: bool = False
    """Blocks by torch.compile, those that are alike once."""
    cuda_graph: bool = False
    """Capture an update once and replay it; for batches of one shape or a few, on one GPU."""
    shard: bool = False
    """Divide weights and optimizer among the processes, block by block (FSDP2)."""
    tensorboard: bool = False
    """Write what is logged for TensorBoard too, into the run's folder."""

    def __post_init__(self) -> None:
        counts = ("steps", "batch", "accumulate", "evaluate_every", "checkpoint_every", "log_every")
        _at_least(self, "train", 1, *counts, "evaluation_batches", "evaluation_batch", "patience")
        _at_least(self, "train", 0, "warmup", "weight_decay", "rate_penalty", "minutes", "mixup")
        _share(self, "train", "hold", "final", "label_smoothing", "average")
        for name in ("learning_rate", "gate_learning_rate", "clip"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"train.{name} must be more than 0, got {value}")
        if self.anneal is not None and not 0 <= self.anneal[0] <= self.anneal[1] <= 1:
            raise ValueError(
                f"train.anneal is two shares, the first not after the second, got {self.anneal}"
            )


@dataclass(frozen=True)
class RunConfig:
    """A run: task, model, gates, training."""

    task: Any
    """A task, with its own options."""
    model: ModelConfig = field(default_factory=ModelConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        gate, train = self.gate, self.train
        if self.model.kind not in OURS:
            self._check_without_gates()
        if self.model.pool == "mean" and self.task.output.per == "step":
            raise ValueError(
                f"model.pool is for one prediction a sequence, and {self.task.name} wants one at "
                "each step: leave it out"
            )
        if self.model.bidirectional and self.task.looks_ahead:
            raise ValueError(
                f"{self.task.name} predicts what comes next, and model.bidirectional would have "
                "read it: leave it out"
            )
        if self.model.half_state and train.precision != "bfloat16":
            raise ValueError("model.half_state is of train.precision bfloat16: set both or none")
        if gate.kind == "open" and (self.model.open_layers or self.model.max_rate is not None):
            raise ValueError(
                "gate.kind open has all layers open, at all steps: leave out model.open_layers and "
                "model.max_rate"
            )
        if train.rate_penalty and gate.target_rate is None:
            raise ValueError("train.rate_penalty pulls towards gate.target_rate: set both")
        if gate.target_rate is not None and not train.rate_penalty:
            raise ValueError("gate.target_rate is pulled at by train.rate_penalty: set both")
        if train.rate_penalty and train.accumulate > 1:
            raise ValueError(
                "train.rate_penalty is of the whole batch's update rate, which accumulated parts "
                "do not know of each other: leave out train.accumulate (several processes do)"
            )
        if train.anneal is not None and not gate.sampled:
            raise ValueError("train.anneal hardens sampled gates: set gate.mode to sampled too")
        if train.gate_learning_rate is not None and not gate.learned:
            raise ValueError("the gate is not learned: leave out train.gate_learning_rate")

    def _check_without_gates(self) -> None:
        ours = {"rate_penalty": 0.0, "anneal": None, "gate_learning_rate": None}
        chosen = [f"train.{name}" for name in ours if getattr(self.train, name) != ours[name]]
        if self.gate != GateConfig():
            chosen += [f"gate.{name}" for name in self.gate.given() or ("kind",)]
        if chosen:
            raise ValueError(
                f"{self.model.kind} has no gates and no use for {', '.join(chosen)}; kinds with "
                f"gates are {', '.join(OURS)}"
            )

    def beside(self, kind: ModelKind, **model: Any) -> "RunConfig":
        """The same run with another kind of model, less what that kind has no use for."""
        unused = {name for name, users in _MODELS_WITH.items() if kind not in users}
        if kind != "transformer" and self.model.attention_every is None:
            unused.add("window")
        plain = {f.name: f.default for f in fields(ModelConfig) if f.name in unused}
        changed = replace(self.model, **{**plain, **model, "kind": kind})
        if kind in OURS:
            return replace(self, model=changed)
        train = replace(self.train, rate_penalty=0.0, anneal=None, gate_learning_rate=None)
        return RunConfig(self.task, changed, GateConfig(), train)


def _given(config: Any, *but: str) -> dict[str, Any]:
    """Fields that differ from their defaults."""
    found = [(f, getattr(config, f.name)) for f in fields(config) if f.name not in but]
    return {f.name: value for f, value in found if value != f.default}


def _at_least(config: Any, group: str, least: int, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and not value >= least:
            raise ValueError(f"{group}.{name} must be at least {least}, got {value}")


def _share(config: Any, group: str, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(config, name) <= 1:
            raise ValueError(f"{group}.{name} is a share from 0 to 1, got {getattr(config, name)}")
