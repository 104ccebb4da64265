"""Models: an encoder, blocks of layers, and a readout that makes the task's predictions.

All models but those with bidirectional layers stream: ``init_state``, then ``step`` for each time
step, with the prediction so far. Models that predict at each time step also stream in parts:
``y, state = model(x, state=state)``.

Under autocast, blocks pass on the dtype of the encoder's output: bfloat16 for values, float32 for
tokens. Gates, states (unless ``half_state``) and norms are float32.
"""

from dataclasses import asdict, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from surnn.config import (
    OURS,
    AlwaysOpenConfig,
    GateConfig,
    HorizonOptions,
    ModelConfig,
)
from surnn.errors import ConfigError
from surnn.nn.gates import GATES, Gate
from surnn.nn.layers import SelectiveLayer
from surnn.nn.surrogate import Surrogate
from surnn.scan.contract import step_mask

from .base import select_state
from .blocks import Norm
from .build import TiedReadout, build_blocks, build_encoder, build_readout, is_one_stack
from .signature import Output, Tokens, Values

OPEN = AlwaysOpenConfig()


class StreamState(NamedTuple):
    """The state of a model between two time steps of a stream."""

    layers: tuple[Any, ...]
    """The state of each block."""
    total: Tensor
    """[B, width]: sum of the outputs so far if predictions are means, else zeros."""
    steps: int
    """Number of outputs in ``total``."""


@select_state.register
def _(state: StreamState, rows: Tensor) -> StreamState:
    layers = tuple(select_state(layer, rows) for layer in state.layers)
    return state._replace(layers=layers, total=state.total[rows])


class SequenceModel(nn.Module):
    """Encoder, blocks, readout.

    Args:
        model: sizes and kind.
        gate: the gates of surnn's layers.
        inputs: the kind and size of the input.
        output: the kind and size of the predictions.
        steps: length of the sequences, for clocks and chrono biases.

    Example:
        >>> from surnn.config import RhythmConfig
        >>> from surnn.models import Output, Tokens
        >>> shape = ModelConfig(width=32), RhythmConfig(rate=0.2)
        >>> model = SequenceModel(*shape, Tokens(10), Output(5, "sequence"), steps=50)
        >>> model(torch.randint(10, (4, 50))).shape
        torch.Size([4, 5])
    """

    def __init__(
        self,
        model: ModelConfig,
        gate: GateConfig,
        inputs: Tokens | Values,
        output: Output,
        steps: int,
    ) -> None:
        super().__init__()
        if model.bidirectional and model.pool == "last" and output.per == "sequence":
            raise ValueError(
                "at the last step the units that read backwards have seen one step only; use "
                "--model.pool mean with bidirectional layers"
            )
        _check_gate_source(model, gate)
        self.pool, self.inputs, self.output = model.pool, inputs, output
        self.model_config, self.gate_config, self.steps = model, gate, steps
        widths = model.widths or (model.width,) * model.layers
        self.width = widths[-1]
        self.encoder, features = build_encoder(model, inputs, widths[0])
        self.input_dropout = model.input_dropout

        def layer_gate(layer: int) -> Gate:
            if layer < model.ungated_layers:
                return make_gate(OPEN, steps)
            return make_gate(gate_of_layer(gate, layer - model.ungated_layers), steps)

        self.blocks = nn.ModuleList(build_blocks(model, (features, *widths), steps, layer_gate))
        self.norm = None
        if model.form != "stack" and model.prenorm:
            self.norm = Norm(model.norm, self.width)
        # The readout. Its attribute is "head" because saved weights have this key.
        self.head = build_readout(self.width, output)
        if model.tied_embedding:
            self.head = TiedReadout(self.encoder, output)

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        state: StreamState | None = None,
        reset: Tensor | None = None,
    ) -> Any:
        """[B, size] or [B, T, size]; pairs [B, 2, T, ...] give [B, size].

        From a ``state``: predictions [B, T, size], and the state after x, or after ``lengths``.
        ``reset`` [B, T] bool, for predictions at each step: where it is True, a sequence
        restarts before the time step, in all blocks. Dropout per sequence and batch norms span
        parts.
        """
        starts = self._check_reset(reset)
        if state is not None:
            y, state = self._run(x, lengths, state, starts)
            return self.head(y.transpose(0, 1)), state
        if self.output.pairs:
            both = self.encode(x.flatten(0, 1), None if lengths is None else lengths.flatten())
            first, second = self._pool(both, lengths).unflatten(0, (-1, 2)).unbind(1)
            return self.head(torch.cat((first, second, first - second, first * second), -1))
        y = self.encode(x, lengths, starts)
        if self.output.per == "step":
            return self.head(y.transpose(0, 1))
        return self.head(self._pool(y, lengths))

    def _check_reset(self, reset: Tensor | None) -> Tensor | None:
        """The resets with time first, [T, B]; raises if some block cannot restart."""
        if reset is None:
            return None
        if self.output.per != "step":
            raise ValueError("a model that predicts once for a sequence takes no resets inside it")
        for block in self.blocks:
            block.check_resets()  # type: ignore[operator]
        return reset.t()

    def encode(
        self, x: Tensor, lengths: Tensor | None = None, reset: Tensor | None = None
    ) -> Tensor:
        """Outputs of the last block, time first: [T, B, width]; ``reset`` is [T, B]."""
        x = self._read(x)
        for block in self.blocks:
            x = block(x, lengths) if reset is None else block(x, lengths, reset=reset)
        return x if self.norm is None else self.norm(x, lengths)

    @property
    def predicts_mean(self) -> bool:
        """Whether predictions are read from the mean of the outputs so far."""
        return self.pool == "mean" and self.output.per == "sequence"

    def _read(self, x: Tensor) -> Tensor:
        """Features of the input, time first."""
        return self.drop_inputs(self.encoder(x.transpose(0, 1)))

    def drop_inputs(self, x: Tensor) -> Tensor:
        """Features [T, B, ...]; training drops whole time steps."""
        if not self.training or not self.input_dropout:
            return x
        return x * functional.dropout(x.new_ones(*x.shape[:2], 1), self.input_dropout)

    def _run(
        self, x: Tensor, lengths: Tensor | None, state: StreamState, reset: Tensor | None = None
    ) -> tuple[Tensor, StreamState]:
        if self.output.per != "step":
            raise TypeError(
                "only models that predict at each step read a sequence in parts; this one predicts "
                "once for a whole sequence: stream it by step"
            )
        x = self._read(x)
        layers = []
        for block, layer_state in zip(self.blocks, state.layers, strict=True):
            resets = {} if reset is None else {"reset": reset}
            x, new = block(x, lengths, layer_state, **resets)
            layers.append(new)
        y = x if self.norm is None else self.norm(x, lengths)
        return y, state._replace(layers=tuple(layers))

    def _pool(self, y: Tensor, lengths: Tensor | None) -> Tensor:
        if lengths is None:
            return y[-1] if self.pool == "last" else y.mean(0)
        ends = lengths.flatten()
        if self.pool == "last":
            return y[ends - 1, torch.arange(y.shape[1], device=y.device)]
        inside = step_mask(len(y), ends).unsqueeze(-1)
        return (y * inside).sum(0) / ends[:, None].to(y.dtype)

    # ------------------------------------------------------------ streams

    def init_state(self, batch: int = 1) -> StreamState:
        """The state of ``batch`` streams before their first time step."""
        self.check_streamable()
        layers = tuple(block.init_state(batch) for block in self.blocks)  # type: ignore[operator]
        total = next(self.parameters()).new_zeros(batch, self.width)
        return StreamState(layers, total, 0)

    def check_streamable(self) -> None:
        """Raise TypeError if predictions need more than one sequence."""
        if self.output.pairs:
            raise TypeError("a prediction about a pair needs both documents: it cannot stream")

    def step(self, x: Tensor, state: StreamState) -> tuple[Tensor, StreamState]:
        """One token [B] or frame [B, features]: the prediction after it, [B, size]."""
        x = self.encoder(x)
        layers = []
        for block, layer_state in zip(self.blocks, state.layers, strict=True):
            x, new = block.step(x, layer_state)  # type: ignore[operator]
            layers.append(new)
        y = x if self.norm is None else self.norm(x)
        if not self.predicts_mean:
            return self.head(y), state._replace(layers=tuple(layers))
        total, steps = state.total + y, state.steps + 1
        return self.head(total / steps), StreamState(tuple(layers), total, steps)

    # ------------------------------------------------------------ gates

    def selective_layers(self) -> list[SelectiveLayer]:
        """surnn's layers in order; a plain stack is one layer with several levels."""
        return [m for m in self.modules() if isinstance(m, SelectiveLayer)]

    def gate_parameters(self) -> list[nn.Parameter]:
        """Parameters of the gates, which have their own learning rate."""
        return [p for layer in self.selective_layers() for p in layer.gates.parameters()]

    @torch.no_grad()
    def calibrate(self, x: Tensor, lengths: Tensor | None = None) -> None:
        """Set biases of gates that see the input so that they open at their rate on ``x``.

        Layers are calibrated from the first to the last, each on the outputs of those before it.
        """

        def before(layer: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
            layer.calibrate(*arguments, **options)  # type: ignore[operator]

        layers = self.selective_layers()
        hooks = [layer.register_forward_pre_hook(before, with_kwargs=True) for layer in layers]
        training = self.training
        try:
            self.eval()(x, lengths)
        finally:
            self.train(training)
            for hook in hooks:
                hook.remove()


def _check_gate_source(model: ModelConfig, gate: GateConfig) -> None:
    reads_the_input = getattr(gate, "source", None) == "input"
    if model.kind in OURS and reads_the_input and not is_one_stack(model):
        raise ValueError(
            f"the gate {gate.kind!r} with source 'input' reads the input of a plain stack: use "
            "--model.block stack with one width, or --gate.source layer"
        )


# ---------------------------------------------------------------------------- gates


def gate_of_layer(config: GateConfig, layer: int) -> GateConfig:
    """The options of the gate in one of the gated layers, counted from 0."""
    targets = getattr(config, "target_rate", None)
    return replace(config, target_rate=targets[layer]) if isinstance(targets, tuple) else config  # type: ignore[call-arg]


def make_gate(config: GateConfig, steps: int) -> Gate:
    """The gate that ``config`` describes, for sequences of ``steps`` time steps."""
    options = asdict(config)
    kind = options.pop("kind")
    if isinstance(config, HorizonOptions) and config.horizon is None:
        options["horizon"] = steps
    if "surrogate" in options:
        options["surrogate"] = Surrogate(options["surrogate"], options.pop("slope"))
    try:
        return GATES[kind](**{name: v for name, v in options.items() if v is not None})
    except ValueError as error:
        raise ConfigError(f"the gate {kind!r}: {error}") from error
