"""The parts of a model, built from its configuration: encoder, blocks, mixers, readout."""

from collections.abc import Callable
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from surnn.config import OURS, ModelConfig
from surnn.nn.gates import AlwaysOpen, Gate
from surnn.nn.layers import SelectiveLayer, SuGRU, SuLSTM, SuRNN, SuSNN

from .base import Block, Mixer
from .baselines import (
    Attention,
    DeltaGRU,
    DiagonalSSM,
    GatedDelta,
    LinearMap,
    MinGRU,
    SkipGRU,
    TorchRecurrent,
)
from .blocks import Convolution, FeedForwardBlock, GLUBlock, MixerBlock, PlainBlock
from .scaling import ScaledEncoder, ScaledReadout
from .selective import Selective
from .signature import Output, Tokens, Values

LAYERS: dict[str, Callable[..., SelectiveLayer]] = {
    "sugru": SuGRU, "sulstm": SuLSTM, "surnn": SuRNN, "susnn": SuSNN
}  # fmt: skip
CELL_OPTIONS = {
    "sugru": ("skip_drive",),
    "susnn": ("neuron", "adaptation_always_decays", "tau_m", "tau_adp"),
}
ANY_WIDTH: dict[str, Callable[[int, int, ModelConfig], Mixer]] = {
    "mingru": lambda features, width, _: MinGRU(features, width),
    "deltagru": lambda i, width, model: DeltaGRU(i, width, model.threshold, model.budget),
    "skipgru": lambda features, width, model: SkipGRU(features, width, model.budget),
    "linear": lambda features, width, _: LinearMap(features, width),
}
"""Baselines whose output may be as wide as any, from the width of their input."""
LayerGate = Callable[[int], Gate]
"""A new gate for the layer of this number."""


def build_encoder(model: ModelConfig, inputs: Tokens | Values, width: int) -> tuple[nn.Module, int]:
    """The module that turns inputs into features, and the number of features."""
    if isinstance(inputs, Tokens):
        embedding = nn.Embedding(inputs.vocabulary, width)
        if model.tied_embedding:  # so that the first predictions are near 0
            nn.init.normal_(embedding.weight, std=width**-0.5)
        return embedding, width
    if inputs.scaled:
        encoder, size = build_encoder(model, Values(inputs.features), width)
        return ScaledEncoder(inputs.features, encoder), size
    if model.form == "stack":
        return nn.Identity(), inputs.features
    return nn.Linear(inputs.features, width), width


def is_one_stack(model: ModelConfig) -> bool:
    """Whether the whole model is one stacked layer of surnn's."""
    return model.kind in OURS and model.form == "stack" and model.widths is None


def build_blocks(
    model: ModelConfig, widths: tuple[int, ...], steps: int, layer_gate: LayerGate
) -> list[Block]:
    """The blocks in order.

    Args:
        model: sizes and kinds.
        widths: features between blocks, those of the input first.
        steps: length of the sequences, for chrono biases.
        layer_gate: makes the gates of surnn's layers.
    """
    if is_one_stack(model):
        gates = [layer_gate(index) for index in range(model.layers)]
        layer = build_selective(model, widths[0], widths[-1], gates)
        return [PlainBlock(Selective(layer), 0.0)]
    blocks: list[Block] = []
    last = len(widths) - 2
    for index, (features, width) in enumerate(pairwise(widths)):
        mixer = build_mixer(model, features, width, steps, lambda i=index: layer_gate(i))
        if model.form == "stack":
            blocks.append(PlainBlock(mixer, model.dropout if index < last else 0.0))
        else:
            if model.convolution > 1:
                blocks.append(Convolution(width, model.convolution))
            kind = GLUBlock if model.form == "residual" else FeedForwardBlock
            drop_path = model.drop_path * index / max(last, 1)
            blocks.append(kind(mixer, model, drop_path))
            if model.attention_every is not None and (index + 1) % model.attention_every == 0:
                attention = Attention(width, model.hybrid_heads, model.window)
                blocks.append(MixerBlock(attention, model, drop_path))
    return blocks


def build_mixer(
    model: ModelConfig, features: int, width: int, steps: int, gate: Callable[[], Gate]
) -> Mixer:
    """One layer of the kind that ``model`` names; ``gate`` makes its gate, if it has one."""
    if model.kind in OURS:
        return Selective(build_selective(model, features, width, [gate()]))
    if model.kind in ("gru", "lstm", "rnn"):
        chrono = steps if model.chrono else 0
        return TorchRecurrent(model.kind, features, width, chrono, model.half_state)
    if model.kind in ANY_WIDTH:
        return ANY_WIDTH[model.kind](features, width, model)
    if features != width:
        raise ValueError(
            f"{model.kind} keeps the width of its input, {features}, but {width} is needed; use "
            "--model.block residual, whose encoder changes the width"
        )
    if model.kind == "transformer":
        return Attention(width, model.heads_of(width), model.window)
    if model.kind == "delta":
        return GatedDelta(width, model.heads_of(width), model.products)
    return DiagonalSSM(width, model.state)


def build_selective(
    model: ModelConfig, features: int, width: int, gates: list[Gate]
) -> SelectiveLayer:
    """One of surnn's layers, or a stack of them, with one of ``gates`` each."""
    if model.bidirectional and width % 2:
        raise ValueError(f"a bidirectional layer needs an even width, got {width}")
    units = width // 2 if model.bidirectional else width
    expand = model.expand
    if not model.projects_back:
        units, expand = units * expand, 1
    return LAYERS[model.kind](
        features,
        units,
        len(gates),
        batch_first=True,
        dropout=model.dropout if len(gates) > 1 else 0.0,
        bidirectional=model.bidirectional,
        heads=model.heads_of(expand * units),
        gate=gates,
        expand=expand,
        groups=model.groups,
        backend=model.backend,
        max_rate=None if isinstance(gates[0], AlwaysOpen) else model.max_rate,
        recompute=model.recompute,
        **{name: getattr(model, name) for name in CELL_OPTIONS.get(model.kind, ())},
    )


def build_readout(width: int, output: Output) -> nn.Module:
    """A linear map, or for pairs a small network over both encodings."""
    if output.scaled:
        return ScaledReadout(width, output.size)
    if not output.pairs:
        return nn.Linear(width, output.size)
    return nn.Sequential(nn.Linear(4 * width, width), nn.GELU(), nn.Linear(width, output.size))


class TiedReadout(nn.Module):
    """Scores of tokens by the embedding of the input; it has no weights of its own.

    Args:
        embedding: embedding of the input tokens.
        output: the kind and size of the predictions.
    """

    bias = None

    def __init__(self, embedding: nn.Module, output: Output) -> None:
        super().__init__()
        if not isinstance(embedding, nn.Embedding) or embedding.num_embeddings != output.size:
            raise ValueError(
                "model.tied_embedding needs a task that predicts tokens from tokens of the same "
                "vocabulary; leave it out"
            )
        self._embedding = (embedding,)  # a tuple hides it: its weight is saved with the encoder

    @property
    def weight(self) -> Tensor:
        """[tokens, width]."""
        return self._embedding[0].weight

    def forward(self, y: Tensor) -> Tensor:
        return functional.linear(y, self.weight)
