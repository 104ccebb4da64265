"""The operations of a user's module as operations of the engine: one function for each class."""

from functools import singledispatch

import numpy as np
from torch import Tensor, nn

from surnn.models.selective import Selective
from surnn.models.signature import Tokens

from .engine_blocks import GLUS
from .engine_builder import EngineBuilder
from .engine_file import FLOAT32, Op, float_bits, linear
from .engine_gates import as_numpy
from .modules.program import (
    Add,
    Affine,
    CausalConvolution,
    Multiply,
    Part,
    RunningMean,
    StreamProgram,
)
from .modules.signals import NotExportable

SIMPLE: dict[type[nn.Module], int] = {
    nn.ReLU: 0, nn.Sigmoid: 1, nn.Tanh: 2, nn.SiLU: 3, nn.Hardsigmoid: 9, nn.Hardswish: 10,
    nn.Mish: 11, nn.Softsign: 12, nn.LogSigmoid: 13, nn.Softmax: 14, nn.LogSoftmax: 15,
}  # fmt: skip
"""Activations without parameters, by their number in the format."""
SELU = 1.6732632423543772, 1.0507009873554805


def program_bytes(program: StreamProgram, weights: int) -> bytes:
    """The engine's file of a user's module.

    Linear maps that read the input or write the output keep float32 weights.
    """
    build, vectors = _builder(program, weights), [0]
    steps = zip(program.operations, program.sources, program.paths, strict=True)
    for number, (operation, sources, path) in enumerate(steps, 1):
        inputs = [vectors[source] for source in sources]
        at_edge = 0 in sources or number == program.output
        try:
            if isinstance(operation, nn.Linear):
                kind = FLOAT32 if at_edge else None
                changes_rarely = _changes_rarely(program, sources[0])
                vectors.append(build.linear(operation, inputs[0], kind, changes_rarely))
            else:
                vectors.append(add_operation(operation, build, *inputs))
        except (TypeError, ValueError) as error:
            raise NotExportable(f"{path}: {error}") from error
    return build.file.to_bytes(vectors[program.output])


def _builder(program: StreamProgram, weights: int) -> EngineBuilder:
    if isinstance(program.inputs, Tokens):
        return EngineBuilder(program.inputs.vocabulary, takes_tokens=True, weights=weights)
    return EngineBuilder(program.inputs.features, takes_tokens=False, weights=weights)


def _changes_rarely(program: StreamProgram, value: int) -> bool:
    """Whether a value is the output of one of surnn's layers, or an activation of it."""
    while value:
        operation, sources = program.operations[value - 1], program.sources[value - 1]
        if isinstance(operation, Selective):
            return True
        if type(operation) not in SIMPLE and not isinstance(operation, nn.GELU):
            return False
        value = sources[0]
    return False


@singledispatch
def add_operation(operation: nn.Module, build: EngineBuilder, *inputs: int) -> int:
    """Append an operation that reads vectors ``inputs``; returns its output vector."""
    if type(operation) in SIMPLE:
        return _activate(build, inputs[0], SIMPLE[type(operation)])
    raise NotExportable(
        f"the engine has no {type(operation).__name__}; ONNX and pt2 files can hold it: "
        "surnn.export.to_onnx, surnn.export.to_pt2"
    )


def _activate(build: EngineBuilder, x: int, function: int, a: float = 0.0, b: float = 0.0) -> int:
    numbers = [function, float_bits(a), float_bits(b)]
    return build.file.add(Op.ACTIVATE, x, build.file.vector(build.file.buffers[x]), numbers=numbers)


# ---------------------------------------------------------------------------- activations


@add_operation.register
def _(operation: nn.GELU, build: EngineBuilder, x: int) -> int:
    return build.gelu(x) if operation.approximate == "none" else _activate(build, x, 4)


@add_operation.register
def _(operation: nn.ELU, build: EngineBuilder, x: int) -> int:
    return _activate(build, x, 5, operation.alpha, 1.0)


@add_operation.register
def _(operation: nn.SELU, build: EngineBuilder, x: int) -> int:
    return _activate(build, x, 5, *SELU)


@add_operation.register
def _(operation: nn.LeakyReLU, build: EngineBuilder, x: int) -> int:
    return _activate(build, x, 6, operation.negative_slope)


@add_operation.register
def _(operation: nn.Softplus, build: EngineBuilder, x: int) -> int:
    return _activate(build, x, 7, float(operation.beta), float(operation.threshold))


@add_operation.register
def _(operation: nn.Hardtanh, build: EngineBuilder, x: int) -> int:  # ReLU6 too
    return _activate(build, x, 8, operation.min_val, operation.max_val)


@add_operation.register
def _(operation: nn.PReLU, build: EngineBuilder, x: int) -> int:
    """w x + (1 - w) max(x, 0)."""
    weight, zero = operation.weight.detach(), operation.weight.new_zeros(())
    line = _affine(build, x, weight, zero)
    return build.add(line, _affine(build, _activate(build, x, 0), 1 - weight, zero))


@add_operation.register
def _(operation: nn.GLU, build: EngineBuilder, x: int) -> int:
    out = build.file.vector(build.file.buffers[x] // 2)
    return build.file.add(Op.GLU, x, out, numbers=[GLUS["sigmoid"]])


# ---------------------------------------------------------------------------- features


@add_operation.register
def _(operation: nn.Embedding, build: EngineBuilder, x: int) -> int:
    return build.embedding(operation)


@add_operation.register(nn.LayerNorm)
@add_operation.register(nn.RMSNorm)
@add_operation.register(nn.BatchNorm1d)
def _(operation: nn.Module, build: EngineBuilder, x: int) -> int:
    return build.norm(operation, x)


@add_operation.register
def _(operation: Affine, build: EngineBuilder, x: int) -> int:
    return _affine(build, x, operation.scale, operation.shift)


def _affine(build: EngineBuilder, x: int, scale: Tensor, shift: Tensor) -> int:
    size = build.file.buffers[x]
    data: list[np.ndarray | None] = [
        np.broadcast_to(as_numpy(part).astype(np.float32), size) for part in (scale, shift)
    ]
    return build.file.add(Op.AFFINE, x, build.file.vector(size), data=data)


@add_operation.register
def _(operation: Part, build: EngineBuilder, x: int) -> int:
    out = build.file.vector(operation.end - operation.first)
    return build.file.add(Op.PART, x, out, numbers=[operation.first])


@add_operation.register
def _(operation: Add, build: EngineBuilder, x: int, y: int) -> int:
    return build.add(*_same_size(build, x, y))


@add_operation.register
def _(operation: Multiply, build: EngineBuilder, x: int, y: int) -> int:
    x, y = _same_size(build, x, y)
    return build.file.add(Op.MULTIPLY, x, build.file.vector(build.file.buffers[x]), y)


def _same_size(build: EngineBuilder, *vectors: int) -> list[int]:
    """The vectors, a single number repeated to the size of the other."""
    size = max(build.file.buffers[v] for v in vectors)
    column = np.ones((size, 1))
    return [
        v if build.file.buffers[v] == size else linear(build.file, v, column, None, FLOAT32)
        for v in vectors
    ]


# ---------------------------------------------------------------------------- time


@add_operation.register
def _(operation: Selective, build: EngineBuilder, x: int) -> int:
    return build.layer(operation.layer, x)


@add_operation.register
def _(operation: RunningMean, build: EngineBuilder, x: int) -> int:
    return build.file.add(Op.MEAN, x, build.file.vector(build.file.buffers[x]))


@add_operation.register
def _(operation: CausalConvolution, build: EngineBuilder, x: int) -> int:
    weight = as_numpy(operation.weight)  # [outputs, inputs / groups, taps]
    outputs, inputs, taps = weight.shape
    if inputs == 1 and outputs == operation.groups:
        return _depthwise(operation, build, x, weight[:, 0])
    groups, dilation = operation.groups, operation.dilation
    window = build.file.vector(taps * build.file.buffers[x])
    build.file.add(Op.WINDOW, x, window, numbers=[taps, dilation, groups])
    blocks = weight.reshape(groups, outputs // groups, inputs, taps).swapaxes(2, 3)
    blocks = blocks.reshape(groups, outputs // groups, taps * inputs)
    bias = None if operation.bias is None else as_numpy(operation.bias)
    return linear(build.file, window, blocks, bias, build.weights)


def _depthwise(
    operation: CausalConvolution, build: EngineBuilder, x: int, weight: np.ndarray
) -> int:
    """A convolution of each feature by itself: weight [features, taps]."""
    size, taps = weight.shape
    spread = np.zeros(((taps - 1) * operation.dilation + 1, size), np.float32)
    spread[:: operation.dilation] = weight.T
    out = build.file.vector(size)
    build.file.add(Op.CONVOLVE, x, out, numbers=[len(spread)], data=[spread])
    if operation.bias is None:
        return out
    return _affine(build, out, operation.bias.new_ones(()), operation.bias)
