"""Trained models as files for the C engine.

``to_engine`` writes one file, which :class:`surnn.Engine` and the C library read; ``to_c_folder``
writes C sources with the model in them.
"""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from ..baselines import TorchRecurrent
from ..blocks import Convolution, FeedForward, Norm, Residual, Stacked
from ..cells.spiking import ALIF, LIF
from ..gates import AlwaysOpen
from ..layers import SelectiveLayer, SuGRU, SuLSTM, SuRNN
from ..layers.weights import suffix_of
from ..models import Selective, SequenceModel
from .engine_file import FLOAT32, INT8, EngineFile, Op, float_bits, linear, recurrent
from .engine_gates import add_gate, as_numpy

Weights = Literal["float32", "int8"]
CELLS = {"rnn_tanh": 0, "rnn_relu": 1, "gru": 2, "lstm": 3}
GLUS = {"sigmoid": 0, "gelu": 1, "silu": 2}
FROM_TORCH: dict[type, Callable[..., SelectiveLayer]] = {
    nn.GRU: SuGRU.from_torch, nn.LSTM: SuLSTM.from_torch, nn.RNN: SuRNN.from_torch
}  # fmt: skip


def to_engine(model: nn.Module, path: str | Path, weights: Weights = "float32") -> Path:
    """Write ``model`` as a file for the engine: what it computes in evaluation mode, streamed.

    Gates that go by time open at exactly the same steps. Those that see the input decide by float32
    sums: one that is within rounding of 0 may fall the other way, as it may between two backends.

    Args:
        model: a :class:`~surnn.models.SequenceModel`, one of surnn's layers, or torch's GRU, LSTM
            or RNN.
        path: where to; conventionally ``*.surnn``.
        weights: ``"int8"`` stores those of recurrent layers and blocks in 8 bits, with a scale for
            each row: a quarter of the memory. Gates stay exact; predictions change a little.

    Returns:
        the path.
    """
    path, content = Path(path), engine_bytes(model, weights)
    path.parent.mkdir(parents=True, exist_ok=True)
    # An engine that runs from an older file of this name has it mapped: that one must not change.
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return path


def engine_bytes(model: nn.Module, weights: Weights = "float32") -> bytes:
    """The file that :func:`to_engine` writes."""
    if weights not in ("float32", "int8"):
        raise ValueError(f"weights are 'float32' or 'int8', got {weights!r}")
    with torch.no_grad():
        return _Exporter(weights).run(copy.deepcopy(model).cpu().eval())


class _Exporter:
    """Walks through a model and writes down its operations."""

    def __init__(self, weights: Weights) -> None:
        self.weights = INT8 if weights == "int8" else FLOAT32
        self.file: EngineFile

    def run(self, model: nn.Module) -> bytes:
        if isinstance(model, SequenceModel):
            out = self._model(model)
            return self.file.to_bytes(out)
        layer = _as_layer(model)
        self.file = EngineFile(layer.input_size, takes_tokens=False)
        return self.file.to_bytes(self._layer(layer, 0))

    # ------------------------------------------------------------ models

    def _model(self, model: SequenceModel) -> int:
        if model.wanted.pairs:
            raise TypeError("a pair is judged when both documents are there: it cannot stream")
        x = self._encoder(model)
        for block in model.blocks:
            x = self._block(block, x)
        if model.norm is not None:
            x = self._norm(model.norm, x)
        if model.pool == "mean" and model.wanted.per == "sequence":
            x = self.file.add(Op.MEAN, x, self.file.vector(model.width))
        return self._linear(model.head, x, FLOAT32)  # type: ignore[arg-type]

    def _encoder(self, model: SequenceModel) -> int:
        encoder = model.encoder
        if isinstance(encoder, nn.Embedding):
            self.file = EngineFile(encoder.num_embeddings, takes_tokens=True)
            table = as_numpy(encoder.weight).astype(np.float32)
            return self.file.add(Op.EMBED, 0, self.file.vector(table.shape[1]), data=[table])
        if isinstance(encoder, nn.Linear):
            self.file = EngineFile(encoder.in_features, takes_tokens=False)
            return self._linear(encoder, 0, FLOAT32)
        self.file = EngineFile(_as_layer(model.blocks[0].mixer).input_size, takes_tokens=False)  # type: ignore[arg-type]
        return 0

    def _block(self, block: nn.Module, x: int) -> int:
        if isinstance(block, Convolution):
            return self._convolution(block, x)
        if isinstance(block, Stacked):
            return self._layer(_as_layer(block.mixer), x)
        if not isinstance(block, Residual | FeedForward):
            inside = type(block.mixer).__name__
            raise TypeError(f"the engine does not know {inside} in a block {type(block).__name__}")
        file, width = self.file, self.file.buffers[x]
        y = self._layer(_as_layer(block.mixer), self._norm(block.norm, x) if block.prenorm else x)
        if isinstance(block, Residual):
            y = file.add(Op.GELU, y, file.vector(file.buffers[y]))
            y = self._linear(block.out, y, selective=True)
            if block.glu != "none":
                y = file.add(Op.GLU, y, file.vector(width), numbers=[GLUS[block.glu]])
            return self._sum(block, x, y, block.norm)
        x = self._sum(block, x, y, block.norm)
        y = self._norm(block.second_norm, x) if block.prenorm else x
        y = self._linear(block.widen, y)
        y = self._linear(block.narrow, file.add(Op.GELU, y, file.vector(file.buffers[y])))
        return self._sum(block, x, y, block.second_norm)

    def _convolution(self, block: Convolution, x: int) -> int:
        taps = np.pad(as_numpy(block.taps), ((0, 1), (0, 0)), constant_values=1)
        out = self.file.vector(self.file.buffers[x])
        return self.file.add(
            Op.CONVOLVE, x, out, numbers=[len(taps)], data=[taps.astype(np.float32)]
        )

    def _sum(self, block: Residual | FeedForward, x: int, y: int, norm: Norm) -> int:
        total = self.file.add(Op.ADD, x, self.file.vector(self.file.buffers[x]), y)
        return total if block.prenorm else self._norm(norm, total)

    def _linear(
        self, module: nn.Linear, x: int, weights: int | None = None, selective: bool = False
    ) -> int:
        bias = None if module.bias is None else as_numpy(module.bias)
        kind = self.weights if weights is None else weights
        return linear(self.file, x, as_numpy(module.weight), bias, kind, selective)

    def _norm(self, module: Norm, x: int) -> int:
        norm: Any = module.norm
        out = self.file.vector(self.file.buffers[x])
        if isinstance(norm, nn.BatchNorm1d):
            scale = as_numpy(norm.weight) / np.sqrt(as_numpy(norm.running_var) + norm.eps)  # type: ignore[arg-type]
            shift = as_numpy(norm.bias) - as_numpy(norm.running_mean) * scale  # type: ignore[arg-type]
            data = [scale.astype(np.float32), shift.astype(np.float32)]
            return self.file.add(Op.AFFINE, x, out, data=data)
        rms = isinstance(norm, nn.RMSNorm)
        eps = norm.eps if norm.eps is not None else torch.finfo(norm.weight.dtype).eps
        weight = as_numpy(norm.weight).astype(np.float32)
        bias = None if rms else as_numpy(norm.bias).astype(np.float32)
        numbers = [int(rms), float_bits(eps)]
        return self.file.add(Op.NORM, x, out, numbers=numbers, data=[weight, bias])

    # ------------------------------------------------------------ layers

    def _layer(self, layer: SelectiveLayer, x: int) -> int:
        layer._check_streamable()
        raw = x
        for index in range(layer.num_layers):
            gate = add_gate(self.file, layer.gates[index], x, raw)  # type: ignore[arg-type]
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
    """The cell's number, and its own options."""
    cell = layer.cell
    if type(cell) is LIF:
        return 4, [0, float_bits(cell.threshold), 0]
    if type(cell) is ALIF:
        goes_on = int(getattr(layer, "adaptation_goes_on", False))
        return 5, [goes_on, float_bits(cell.threshold), float_bits(cell.beta)]
    if cell.name not in CELLS:
        raise TypeError(
            f"the engine does not know the cell {cell.name!r}; it knows {', '.join(CELLS)}, lif "
            "and alif"
        )
    return CELLS[cell.name], []


def _as_layer(module: nn.Module) -> SelectiveLayer:
    """What computes the same as a layer of surnn's."""
    if isinstance(module, Selective | TorchRecurrent):
        module = module.layer
    if isinstance(module, SelectiveLayer):
        return module
    if type(module) in FROM_TORCH:
        return FROM_TORCH[type(module)](module, gate=AlwaysOpen()).eval()
    raise TypeError(
        f"the engine runs RNNs, GRUs, LSTMs and spiking layers, not {type(module).__name__}; "
        "other models that stream can be exported to ONNX or torch.export: surnn export --to onnx"
    )
