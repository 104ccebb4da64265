"""A streaming step as an ONNX file, for onnxruntime and others."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import __version__
from .graph import program_of, quiet
from .step import StreamingStep

OPSET = 20


def to_onnx(model: nn.Module, path: str | Path) -> Path:
    """Write one step of ``model`` as ONNX: what it computes in evaluation.

    The file's inputs are ``frame`` [batch, features] or ``token`` [batch], and the state by name,
    all zeros before the first step (see :mod:`surnn.export.step`); its outputs are ``prediction``
    (``output`` of a bare layer) and, in the same order, the new state: ``new_t``, ``new_h_0``, ...
    Clocks run in float64, so that gates are Python's at t = 10^9 too::

        session = onnxruntime.InferenceSession("model.onnx")
        prediction, *new = session.run(None, {"frame": frame, **state})
        state = dict(zip(state, new))

    Args:
        model: one of surnn's layers, or a :class:`~surnn.models.SequenceModel`, in float32.
        path: where to.
    """
    if missing := [name for name in ("onnx", "onnxscript") if find_spec(name) is None]:
        raise ModuleNotFoundError(
            f"ONNX files are made with {' and '.join(missing)}, not installed here: pip install "
            "'surnn[onnx]'"
        )
    step = StreamingStep(model)
    odd = {v.dtype for v in step.state_dict().values() if v.is_floating_point()} - {torch.float32}
    if odd:
        raise ValueError(
            f"ONNX files are of float32 models, this has {odd.pop()}; use model.float()"
        )
    program = program_of(step, EXACT)
    states = list(step.begin)
    with quiet():
        made = torch.onnx.export(
            program,
            input_names=[step.input_name, *states],
            output_names=[step.output_name, *(f"new_{name}" for name in states)],
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert made is not None
    describe(made.model)
    made.save(path, external_data=False)
    return Path(path)


def describe(model: Any) -> None:
    """Names that mean something, instead of torch's notes on which line of which file made what."""
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
    """By the sine, to the last digit: onnxruntime up to 1.22 has no cosine in float64."""
    if x.dtype != torch.float64:
        return NotImplemented
    sine = torch.sin(x * 0.5)
    return 1 - 2 * sine * sine


def division(x: Tensor, by: Tensor, *, rounding_mode: str | None = None) -> Tensor:
    """Of integers in integers: torch's translation goes by way of float32, and t = 10^9 is lost."""
    if x.is_floating_point() or rounding_mode != "floor":
        return NotImplemented
    return torch.floor_divide(x, by)


EXACT: dict[Any, Callable[..., Tensor]] = {
    torch.ops.aten.cos.default: cosine,
    torch.ops.aten.div.Tensor_mode: division,
}
"""What torch's translation of these operations lacks."""
