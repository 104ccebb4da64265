"""The model of a run."""

from dataclasses import dataclass
from typing import Literal, get_args

from surnn.errors import ConfigError

from .checks import changed, check_at_least, check_at_most, check_share

ModelKind = Literal["sugru", "sulstm", "surnn", "susnn", "gru", "lstm", "rnn", "transformer",
                    "s4d", "mingru", "delta",
                    "deltagru", "skipgru", "linear"]  # fmt: skip
OURS: tuple[ModelKind, ...] = ("sugru", "sulstm", "surnn", "susnn")
"""Models with gates; the others are baselines."""
HEAD_SIZE = 16
"""Default number of units per head of the recurrence."""


MOST_LAYERS, MOST_UNITS = 1000, 1 << 17
"""Sizes past which nothing can be built: a configuration may come from somebody else."""


@dataclass(frozen=True)
class ModelConfig:
    """A stack of layers with selective update, or of a baseline, plain or in residual blocks."""

    kind: ModelKind = "sugru"
    """Kind of layer: one with selective update or a baseline; see surnn list models."""
    layers: int = 2
    """Number of layers."""
    width: int = 256
    """Units per layer, and features between layers."""
    heads: int | None = None
    """Number of heads (independent blocks) of the recurrence, or of attention in a transformer.
    None: heads of 16 units, or of 32 in transformer and delta."""
    block: Literal["auto", "residual", "feedforward", "stack"] = "auto"
    """The block around a layer. residual: a residual block as in S4. feedforward: a block as in a
    transformer. stack: no block. auto: feedforward for a transformer, residual for the others."""
    widths: tuple[int, ...] | None = None
    """Units of each layer of a stack. None: model.width units in each of model.layers layers."""
    norm: Literal["layer", "batch", "rms"] = "layer"
    """Normalization in residual and feed-forward blocks."""
    prenorm: bool = True
    """Normalize before each layer and once at the end, instead of after each residual sum."""
    glu: Literal["sigmoid", "gelu", "silu", "none"] = "sigmoid"
    """Activation that gates the output of a residual block. none: a linear map."""
    feedforward: int | None = None
    """Units of the feed-forward network in a block. None: four times the width."""
    dropout: float = 0.0
    """Share of features dropped within blocks, or between the layers of a stack."""
    sequence_dropout: bool = False
    """Drop a feature at all time steps of a sequence or at none."""
    drop_path: float = 0.0
    """Share of sequences that skip the last block; earlier blocks are skipped less often."""
    input_dropout: float = 0.0
    """Share of time steps whose input is dropped, all features together."""
    convolution: int = 1
    """Time steps that a causal convolution before each block sees, the present one included. 1: no
    convolution. From 10 on, its memory grows with the square of this number."""
    attention_every: int | None = None
    """N: add causal attention, with its own norm and residual, after every N blocks (a hybrid
    model). None: no attention."""
    attention_heads: int | None = None
    """Number of attention heads of a hybrid model. None: heads of 32 features."""
    window: int | None = None
    """Time steps that attention sees, the present one included, and that a stream keeps. None: all
    of them."""
    tied_embedding: bool = False
    """Predict tokens with the weights of the embedding, without a bias."""
    pool: Literal["last", "mean"] = "last"
    """Output that predicts the label of a sequence: the last one, or the mean over time."""
    ungated_layers: int = 0
    """Number of first layers that update at every time step; the layers above them are gated."""
    expand: int = 1
    """State size as a multiple of the width. Adds input and output projections (in residual blocks
    only with groups > 1)."""
    groups: int = 1
    """Number of blocks of these projections, which are block-diagonal."""
    bidirectional: bool = False
    """Half of the units read the sequence backwards."""
    chrono: bool = False
    """Initialize the biases of a GRU or LSTM for long memory (Tallec and Ollivier,
    2018)."""
    half_state: bool = False
    """gru, lstm, rnn with train.precision bfloat16: keep states in bfloat16 too; faster."""
    state: int = 64
    """s4d: number of modes per channel."""
    products: int = 1
    """delta: number of reflections per time step."""
    threshold: float = 0.1
    """deltagru: change of an input or a state above which it is multiplied again."""
    budget: float = 0.0
    """skipgru: weight of the share of updates in the loss. deltagru: weight of the mean change of
    states."""
    neuron: Literal["alif", "lif"] = "alif"
    """susnn: kind of neuron, with an adaptive threshold (alif) or without (lif)."""
    adaptation_always_decays: bool = False
    """susnn: the adaptation decays at time steps without an update too."""
    tau_m: tuple[float, float] = (20.0, 5.0)
    """susnn: mean and standard deviation of the membrane time constants, in time steps."""
    tau_adp: tuple[float, float] = (200.0, 25.0)
    """susnn: mean and standard deviation of the adaptation time constants, in time steps."""
    backend: Literal["auto", "reference", "events", "onepass", "native", "triton"] = "auto"
    """Implementation of the recurrence."""
    skip_drive: float | None = None
    """sugru with the onepass backend: how strongly a closed gate carries the state. None: carry
    exactly."""
    max_rate: float | None = None
    """triton backend: expected maximum share of time steps at which a head has an event. Memory is
    allocated for that share, so that the host need not wait for the GPU; see SuGRU. None: counted
    in each scan."""
    recompute: bool = False
    """triton backend: project the input again in the backward pass, to save memory."""

    @property
    def layer_count(self) -> int:
        """Number of layers, however it is given."""
        return self.layers if self.widths is None else len(self.widths)

    def __post_init__(self) -> None:
        set_options = changed(self, "kind")
        for name, users in MODELS_WITH.items():
            if name in set_options and self.kind not in users:
                raise ConfigError(
                    f"model.{name} is an option of {', '.join(users)}; {self.kind} has no use for "
                    "it: leave it out"
                )
        for name, users in BLOCKS_WITH.items():
            if name in set_options and self.form not in users:
                raise ConfigError(f"model.{name} needs block {' or '.join(users)}, not {self.form}")
        for name in ("max_rate", "recompute"):
            if name in set_options and self.backend not in ("auto", "triton"):
                raise ConfigError(f"model.{name} needs the triton backend, not {self.backend}")
        if self.sequence_dropout and not self.dropout:
            raise ConfigError(
                "model.sequence_dropout has no effect with model.dropout 0: set both or none"
            )
        self._check_attention()
        if self.skip_drive is not None and self.backend != "onepass":
            raise ConfigError("model.skip_drive needs model.backend onepass")
        if self.widths is not None and ("layers" in set_options or "width" in set_options):
            raise ConfigError("model.widths replaces model.layers and model.width: leave those out")
        check_at_least(self, "model", 1, "layers", "width", "heads", "expand", "groups", "state")
        check_at_least(self, "model", 1, "products")
        check_at_least(self, "model", 1, "attention_every", "attention_heads", "window")
        check_at_least(self, "model", 1, "convolution")
        check_at_most(self, "model", MOST_LAYERS, "layers")
        check_at_most(self, "model", MOST_UNITS, "width", "heads", "expand", "groups", "state")
        if self.widths is not None and not (
            len(self.widths) <= MOST_LAYERS and all(1 <= w <= MOST_UNITS for w in self.widths)
        ):
            raise ConfigError(
                f"model.widths must be at most {MOST_LAYERS} numbers from 1 to {MOST_UNITS}"
            )
        check_at_least(self, "model", 0, "ungated_layers", "threshold", "budget")
        if self.ungated_layers >= self.layers:
            raise ConfigError(
                f"model.ungated_layers {self.ungated_layers} leaves none of {self.layers} layers "
                "gated: use fewer, or --gate.kind open"
            )
        check_share(self, "model", "dropout", "drop_path", "input_dropout")

    def _check_attention(self) -> None:
        if self.attention_heads is not None and self.attention_every is None:
            raise ConfigError("model.attention_heads needs a hybrid: set model.attention_every too")
        if self.attention_every is not None and self.attention_every > self.layers:
            raise ConfigError(
                f"model.attention_every {self.attention_every} adds no attention to {self.layers} "
                "layers: use at most as many"
            )
        if self.window is not None and not self.attends:
            raise ConfigError("model.window needs attention: a transformer or attention_every")

    @property
    def form(self) -> str:
        """The block, with ``auto`` resolved."""
        if self.block != "auto":
            return self.block
        return "feedforward" if self.kind == "transformer" else "residual"

    @property
    def projects_back(self) -> bool:
        """Whether a layer projects its expanded state back to the width. A residual block has a
        linear map after the layer, which reads the whole state unless projections are grouped."""
        return self.form != "residual" or self.groups > 1

    @property
    def attends(self) -> bool:
        """Whether the model has attention."""
        return self.kind == "transformer" or self.attention_every is not None

    def heads_of(self, units: int) -> int:
        """Number of heads of a layer with so many units."""
        if self.heads is not None:
            return self.heads
        return _heads(units, 32 if self.kind in ("transformer", "delta") else HEAD_SIZE)

    @property
    def hybrid_heads(self) -> int:
        """Number of attention heads of a hybrid model."""
        return self.attention_heads or _heads(self.width, 32)


def _heads(units: int, size: int) -> int:
    return units // size if units % size == 0 else 1


MODELS_WITH: dict[str, tuple[ModelKind, ...]] = {
    "heads": (*OURS, "delta", "transformer"),
    **dict.fromkeys(
        ("attention_every", "attention_heads"),
        tuple(kind for kind in get_args(ModelKind) if kind != "transformer"),
    ),
    **dict.fromkeys(
        ("ungated_layers", "expand", "groups", "bidirectional", "backend", "max_rate", "recompute"),
        OURS,
    ),
    "skip_drive": ("sugru",),
    **dict.fromkeys(("neuron", "adaptation_always_decays", "tau_m", "tau_adp"), ("susnn",)),
    "chrono": ("gru", "lstm"),
    "half_state": ("gru", "lstm", "rnn"),
    "state": ("s4d",),
    "products": ("delta",),
    "threshold": ("deltagru",),
    "budget": ("deltagru", "skipgru"),
}
"""Options that only some kinds of model have."""
BLOCKS_WITH: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("norm", "prenorm", "sequence_dropout", "drop_path"), ("residual", "feedforward")
    ),
    "glu": ("residual",),
    "feedforward": ("feedforward",),
    **dict.fromkeys(
        ("attention_every", "convolution", "ungated_layers"), ("residual", "feedforward")
    ),
    "widths": ("stack",),
}
"""Options that only some blocks have."""
