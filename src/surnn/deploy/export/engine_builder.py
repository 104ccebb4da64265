"""The parts that blocks share, as operations of the engine: linear maps, norms, layers."""

from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import nn

from surnn.models.blocks import Norm
from surnn.nn.cells.spiking import ALIF, LIF
from surnn.nn.layers import SelectiveLayer
from surnn.nn.layers.weights import suffix_of

from .engine_file import FLOAT32, INT8, INT8_BY_INT8, EngineFile, Op, float_bits, linear, recurrent
from .engine_gates import add_gate, as_numpy

Weights = Literal["float32", "int8"]
Activations = Literal["int16", "int8"]
CELLS = {"rnn_tanh": 0, "rnn_relu": 1, "gru": 2, "lstm": 3}


def weight_type(weights: Weights, activations: Activations) -> int:
    """The number of a type of weights in the format.

    Raises:
        ValueError: there is no such type.
    """
    if weights not in get_args(Weights):
        raise ValueError(f"weights are 'float32' or 'int8', got {weights!r}")
    if activations not in get_args(Activations):
        raise ValueError(f"activations are 'int16' or 'int8', got {activations!r}")
    if activations == "int8" and weights != "int8":
        raise ValueError("8-bit activations need weights='int8'; float32 weights have none")
    return {"float32": FLOAT32, "int8": INT8_BY_INT8 if activations == "int8" else INT8}[weights]


class EngineBuilder:
    """Appends operations to an engine file.

    Methods take the number of the vector that they read and return the number of their output.

    Args:
        input_size: numbers of a frame, or the size of the vocabulary.
        takes_tokens: whether the input is a token.
        weights: how large weights are stored: FLOAT32, INT8 or INT8_BY_INT8.
    """

    def __init__(self, input_size: int, takes_tokens: bool, weights: int) -> None:
        self.file = EngineFile(input_size, takes_tokens)
        self.weights = weights

    def linear(
        self, module: nn.Linear, x: int, weights: int | None = None, selective: bool = False
    ) -> int:
        """A linear map; ``selective`` as in :func:`~surnn.deploy.export.engine_file.linear`."""
        bias = None if module.bias is None else as_numpy(module.bias)
        kind = self.weights if weights is None else weights
        return linear(self.file, x, as_numpy(module.weight), bias, kind, selective)

    def gelu(self, x: int) -> int:
        """GELU of every number."""
        return self.file.add(Op.GELU, x, self.file.vector(self.file.buffers[x]))

    def add(self, x: int, y: int) -> int:
        """The sum of two vectors."""
        return self.file.add(Op.ADD, x, self.file.vector(self.file.buffers[x]), y)

    def embedding(self, module: nn.Embedding) -> int:
        """The row of a table for the input token."""
        table = as_numpy(module.weight).astype(np.float32)
        return self.file.add(Op.EMBED, 0, self.file.vector(table.shape[1]), data=[table])

    def norm(self, module: nn.Module, x: int) -> int:
        """A norm as at inference: BatchNorm is an affine map."""
        norm: Any = module.norm if isinstance(module, Norm) else module
        size = self.file.buffers[x]
        out = self.file.vector(size)
        weight = np.ones(size) if norm.weight is None else as_numpy(norm.weight)
        bias = getattr(norm, "bias", None)
        bias = None if bias is None else as_numpy(bias)
        if isinstance(norm, nn.BatchNorm1d):
            assert norm.running_mean is not None
            assert norm.running_var is not None
            scale = weight / np.sqrt(as_numpy(norm.running_var) + norm.eps)
            shift = (0 if bias is None else bias) - as_numpy(norm.running_mean) * scale
            data = [scale.astype(np.float32), shift.astype(np.float32)]
            return self.file.add(Op.AFFINE, x, out, data=data)
        eps = norm.eps if norm.eps is not None else torch.finfo(torch.float32).eps
        numbers = [int(isinstance(norm, nn.RMSNorm)), float_bits(eps)]
        arrays = [weight.astype(np.float32), None if bias is None else bias.astype(np.float32)]
        return self.file.add(Op.NORM, x, out, numbers=numbers, data=arrays)

    def layer(self, layer: SelectiveLayer, x: int) -> int:
        """One of surnn's layers, with its gates and projections."""
        layer._check_streamable()
        stack_input = x
        for index in range(layer.num_layers):
            gate = add_gate(self.file, layer.gates[index], x, stack_input)  # type: ignore[arg-type]
            if layer.expand > 1:
                x = self._projection(layer.up[index], x)
            x = self._recurrence(layer, suffix_of(index, 0), gate, x)
            if layer.expand > 1:
                x = self._projection(layer.down[index], x, selective=True)
        return x

    def _projection(self, module: Any, x: int, selective: bool = False) -> int:
        return linear(self.file, x, as_numpy(module.weight), None, self.weights, selective)

    def _recurrence(self, layer: SelectiveLayer, suffix: str, gate: tuple[int, int], x: int) -> int:
        weight, bias, recurrence, unit = (as_numpy(part) for part in layer._weights(suffix))
        units = layer.state_size

        def by_unit(part: np.ndarray) -> np.ndarray:  # [N, S, D, ...] to [S, N * D, ...]
            return part.swapaxes(0, 1).reshape(part.shape[1], units, *part.shape[3:])

        arrays = {
            "input": by_unit(weight),
            "recurrent": by_unit(recurrence),
            "bias": by_unit(bias),
            "unit": unit.reshape(-1, units),
        }
        cell, options = _cell(layer)
        return recurrent(self.file, x, gate, cell, layer.heads, arrays, self.weights, options)


def _cell(layer: SelectiveLayer) -> tuple[int, list[int]]:
    """The cell's number in the format, and the cell's options."""
    cell = layer.cell
    if type(cell) is LIF:
        return 4, [0, float_bits(cell.threshold), 0]
    if type(cell) is ALIF:
        decays_on_carry = int(getattr(layer, "adaptation_always_decays", False))
        return 5, [decays_on_carry, float_bits(cell.threshold), float_bits(cell.beta)]
    if cell.name not in CELLS:
        raise TypeError(
            f"the engine does not know the cell {cell.name!r}; it knows {', '.join(CELLS)}, lif "
            "and alif"
        )
    return CELLS[cell.name], []
