"""Blocks and encoders as operations of the engine: one function registered for each class.

A new block that the engine can run registers its operations with :func:`add_block`.
"""

from functools import singledispatch

import numpy as np
from torch import nn

from surnn.models.blocks import (
    Convolution,
    FeedForwardBlock,
    GLUBlock,
    Norm,
    PlainBlock,
    ResidualBlock,
)
from surnn.models.model import SequenceModel
from surnn.models.scaling import ScaledEncoder

from .engine_builder import EngineBuilder
from .engine_file import FLOAT32, Op
from .engine_gates import as_numpy
from .engine_layers import as_layer

GLUS = {"sigmoid": 0, "gelu": 1, "silu": 2}


@singledispatch
def add_block(block: nn.Module, build: EngineBuilder, x: int) -> int:
    """Append the operations of ``block``, which reads vector x; returns its output vector."""
    mixer = getattr(block, "mixer", None)
    inside = "" if mixer is None else f" around {type(mixer).__name__}"
    raise TypeError(f"the engine does not know the block {type(block).__name__}{inside}")


@add_block.register
def _(block: Convolution, build: EngineBuilder, x: int) -> int:
    taps = np.pad(as_numpy(block.taps), ((0, 1), (0, 0)), constant_values=1)
    out = build.file.vector(build.file.buffers[x])
    data = [taps.astype(np.float32)]
    return build.file.add(Op.CONVOLVE, x, out, numbers=[len(taps)], data=data)


@add_block.register
def _(block: PlainBlock, build: EngineBuilder, x: int) -> int:
    return build.layer(as_layer(block.mixer), x)


@add_block.register
def _(block: GLUBlock, build: EngineBuilder, x: int) -> int:
    width = build.file.buffers[x]
    y = build.linear(block.out, build.gelu(_mix(block, build, x)), selective=True)
    if block.glu != "none":
        y = build.file.add(Op.GLU, y, build.file.vector(width), numbers=[GLUS[block.glu]])
    return _residual(block, build, x, y, block.norm)


@add_block.register
def _(block: FeedForwardBlock, build: EngineBuilder, x: int) -> int:
    x = _residual(block, build, x, _mix(block, build, x), block.norm)
    y = build.norm(block.second_norm, x) if block.prenorm else x
    y = build.linear(block.narrow, build.gelu(build.linear(block.widen, y)))
    return _residual(block, build, x, y, block.second_norm)


def _mix(block: ResidualBlock, build: EngineBuilder, x: int) -> int:
    layer = as_layer(block.mixer)
    return build.layer(layer, build.norm(block.norm, x) if block.prenorm else x)


def _residual(block: ResidualBlock, build: EngineBuilder, x: int, y: int, norm: Norm) -> int:
    total = build.add(x, y)
    return total if block.prenorm else build.norm(norm, total)


# ---------------------------------------------------------------------------- encoders


@singledispatch
def add_encoder(
    encoder: nn.Module, model: SequenceModel, weights: int
) -> tuple[EngineBuilder, int]:
    """Create an EngineBuilder whose file begins with the encoder; return it and the number of the
    output vector."""
    raise TypeError(f"the engine does not know the encoder {type(encoder).__name__}")


@add_encoder.register
def _(encoder: nn.Embedding, model: SequenceModel, weights: int) -> tuple[EngineBuilder, int]:
    build = EngineBuilder(encoder.num_embeddings, takes_tokens=True, weights=weights)
    return build, build.embedding(encoder)


@add_encoder.register
def _(encoder: nn.Linear, model: SequenceModel, weights: int) -> tuple[EngineBuilder, int]:
    build = EngineBuilder(encoder.in_features, takes_tokens=False, weights=weights)
    return build, build.linear(encoder, 0, FLOAT32)


@add_encoder.register
def _(encoder: nn.Identity, model: SequenceModel, weights: int) -> tuple[EngineBuilder, int]:
    size = model.inputs.features  # type: ignore[union-attr]
    return EngineBuilder(size, takes_tokens=False, weights=weights), 0


@add_encoder.register
def _(encoder: ScaledEncoder, model: SequenceModel, weights: int) -> tuple[EngineBuilder, int]:
    build = EngineBuilder(len(encoder.scale), takes_tokens=False, weights=weights)
    data = [as_numpy(part).astype(np.float32) for part in (encoder.scale, encoder.shift)]
    x = build.file.add(Op.AFFINE, 0, build.file.vector(len(encoder.scale)), data=data)
    inner = encoder.inner
    return build, build.linear(inner, x, FLOAT32) if isinstance(inner, nn.Linear) else x
