"""Models: an encoder, layers, and a head that reads what the task wants.

Layers are *mixers*: [B, T, features] to [B, T, width], causal. They stand alone (``stack``) or each
in a residual block. All but attention stream: ``init_state``, then ``step`` by step, with the
prediction so far.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .baselines import Attention, DiagonalSSM, MinGRU, TorchRecurrent
from .config import GateConfig, ModelConfig
from .gates import GATES, Gate, SeesInput
from .layers import SelectiveLayer, SuGRU, SuLSTM, SuRNN, SuSNN
from .surrogate import Surrogate
from .tasks.base import Output, Tokens, Values

OURS: dict[str, Callable[..., SelectiveLayer]] = {
    "sugru": SuGRU, "sulstm": SuLSTM, "surnn": SuRNN, "susnn": SuSNN
}  # fmt: skip


class Selective(nn.Module):
    """One of surnn's layers as a mixer."""

    def __init__(self, features: int, model: ModelConfig, gate: Gate) -> None:
        super().__init__()
        self.layer = OURS[model.kind](
            features,
            model.width // (2 if model.bidirectional else 1),
            batch_first=True,
            bidirectional=model.bidirectional,
            heads=model.heads,
            gate=gate,
            expand=model.expand,
            groups=model.groups,
            backend=model.backend,
            max_rate=model.max_rate,
        )

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.layer(x, lengths=lengths)[0]

    def init_state(self, batch: int) -> Any:
        return self.layer.init_state(batch)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.layer.step(x, state)


class Norm(nn.Module):
    """LayerNorm over features, or BatchNorm over sequences and steps."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width) if kind == "layer" else nn.BatchNorm1d(width)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        if isinstance(self.norm, nn.LayerNorm):
            return self.norm(x)
        if lengths is None or x.dim() == 2:
            return self.norm(x.flatten(0, -2)).view_as(x)
        inside = torch.arange(x.shape[1], device=x.device) < lengths.flatten()[:, None]
        y = torch.zeros_like(x)
        y[inside] = self.norm(x[inside])  # padding is no part of the statistics
        return y


class Residual(nn.Module):
    """x + dropout(GLU(linear(dropout(GELU(mixer(norm(x))))))), or with the norm after the sum."""

    def __init__(self, mixer: nn.Module, model: ModelConfig) -> None:
        super().__init__()
        self.mixer = mixer
        self.prenorm = model.prenorm
        self.norm = Norm(model.norm, model.width)
        self.dropout = nn.Dropout(model.dropout)
        self.out = nn.Linear(model.width, 2 * model.width)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self._around(x, self.mixer(self._before(x, lengths), lengths), lengths)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = self.mixer.step(self._before(x), state)  # type: ignore[operator]
        return self._around(x, y), state

    def init_state(self, batch: int) -> Any:
        return self.mixer.init_state(batch)  # type: ignore[operator]

    def _before(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.norm(x, lengths) if self.prenorm else x

    def _around(self, x: Tensor, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        y = functional.glu(self.out(self.dropout(functional.gelu(y))), -1)
        x = x + self.dropout(y)
        return x if self.prenorm else self.norm(x, lengths)


class TransformerBlock(nn.Module):
    """Attention and a feed-forward network, each around a residual."""

    def __init__(self, mixer: nn.Module, model: ModelConfig) -> None:
        super().__init__()
        self.mixer = mixer
        self.norms = nn.ModuleList(Norm(model.norm, model.width) for _ in range(2))
        self.dropout = nn.Dropout(model.dropout)
        self.widen = nn.Linear(model.width, 4 * model.width)
        self.narrow = nn.Linear(4 * model.width, model.width)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        x = x + self.dropout(self.mixer(self.norms[0](x, lengths), lengths))
        y = self.narrow(self.dropout(functional.gelu(self.widen(self.norms[1](x, lengths)))))
        return x + self.dropout(y)


class Stacked(nn.Module):
    """A layer alone, with dropout after it unless it is the last."""

    def __init__(self, mixer: nn.Module, dropout: float) -> None:
        super().__init__()
        self.mixer = mixer
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.dropout(self.mixer(x, lengths))

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = self.mixer.step(x, state)  # type: ignore[operator]
        return self.dropout(y), state

    def init_state(self, batch: int) -> Any:
        return self.mixer.init_state(batch)  # type: ignore[operator]


class StreamState(NamedTuple):
    """What a model remembers between steps."""

    layers: tuple[Any, ...]
    total: Tensor
    """[B, width]: sum of outputs so far, for mean pooling."""
    steps: int


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
        self.pool, self.wanted = model.pool, wanted
        features = model.width
        self.encoder: nn.Module = nn.Identity()
        if isinstance(given, Tokens):
            self.encoder = nn.Embedding(given.vocabulary, model.width)
        elif model.block == "residual":
            self.encoder = nn.Linear(given.features, model.width)
        else:
            features = given.features
        blocks: list[nn.Module] = []
        for layer in range(model.layers):
            mixer = make_mixer(model, gate, model.width if layer else features, steps)
            if model.kind == "transformer":
                blocks.append(TransformerBlock(mixer, model))
            elif model.block == "residual":
                blocks.append(Residual(mixer, model))
            else:
                blocks.append(Stacked(mixer, model.dropout if layer + 1 < model.layers else 0.0))
        self.blocks = nn.ModuleList(blocks)
        self.norm = (
            Norm(model.norm, model.width) if model.block == "residual" and model.prenorm else None
        )
        self.head = make_head(model.width, wanted)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """[B, size] or [B, T, size]; pairs [B, 2, T, ...] give [B, size]."""
        if self.wanted.pairs:
            both = self.encode(x.flatten(0, 1), None if lengths is None else lengths.flatten())
            first, second = self._pooled(both, lengths).unflatten(0, (-1, 2)).unbind(1)
            return self.head(torch.cat((first, second, first - second, first * second), -1))
        y = self.encode(x, lengths)
        return self.head(y if self.wanted.per == "step" else self._pooled(y, lengths))

    def encode(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Outputs of the last block [B, T, width]."""
        x = self.encoder(x)
        for block in self.blocks:
            x = block(x, lengths)
        return x if self.norm is None else self.norm(x, lengths)

    def _pooled(self, y: Tensor, lengths: Tensor | None) -> Tensor:
        if lengths is None:
            return y[:, -1] if self.pool == "last" else y.mean(1)
        lengths = lengths.flatten()
        if self.pool == "last":
            return y[torch.arange(len(y), device=y.device), lengths - 1]
        inside = torch.arange(y.shape[1], device=y.device) < lengths[:, None]
        return (y * inside.unsqueeze(-1)).sum(1) / lengths[:, None].to(y.dtype)

    # ------------------------------------------------------------ streams

    def init_state(self, batch: int = 1) -> StreamState:
        """Before the first step."""
        head = self.head if isinstance(self.head, nn.Linear) else self.head[0]  # type: ignore[index]
        total = head.weight.new_zeros(batch, head.in_features // (4 if self.wanted.pairs else 1))  # type: ignore[operator, union-attr]
        layers = []
        for block in self.blocks:
            if not hasattr(block.mixer, "init_state"):
                raise TypeError(
                    f"{type(block.mixer).__name__} needs the whole sequence and cannot stream"
                )
            layers.append(block.init_state(batch))  # type: ignore[operator]
        return StreamState(tuple(layers), total, 0)

    def step(self, x: Tensor, state: StreamState) -> tuple[Tensor, StreamState]:
        """One token [B] or frame [B, features]: the prediction after it, [B, size]."""
        x = self.encoder(x)
        layers = []
        for block, remembered in zip(self.blocks, state.layers, strict=True):
            x, new = block.step(x, remembered)  # type: ignore[operator]
            layers.append(new)
        y = x if self.norm is None else self.norm(x)
        total, steps = state.total + y, state.steps + 1
        averaged = self.pool == "mean" and self.wanted.per == "sequence"
        return self.head(total / steps if averaged else y), StreamState(tuple(layers), total, steps)

    # ------------------------------------------------------------ gates

    def selective_layers(self) -> list[SelectiveLayer]:
        """surnn's layers, in order; none in a baseline."""
        return [m for m in self.modules() if isinstance(m, SelectiveLayer)]

    def gate_parameters(self) -> list[nn.Parameter]:
        """Trained by a rule of their own."""
        return [p for layer in self.selective_layers() for p in layer.gates.parameters()]


def make_mixer(model: ModelConfig, gate: GateConfig, features: int, steps: int) -> nn.Module:
    """The layer that ``model.kind`` names."""
    if model.kind in OURS:
        return Selective(features, model, make_gate(gate, steps))
    if model.bidirectional:
        raise ValueError(f"bidirectional is of surnn's own layers; {model.kind} is causal")
    if model.kind in ("gru", "lstm", "rnn"):
        return TorchRecurrent(model.kind, features, model.width, steps if model.chrono else 0)
    if model.kind == "mingru":
        return MinGRU(features, model.width)
    if model.block == "stack" and features != model.width:
        raise ValueError(
            f"{model.kind} keeps the width of its input, {features}, and {model.width} is wanted; "
            "use block='residual', whose encoder widens it"
        )
    if model.kind == "transformer":
        return Attention(model.width, model.heads)
    return DiagonalSSM(model.width, model.state)


def make_gate(config: GateConfig, steps: int) -> Gate:
    """The gate that ``config`` describes, for sequences of ``steps``."""
    kind = GATES[config.kind]
    if config.kind in ("open", "every_n", "threshold"):
        plain = GateConfig(kind=config.kind)
        if replace(config, horizon=None) != plain:
            raise ValueError(
                f"the gate {config.kind!r} is a fixed schedule and takes no options; leave out "
                "--gate.rate and the like"
            )
        return kind()
    if config.kind == "fixed_random":
        return kind(rate=config.rate)
    options: dict[str, Any] = {"rate": config.rate, "granularity": config.granularity}
    options["surrogate"] = Surrogate(config.surrogate, config.slope)
    if config.mode != "default":
        options["mode"] = config.mode
    if not issubclass(kind, SeesInput) or config.kind == "ssm":
        options["horizon"] = config.horizon or steps
    for name, silent in (("target_rate", None), ("always_on", 0.0), ("frozen", False)):
        if getattr(config, name) != silent:
            options[name] = getattr(config, name)
    return kind(**options)


def make_head(width: int, wanted: Output) -> nn.Module:
    """A linear map, or for pairs a small network over both encodings."""
    if not wanted.pairs:
        return nn.Linear(width, wanted.size)
    return nn.Sequential(nn.Linear(4 * width, width), nn.GELU(), nn.Linear(width, wanted.size))
