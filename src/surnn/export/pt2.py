"""A streaming step as a ``.pt2`` file, which torch runs without surnn."""

import io
from pathlib import Path

import torch
from torch import nn

from .graph import program_of
from .step import StreamingStep


def to_pt2(model: nn.Module, path: str | Path) -> Path:
    """Write one step of ``model`` by :func:`torch.export.save`: what it computes in evaluation.

    The file's function takes a frame [B, features] or tokens [B], and the state, a dictionary of
    tensors that begin as zeros (see :mod:`surnn.export.step`); it gives the prediction and the new
    state. Numbers are those of ``model.step``, bit for bit on the same machine::

        program = torch.export.load("model.pt2")
        step, state = program.module(), {k: v[:1] for k, v in program.example_inputs[0][1].items()}
        prediction, state = step(frame, state)

    Args:
        model: one of surnn's layers, or a :class:`~surnn.models.SequenceModel`.
        path: where to; must end in ``.pt2``.
    """
    path = Path(path)
    if path.suffix != ".pt2":  # torch would only warn
        raise ValueError(f"a torch.export file is called something.pt2, got {path.name!r}")
    whole = io.BytesIO()  # torch's own writer tells of a full disk in a page of stack frames
    torch.export.save(program_of(StreamingStep(model)), whole)
    path.write_bytes(whole.getbuffer())
    return path
