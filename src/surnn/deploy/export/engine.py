"""Trained models as files for the C engine.

``to_engine`` writes one file, which :class:`surnn.Engine` and the C library read; ``to_c_folder``
writes C sources that contain the model.
"""

import copy
import os
from pathlib import Path

import torch
from torch import nn

from surnn.models.model import SequenceModel

from .engine_blocks import add_block, add_encoder
from .engine_builder import Activations, EngineBuilder, Weights, weight_type
from .engine_file import FLOAT32, Op
from .engine_layers import as_layer, is_layer
from .engine_operations import program_bytes
from .finite import check_finite
from .modules import as_program


def to_engine(
    model: nn.Module,
    path: str | Path,
    weights: Weights = "float32",
    activations: Activations = "int16",
) -> Path:
    """Write ``model`` as a file for the engine, which streams it in evaluation mode.

    Gates that depend on time alone open at exactly the same time steps as in Python. Gates that
    see the input decide by float32 sums: a sum within rounding of 0 may fall on the other side, as
    it may between two backends.

    A module of your own may be any chain of modules and functions that work on single time steps,
    causal convolutions, and recurrent layers, with residual sums around them: see
    ``docs/own_modules.md``. If it predicts from the last time step (``y[:, -1]``, ``h_n[-1]``) or
    from the mean over time, the stream predicts at every time step, as if the sequence ended there.

    Args:
        model: a ``SequenceModel``, one of surnn's layers, torch's GRU, LSTM or RNN, or a module
            that contains such layers.
        path: the file, conventionally ``*.surnn``.
        weights: ``"int8"`` stores the weights of recurrent layers and blocks in 8 bits, with a
            scale for each row: a quarter of the memory. Gates stay exact; predictions change a
            little.
        activations: the numbers that 8-bit weights multiply, rounded at every time step relative
            to the largest of a vector. ``"int8"`` is faster than ``"int16"`` and less exact.

    Returns:
        the path.

    Raises:
        TypeError: the engine cannot run a part of the model. The message names the part.

    Example:
        >>> import surnn, tempfile
        >>> model = nn.Sequential(nn.Linear(3, 16), nn.SiLU(), nn.Linear(16, 2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     engine = surnn.Engine(to_engine(model, folder + "/model.surnn"))
        >>> engine.stream().step([0.1, 0.2, 0.3]).shape
        (2,)
    """
    path, content = Path(path), engine_bytes(model, weights, activations)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A running engine has an older file of this name mapped, so that file must not change.
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return path


def engine_bytes(
    model: nn.Module, weights: Weights = "float32", activations: Activations = "int16"
) -> bytes:
    """The file that :func:`to_engine` writes."""
    kind = weight_type(weights, activations)
    check_finite(model, torch.float32)
    model = copy.deepcopy(model).cpu().eval()
    with torch.no_grad():
        if isinstance(model, SequenceModel):
            return _model_bytes(model, kind)
        if not is_layer(model):
            return program_bytes(as_program(model), kind)
        layer = as_layer(model)
        build = EngineBuilder(layer.input_size, takes_tokens=False, weights=kind)
        return build.file.to_bytes(build.layer(layer, 0))


def _model_bytes(model: SequenceModel, weights: int) -> bytes:
    model.check_streamable()
    build, x = add_encoder(model.encoder, model, weights)
    for block in model.blocks:
        x = add_block(block, build, x)
    if model.norm is not None:
        x = build.norm(model.norm, x)
    if model.predicts_mean:
        x = build.file.add(Op.MEAN, x, build.file.vector(model.width))
    return build.file.to_bytes(build.linear(model.head, x, FLOAT32))  # type: ignore[arg-type]
