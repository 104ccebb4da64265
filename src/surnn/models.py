"""Models: an encoder, blocks of layers, and a head that reads what the task wants.

All but bidirectional layers stream: ``init_state``, then ``step`` by step, with the prediction so
far; or, of models that predict at each step, in parts: ``y, state = model(x, state=state)``.
Under autocast, what goes from block to block is as the encoder gives it: bfloat16 for values,
float32 for tokens; gates, states (unless ``half_state``) and norms are float32.
"""

import inspect
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .baselines import Attention, DiagonalSSM, LinearMap, MinGRU, TorchRecurrent
from .blocks import Alone, Convolution, FeedForward, Norm, Residual, Stacked
from .config import OURS, GateConfig, ModelConfig
from .gates import GATES, AlwaysOpen, Gate
from .layers import SelectiveLayer, SuGRU, SuLSTM, SuRNN, SuSNN
from .scan.contract import step_mask
from .surrogate import Surrogate
from .tasks.base import Output, Tokens, Values

LAYERS: dict[str, Callable[..., SelectiveLayer]] = {
    "sugru": SuGRU, "sulstm": SuLSTM, "surnn": SuRNN, "susnn": SuSNN
}  # fmt: skip
CELL_OPTIONS = {
    "sugru": ("skip_drive",),
    "susnn": ("neuron", "adaptation_goes_on", "tau_m", "tau_adp"),
}


OPEN = GateConfig("open")


class Selective(nn.Module):
    """One of surnn's layers, or a stack of them, as a mixer.

    Args:
        features: of the input.
        width: of the output.
        layers: how many.
        model: all else.
        gate: of each layer, a copy.
    """

    def __init__(
        self, features: int, width: int, layers: int, model: ModelConfig, gate: Gate
    ) -> None:
        super().__init__()
        if model.bidirectional and width % 2:
            raise ValueError(f"a bidirectional layer of {width} units has no half; use an even one")
        units = width // 2 if model.bidirectional else width
        expand = model.expand
        if not model.projects_back:
            units, expand = units * expand, 1
        self.layer = LAYERS[model.kind](
            features,
            units,
            layers,
            batch_first=True,
            dropout=model.dropout if layers > 1 else 0.0,
            bidirectional=model.bidirectional,
            heads=model.heads_of(expand * units),
            gate=gate,
            expand=expand,
            groups=model.groups,
            backend=model.backend,
            max_rate=None if isinstance(gate, AlwaysOpen) else model.max_rate,
            recompute=model.recompute,
            **{name: getattr(model, name) for name in CELL_OPTIONS.get(model.kind, ())},
        )

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.layer(x, lengths=lengths)[0]

    def init_state(self, batch: int) -> Any:
        """Before the first step."""
        return self.layer.init_state(batch)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step [B, features]."""
        return self.layer.step(x, state)

    def run(self, x: Tensor, state: Any, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """Some steps [B, T, features]; of each sequence its ``lengths``."""
        return self.layer(x, state, lengths=lengths)


class StreamState(NamedTuple):
    """What a model remembers between steps."""

    layers: tuple[Any, ...]
    total: Tensor
    """[B, width]: sum of outputs so far, where predictions are means; else zeros."""
    steps: int
    """How many these are."""


class SequenceModel(nn.Module):
    """Encoder, blocks, head.

    Args:
        model: sizes and kind.
        gate: of surnn's layers.
        given: what goes in.
        wanted: what must come out.
        steps: length of the sequences, for clocks and chrono biases.
    """

    def __init__(
        self,
        model: ModelConfig,
        gate: GateConfig,
        given: Tokens | Values,
        wanted: Output,
        steps: int,
    ) -> None:
        super().__init__()
        if model.bidirectional and model.pool == "last" and wanted.per == "sequence":
            raise ValueError(
                "at the last step the units that read backwards have seen one step only; use "
                "--model.pool mean with bidirectional layers"
            )
        self.pool, self.given, self.wanted = model.pool, given, wanted
        widths = model.widths or (model.width,) * model.layers
        self.width = widths[-1]
        self.encoder, features = make_encoder(model, given, widths[0])
        self.input_dropout = model.input_dropout
        self.blocks = nn.ModuleList(make_blocks(model, gate, (features, *widths), steps))
        self.norm = None
        if model.form != "stack" and model.prenorm:
            self.norm = Norm(model.norm, self.width)
        self.head = make_head(self.width, wanted)
        if model.tied_embedding:
            self.head = Tied(self.encoder, wanted)

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, state: StreamState | None = None
    ) -> Any:
        """[B, size] or [B, T, size]; pairs [B, 2, T, ...] give [B, size].

        From a ``state``: predictions [B, T, size], and the state after x, or after ``lengths``.
        """
        if state is not None:
            y, state = self._run(x, lengths, state)
            return self.head(y.transpose(0, 1)), state
        if self.wanted.pairs:
            both = self.encode(x.flatten(0, 1), None if lengths is None else lengths.flatten())
            first, second = self._pooled(both, lengths).unflatten(0, (-1, 2)).unbind(1)
            return self.head(torch.cat((first, second, first - second, first * second), -1))
        y = self.encode(x, lengths)
        if self.wanted.per == "step":
            return self.head(y.transpose(0, 1))
        return self.head(self._pooled(y, lengths))

    def encode(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Outputs of the last block, time first: [T, B, width]."""
        x = self._read(x)
        for block in self.blocks:
            x = block(x, lengths)
        return x if self.norm is None else self.norm(x, lengths)

    def _read(self, x: Tensor) -> Tensor:
        """Features of the input, time first; in training without some of the steps."""
        x = self.encoder(x.transpose(0, 1))
        if not self.training or not self.input_dropout:
            return x
        return x * functional.dropout(x.new_ones(*x.shape[:2], 1), self.input_dropout)

    def _run(
        self, x: Tensor, lengths: Tensor | None, state: StreamState
    ) -> tuple[Tensor, StreamState]:
        if self.wanted.per != "step":
            raise TypeError(
                "a sequence in parts has predictions at each step only: this model makes one of a "
                "whole sequence; stream it by step"
            )
        x = self._read(x)
        layers = []
        for block, remembered in zip(self.blocks, state.layers, strict=True):
            x, new = block(x, lengths, remembered)
            layers.append(new)
        y = x if self.norm is None else self.norm(x, lengths)
        return y, state._replace(layers=tuple(layers))

    def _pooled(self, y: Tensor, lengths: Tensor | None) -> Tensor:
        if lengths is None:
            return y[-1] if self.pool == "last" else y.mean(0)
        ends = lengths.flatten()
        if self.pool == "last":
            return y[ends - 1, torch.arange(y.shape[1], device=y.device)]
        inside = step_mask(len(y), ends).unsqueeze(-1)
        return (y * inside).sum(0) / ends[:, None].to(y.dtype)

    # ------------------------------------------------------------ streams

    def init_state(self, batch: int = 1) -> StreamState:
        """Before the first step."""
        if self.wanted.pairs:
            raise TypeError("a pair is judged when both documents are there: it cannot stream")
        layers = tuple(block.init_state(batch) for block in self.blocks)  # type: ignore[operator]
        total = next(self.parameters()).new_zeros(batch, self.width)
        return StreamState(layers, total, 0)

    def step(self, x: Tensor, state: StreamState) -> tuple[Tensor, StreamState]:
        """One token [B] or frame [B, features]: the prediction after it, [B, size]."""
        x = self.encoder(x)
        layers = []
        for block, remembered in zip(self.blocks, state.layers, strict=True):
            x, new = block.step(x, remembered)  # type: ignore[operator]
            layers.append(new)
        y = x if self.norm is None else self.norm(x)
        if self.pool == "last" or self.wanted.per == "step":
            return self.head(y), state._replace(layers=tuple(layers))
        total, steps = state.total + y, state.steps + 1
        return self.head(total / steps), StreamState(tuple(layers), total, steps)

    # ------------------------------------------------------------ gates

    def selective_layers(self) -> list[SelectiveLayer]:
        """surnn's layers, in order (a plain stack is one of several); none in a baseline."""
        return [m for m in self.modules() if isinstance(m, SelectiveLayer)]

    def gate_parameters(self) -> list[nn.Parameter]:
        """Trained by a rule of their own."""
        return [p for layer in self.selective_layers() for p in layer.gates.parameters()]


# ---------------------------------------------------------------------------- parts


def make_encoder(model: ModelConfig, given: Tokens | Values, width: int) -> tuple[nn.Module, int]:
    """What turns inputs into features, and how many these are."""
    if isinstance(given, Tokens):
        embedding = nn.Embedding(given.vocabulary, width)
        if model.tied_embedding:  # predictions begin near 0
            nn.init.normal_(embedding.weight, std=width**-0.5)
        return embedding, width
    if model.form == "stack":
        return nn.Identity(), given.features
    return nn.Linear(given.features, width), width


def make_blocks(
    model: ModelConfig, gate: GateConfig, widths: tuple[int, ...], steps: int
) -> list[nn.Module]:
    """Blocks in order; ``widths`` are those between them, the input's first."""
    reads_the_input = gate.source == "input" or (gate.kind, gate.source) == ("threshold", None)
    whole = model.form == "stack" and model.widths is None
    if model.kind in OURS and reads_the_input and not whole:
        raise ValueError(
            f"the gate {gate.kind!r} with source 'input' sees what goes into a plain stack: use "
            "--model.block stack with one width, or --gate.source layer"
        )
    if model.kind in OURS and whole:
        mixer = Selective(widths[0], widths[-1], model.layers, model, make_gate(gate, steps))
        return [Stacked(mixer, 0.0)]
    blocks: list[nn.Module] = []
    last = len(widths) - 2
    for index, (features, width) in enumerate(pairwise(widths)):
        opens = index < model.open_layers
        mixer = make_mixer(model, OPEN if opens else gate, features, width, steps)
        if model.form == "stack":
            blocks.append(Stacked(mixer, model.dropout if index < last else 0.0))
        else:
            if model.convolution > 1:
                blocks.append(Convolution(width, model.convolution))
            kind = Residual if model.form == "residual" else FeedForward
            skip = model.drop_path * index / max(last, 1)
            blocks.append(kind(mixer, model, skip))
            if model.attention_every is not None and (index + 1) % model.attention_every == 0:
                attention = Attention(width, model.heads_beside, model.window)
                blocks.append(Alone(attention, model, skip))
    return blocks


def make_mixer(
    model: ModelConfig, gate: GateConfig, features: int, width: int, steps: int
) -> nn.Module:
    """One layer of the kind that ``model`` names."""
    if model.kind in OURS:
        return Selective(features, width, 1, model, make_gate(gate, steps))
    if model.kind in ("gru", "lstm", "rnn"):
        chrono = steps if model.chrono else 0
        return TorchRecurrent(model.kind, features, width, chrono, model.half_state)
    if model.kind == "mingru":
        return MinGRU(features, width)
    if model.kind == "linear":
        return LinearMap(features, width)
    if features != width:
        raise ValueError(
            f"{model.kind} keeps the width of its input, {features}, and {width} is wanted; use "
            "--model.block residual, whose encoder widens it"
        )
    if model.kind == "transformer":
        return Attention(width, model.heads_of(width), model.window)
    return DiagonalSSM(width, model.state)


def make_gate(config: GateConfig, steps: int) -> Gate:
    """The gate that ``config`` describes, for sequences of ``steps``."""
    kind = GATES[config.kind]
    options, known = config.given(), gate_options(kind)
    if unknown := [name for name in options if name not in (*known, "slope")]:
        raise ValueError(
            f"the gate {config.kind!r} has no option {', '.join(unknown)}; it has "
            f"{', '.join(sorted(known))}"
        )
    slope = options.pop("slope", config.slope)
    if (config.surrogate, slope) != (GateConfig.surrogate, GateConfig.slope):
        options["surrogate"] = Surrogate(config.surrogate, slope)
    if "horizon" in known:
        options.setdefault("horizon", steps)
    try:
        return kind(**options)
    except TypeError as error:  # what a fixed schedule takes no part of
        raise ValueError(str(error)) from error


def gate_options(kind: type[Gate]) -> set[str]:
    """Names of the options that a gate takes, its bases' included."""
    names: set[str] = set()
    for base in kind.__mro__:
        if "__init__" in vars(base) and issubclass(base, Gate):
            parameters = inspect.signature(base.__init__).parameters.values()
            names |= {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    return names - {"self"}


class Tied(nn.Module):
    """Scores of tokens by the embedding that they are read with; it has no weights of its own.

    Args:
        embedding: of the tokens.
        wanted: what must come out.
    """

    bias = None

    def __init__(self, embedding: nn.Module, wanted: Output) -> None:
        super().__init__()
        if not isinstance(embedding, nn.Embedding) or embedding.num_embeddings != wanted.size:
            raise ValueError(
                "model.tied_embedding is for tasks that predict tokens from tokens of the same "
                "vocabulary; leave it out"
            )
        self._embedding = (embedding,)  # in a tuple: it is the encoder's module, not also mine

    @property
    def weight(self) -> Tensor:
        """[tokens, width]."""
        return self._embedding[0].weight

    def forward(self, y: Tensor) -> Tensor:
        return functional.linear(y, self.weight)


def make_head(width: int, wanted: Output) -> nn.Module:
    """A linear map, or for pairs a small network over both encodings."""
    if not wanted.pairs:
        return nn.Linear(width, wanted.size)
    return nn.Sequential(nn.Linear(4 * width, width), nn.GELU(), nn.Linear(width, wanted.size))
