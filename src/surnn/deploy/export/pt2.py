"""A streaming step as a ``.pt2`` file, which torch runs without surnn."""

import io
from pathlib import Path

import torch
from torch import nn

from .finite import check_finite
from .graph import program_of
from .step import streaming_step


def to_pt2(model: nn.Module, path: str | Path) -> Path:
    """Write one step of ``model``, in evaluation mode, by :func:`torch.export.save`.

    The file's function takes a frame [B, features] or tokens [B], and the state, a dictionary of
    tensors that start as zeros (see ``export/step.py``). It returns the prediction and the new
    state. On the same machine its numbers equal those of ``model.step``, bit for bit.

    Args:
        model: one of surnn's layers, a :class:`~surnn.models.model.SequenceModel`, or a module of
            your own (see :func:`~surnn.export.to_engine`).
        path: the file; must end in ``.pt2``.

    Example:
        >>> import surnn, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     program = torch.export.load(to_pt2(surnn.SuGRU(3, 8), f"{folder}/layer.pt2"))
        >>> state = {name: v[:1] for name, v in program.example_inputs[0][1].items()}
        >>> output, state = program.module()(torch.zeros(1, 3), state)
        >>> output.shape
        torch.Size([1, 8])
    """
    path = Path(path)
    if path.suffix != ".pt2":  # torch would only warn
        raise ValueError(f"the name of a torch.export file must end in .pt2, got {path.name!r}")
    check_finite(model)
    content = io.BytesIO()  # torch's own writer reports a full disk by a page of stack frames
    torch.export.save(program_of(streaming_step(model)), content)
    path.write_bytes(content.getbuffer())
    return path
