"""The rivals of ``surnn bench engine``: torch's GRU and onnxruntime's GRU."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import nn

from surnn import SuGRU

from .jobs import explain


@dataclass
class Contestant:
    """A function from frames [T, 1] to outputs [T, 256], and its times."""

    name: str
    run: Callable[[np.ndarray], np.ndarray]
    each: Callable[[np.ndarray], list[float]] | None = None
    """Seconds of each time step; None if it takes the whole sequence at once."""
    sparsity: float | None = None
    """Share of units that do not update, over time steps and layers."""
    macs: float | None = None
    """Share of multiply-accumulates that are computed."""
    open_shares: list[float] | None = None
    """Share of units that update at each time step."""
    work: list[int] | None = None
    """Multiply-accumulates of each time step."""
    seconds: list[float] = field(default_factory=list)
    """Seconds of the whole sequence, for each turn."""
    latencies: list[list[float]] = field(default_factory=list)
    """Seconds of each time step, for each turn."""
    difference: float | None = None
    """Largest difference from the outputs of the same layer in torch."""


def rivals(dense: SuGRU) -> tuple[list[Contestant], dict[str, str]]:
    """torch's layer and onnxruntime's operator with the same weights, and reasons for missing
    ones."""
    layer = dense.to_torch()
    contestants = [
        Contestant("torch nn.GRU, whole sequence", lambda frames: whole(layer, frames)),
        Contestant(
            "torch nn.GRU, streamed",
            lambda frames: streamed(layer, frames, None),
            lambda frames: latencies(lambda note: streamed(layer, frames, note)),
        ),
    ]
    try:
        session = onnx_session(layer)
    except ModuleNotFoundError as error:
        return contestants, {"onnxruntime GRU": explain(error)}
    contestants += [
        Contestant("onnxruntime GRU, whole sequence", lambda frames: onnx_whole(session, frames)),
        Contestant("onnxruntime GRU, streamed", lambda frames: onnx_streamed(session, frames, None),
                   lambda frames: latencies(lambda note: onnx_streamed(session, frames, note))),
    ]  # fmt: skip
    return contestants, {}


Note = Callable[[], None] | None


def latencies(work: Callable[[Note], object]) -> list[float]:
    """Seconds between successive calls of the function that ``work`` receives."""
    times = [time.perf_counter()]
    work(lambda: times.append(time.perf_counter()))
    return np.diff(times).tolist()


def whole(layer: nn.RNNBase, frames: np.ndarray) -> np.ndarray:
    return layer(torch.from_numpy(frames)[:, None])[0][:, 0].numpy()


def streamed(layer: nn.RNNBase, frames: np.ndarray, note: Note) -> np.ndarray:
    state = torch.zeros(layer.num_layers, 1, layer.hidden_size)
    out = np.empty((len(frames), layer.hidden_size), np.float32)
    for t, frame in enumerate(torch.from_numpy(frames)[:, None, None]):
        y, state = layer(frame, state)
        out[t] = y[0, 0].numpy()
        if note is not None:
            note()
    return out


def onnx_session(layer: nn.RNNBase) -> Any:
    """Two GRU operators in a row, states in and out."""
    onnx, onnxruntime = import_module("onnx"), import_module("onnxruntime")  # optional
    helper, numpy_helper = import_module("onnx.helper"), import_module("onnx.numpy_helper")

    def number(name: str, tensor: torch.Tensor) -> Any:
        return numpy_helper.from_array(np.ascontiguousarray(tensor.detach().numpy()), name)

    def gates_first(rows: torch.Tensor) -> torch.Tensor:
        r, z, n = rows.chunk(3)  # torch's order; ONNX has z first
        return torch.cat((z, r, n))

    nodes, weights, tensor_name = [], [], "x"
    count, width = layer.num_layers, layer.hidden_size
    for i in range(count):
        w, u, b, c = (
            gates_first(getattr(layer, f"{name}_l{i}"))
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        weights += [number(f"w{i}", w[None]), number(f"u{i}", u[None])]
        weights += [number(f"b{i}", torch.cat((b, c))[None])]
        names = [tensor_name, f"w{i}", f"u{i}", f"b{i}", "", f"h{i}"]
        nodes += [
            helper.make_node("GRU", names, [f"y{i}", f"new{i}"], hidden_size=width,
                             linear_before_reset=1),
            helper.make_node("Squeeze", [f"y{i}", "directions"], [f"x{i + 1}"]),
        ]  # fmt: skip
        tensor_name = f"x{i + 1}"
    weights.append(numpy_helper.from_array(np.array([1]), "directions"))
    kind = onnx.TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("x", kind, ["T", 1, layer.input_size])]
    inputs += [helper.make_tensor_value_info(f"h{i}", kind, [1, 1, width]) for i in range(count)]
    outputs = [helper.make_tensor_value_info(tensor_name, kind, ["T", 1, width])]
    outputs += [helper.make_tensor_value_info(f"new{i}", kind, [1, 1, width]) for i in range(count)]
    graph = helper.make_graph(nodes, "gru", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def onnx_states(session: Any) -> dict[str, np.ndarray]:
    states = [entry for entry in session.get_inputs() if entry.name.startswith("h")]
    return {entry.name: np.zeros(entry.shape, np.float32) for entry in states}


def onnx_whole(session: Any, frames: np.ndarray) -> np.ndarray:
    return session.run(None, {"x": frames[:, None], **onnx_states(session)})[0][:, 0]


def onnx_streamed(session: Any, frames: np.ndarray, note: Note) -> np.ndarray:
    states = onnx_states(session)
    width = next(iter(states.values())).shape[-1]
    out = np.empty((len(frames), width), np.float32)
    for t, frame in enumerate(frames[:, None, None]):
        y, *new = session.run(None, {"x": frame, **states})
        states = {f"h{i}": h for i, h in enumerate(new)}
        out[t] = y[0, 0]
        if note is not None:
            note()
    return out
