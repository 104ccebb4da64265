"""A streaming step as an ONNX file, for onnxruntime and others."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from surnn import __version__
from surnn.errors import MissingExtra

from .finite import check_finite
from .graph import program_of, quiet
from .step import streaming_step

OPSET = 20


def to_onnx(model: nn.Module, path: str | Path) -> Path:
    """Write one step of ``model``, in evaluation mode, as ONNX.

    The file's inputs are ``frame`` [batch, features] or ``token`` [batch], and the state by name,
    all zeros before the first step (see ``export/step.py``). Its outputs are ``prediction``
    (``output`` for a bare layer) and, in the same order, the new state: ``new_t``, ``new_h_0``, ...
    Clocks are float64, so gates equal Python's even at t = 10^9.

    Args:
        model: one of surnn's layers, a :class:`~surnn.models.model.SequenceModel`, or a module of
            your own (see :func:`~surnn.export.to_engine`), in float32.
        path: the file.

    Example:
        One step of a stream in onnxruntime:

        >>> import numpy, onnxruntime, surnn, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = to_onnx(surnn.SuGRU(3, 8), f"{folder}/layer.onnx")
        ...     session = onnxruntime.InferenceSession(path)
        >>> k = {"tensor(int64)": "int64", "tensor(float)": "float32"}
        >>> state = {
        ...     each.name: numpy.zeros([1 if n == "batch" else n for n in each.shape], k[each.type])
        ...     for each in session.get_inputs() if each.name != "frame"
        ... }
        >>> frame = numpy.zeros((1, 3), "float32")
        >>> output, *new = session.run(None, {"frame": frame, **state})
        >>> state = dict(zip(state, new))
        >>> output.shape, list(state)
        ((1, 8), ['t', 'h_0'])
    """
    for package in ("onnx", "onnxscript"):
        if find_spec(package) is None:
            raise MissingExtra(package, "writing an ONNX file")
    check_finite(model)
    step = streaming_step(model)
    dtypes = {v.dtype for v in step.state_dict().values() if v.is_floating_point()}
    if other := dtypes - {torch.float32}:
        raise ValueError(
            f"ONNX export takes float32 models, this one has {other.pop()}; use model.float()"
        )
    program = program_of(step, EXACT)
    states = list(step.zero_state)
    with quiet():
        exported = torch.onnx.export(
            program,
            input_names=[step.input_name, *states],
            output_names=[step.output_name, *(f"new_{name}" for name in states)],
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert exported is not None
    describe(exported.model)
    exported.save(path, external_data=False)
    return Path(path)


def describe(model: Any) -> None:
    """Set the producer and the batch dimension's name; remove torch's notes on source lines."""
    model.producer_name, model.producer_version = "surnn", __version__
    batch = str(model.graph.inputs[0].shape[0])
    values = [*model.graph.inputs]
    for node in model.graph:
        values += node.outputs
        node.metadata_props.clear()
    for value in values:
        value.metadata_props.clear()
        if value.shape is not None:
            sizes = [
                n if isinstance(n, int) else str(n).replace(batch, "batch") for n in value.shape
            ]
            value.shape = type(value.shape)(sizes)


def cosine(x: Tensor) -> Tensor:
    """Cosine by the sine, exact to the last digit: onnxruntime up to 1.22 has none in float64."""
    if x.dtype != torch.float64:
        return NotImplemented
    sine = torch.sin(x * 0.5)
    return 1 - 2 * sine * sine


def division(x: Tensor, by: Tensor, *, rounding_mode: str | None = None) -> Tensor:
    """Integer division in integers: torch's translation uses float32, which cannot hold 10^9."""
    if x.is_floating_point() or rounding_mode != "floor":
        return NotImplemented
    return torch.floor_divide(x, by)


EXACT: dict[Any, Callable[..., Tensor]] = {
    torch.ops.aten.cos.default: cosine,
    torch.ops.aten.div.Tensor_mode: division,
}
"""Replacements for operations that torch translates inexactly."""
