"""Spiking layers as NIR files, which other simulators and neuromorphic chips read.

NIR is the Neuromorphic Intermediate Representation: https://neuroir.org.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surnn.errors import MissingExtra
from surnn.models.selective import Selective
from surnn.models.signature import Tokens, Values
from surnn.nn.cells.spiking import ALIF, LIF
from surnn.nn.gates import AlwaysOpen, EveryN
from surnn.nn.layers import SelectiveLayer
from surnn.nn.layers.weights import suffix_of

from .finite import check_finite
from .modules import NotExportable, StreamProgram, as_program


def to_nir(model: nn.Module, path: str | Path, dt: float = 1e-4) -> Path:
    """Write spiking layers, with linear maps before, between and after them, as a NIR graph.

    A neuron becomes a ``LIF`` node, its input weights an ``Affine`` or ``Linear`` node, its
    recurrent weights a ``Linear`` node in a loop, which has a delay of one time step. A simulator
    that integrates by forward Euler with time step ``dt`` and resets by subtracting the threshold
    (both are choices of the simulator, NIR does not contain them) computes the same spikes.
    For this, tau is ``dt / (1 - alpha)``, and the threshold is subtracted from the diagonal of the
    recurrent weights: surnn's neurons are reset after the decay, those of simulators before it.

    NIR has no gates: a unit whose gate is closed keeps its membrane, which no node of NIR does. So
    only layers with open gates can be exported (``gate=surnn.AlwaysOpen()``). Nor does it have
    adaptive thresholds or products of signals to build them from: ``neuron="lif"``.

    Args:
        model: a :class:`surnn.SuSNN`, or a module that is a chain of such layers and ``nn.Linear``.
        path: the file, conventionally ``*.nir``.
        dt: the time between two steps, in seconds. 1e-4 is the default of snnTorch and others.

    Example:
        >>> import surnn
        >>> layer = surnn.SuSNN(3, 8, neuron="lif", gate=surnn.AlwaysOpen())
        >>> surnn.export.to_nir(layer, "layer.nir")  # doctest: +SKIP
    """
    if find_spec("nir") is None:
        raise MissingExtra("nir", "writing a NIR file")
    import nir  # noqa: PLC0415 (an extra)

    if dt <= 0:
        raise ValueError(f"dt is a time in seconds, so positive, got {dt}")
    check_finite(model, torch.float32)
    nir.write(str(path), nir_graph(model, dt))
    return Path(path)


@torch.no_grad()
def nir_graph(model: nn.Module, dt: float = 1e-4) -> Any:
    """The graph that :func:`to_nir` writes, a ``nir.NIRGraph``."""
    program = _program(model)
    if isinstance(program.inputs, Tokens):
        raise NotExportable("NIR has no tokens; export the part after the nn.Embedding")
    writer = GraphWriter(program.inputs.features, dt)
    for number, (operation, sources, path) in enumerate(
        zip(program.operations, program.sources, program.paths, strict=True)
    ):
        if sources != (number,):
            raise NotExportable(f"{path}: only chains can be exported to NIR, not branches")
        try:
            writer.add(operation)
        except (TypeError, ValueError) as error:
            raise NotExportable(f"{path}: {error}") from error
    return writer.graph()


def _program(model: nn.Module) -> StreamProgram:
    if not isinstance(model, SelectiveLayer):
        return as_program(model)
    program = StreamProgram()
    program.inputs = Values(model.input_size)
    program.add(Selective(model), "the layer", 0)
    return program


class GraphWriter:
    """Appends nodes to a chain.

    Args:
        input_size: numbers of a frame.
        dt: seconds between two time steps.
    """

    def __init__(self, input_size: int, dt: float) -> None:
        import nir  # noqa: PLC0415 (an extra)

        self.nir, self.dt = nir, dt
        self.nodes: dict[str, Any] = {"input": nir.Input({"input": np.array([input_size])})}
        self.edges: list[tuple[str, str]] = []
        self.last = "input"

    def add(self, operation: nn.Module) -> None:
        """Append the nodes of a linear map or spiking layer."""
        if isinstance(operation, nn.Linear):
            self.linear("linear", operation.weight, operation.bias)
        elif isinstance(operation, Selective):
            self.layer(operation.layer)
        else:
            raise NotExportable(
                f"{type(operation).__name__} cannot be exported to NIR; nn.Linear and surnn.SuSNN "
                "can"
            )

    def layer(self, layer: SelectiveLayer) -> None:
        """Append a stack of spiking layers."""
        layer._check_streamable()
        threshold = _threshold(layer)
        for index, gate in enumerate(layer.gates):
            _check_open(gate)
            if layer.expand > 1:
                self.linear("up", _dense(layer.up[index].weight), None)  # type: ignore[arg-type]
            weight, bias, recurrence, unit = layer._weights(suffix_of(index, 0))
            shape = (layer.state_size, -1)
            self.linear("weights", weight.reshape(shape), bias.flatten() if layer.bias else None)
            name = self.neurons(unit[0].flatten(), threshold)
            # [N, 1, D, D], a block for each head; the diagonal moves the reset before the decay
            matrix = torch.block_diag(*recurrence[:, 0]) - threshold * torch.eye(layer.state_size)
            loop = f"{name}_recurrent"
            self.nodes[loop] = self.nir.Linear(_array(matrix))
            self.edges += [(name, loop), (loop, name)]
            if layer.expand > 1:
                self.linear("down", _dense(layer.down[index].weight), None)  # type: ignore[arg-type]

    def linear(self, name: str, weight: Tensor, bias: Tensor | None) -> None:
        """Append a linear map."""
        matrix = _array(weight)
        node = self.nir.Linear(matrix) if bias is None else self.nir.Affine(matrix, _array(bias))
        self._append(name, node)

    def neurons(self, alpha: Tensor, threshold: float) -> str:
        """Append neurons with the decays ``alpha``; returns the name of their node."""
        tau, ones = _array(self.dt / (1 - alpha.double())), np.ones(len(alpha), np.float32)
        node = self.nir.LIF(
            tau=tau, r=ones, v_leak=0 * ones, v_threshold=threshold * ones, v_reset=0 * ones
        )
        return self._append("lif", node)

    def graph(self) -> Any:
        """The whole graph."""
        size = self.nodes[self.last].output_type["output"]
        self._append("output", self.nir.Output({"output": np.array(size)}))
        return self.nir.NIRGraph(self.nodes, self.edges, metadata={"dt": self.dt})

    def _append(self, name: str, node: Any) -> str:
        if name != "output":
            name = f"{name}_{len(self.nodes)}"
        self.nodes[name] = node
        self.edges.append((self.last, name))
        self.last = name
        return name


def _threshold(layer: SelectiveLayer) -> float:
    cell = layer.cell
    if type(cell) is LIF:
        return cell.threshold
    if type(cell) is ALIF:
        raise NotExportable(
            "NIR has no neurons with adaptive thresholds, and no products of signals to build them "
            "from; train with neuron='lif'"
        )
    raise NotExportable(f"NIR files hold spiking layers, not the cell {cell.name!r}")


def _check_open(gate: Any) -> None:
    if isinstance(gate, AlwaysOpen) or (isinstance(gate, EveryN) and gate.n == 1):
        return
    raise NotExportable(
        f"NIR cannot express the gate {type(gate).__name__}: no node of NIR keeps its membrane "
        "while a gate is closed. Train with gate=surnn.AlwaysOpen(), or export to the engine, "
        "which runs all gates"
    )


def _dense(blocks: Tensor) -> Tensor:
    return torch.block_diag(*blocks) if blocks.dim() == 3 else blocks


def _array(values: Tensor) -> np.ndarray:
    return values.detach().cpu().to(torch.float32).numpy()
