"""The Elman cells."""

import torch
from torch import Tensor

from .base import Cell, Linearization


class RNNTanh(Cell):
    """The Elman cell: ``h' = tanh(W x + U h + b)``."""

    name = "rnn_tanh"
    drives = 1
    components = ("h",)

    def update(self, drive, rec, state, unit) -> Tensor:
        return torch.tanh(drive + rec)

    def linearize(self, drive, rec, state, unit) -> Linearization:
        h = torch.tanh(drive + rec)
        return Linearization((1 - h * h).unsqueeze(-3), None, _no_direct_path(state), None)


class RNNRelu(Cell):
    """The Elman cell with rectified units: ``h' = relu(W x + U h + b)``."""

    name = "rnn_relu"
    drives = 1
    components = ("h",)

    def update(self, drive, rec, state, unit) -> Tensor:
        return torch.relu(drive + rec)

    def linearize(self, drive, rec, state, unit) -> Linearization:
        open_half = (~(drive + rec <= 0)).to(drive.dtype)  # 1 at NaN, as torch's
        return Linearization(open_half.unsqueeze(-3), None, _no_direct_path(state), None)


def _no_direct_path(state: Tensor) -> Tensor:
    """The old state is read only through the recurrent product."""
    return torch.zeros_like(state).unsqueeze(-3)
