"""The LSTM in PyTorch's convention, gates i, f, g, o.

``c' = f * c + i * g``, ``h' = o * tanh(c')``. A carry keeps h and c together: carrying c alone
would still change h through the output gate.
"""

import torch
from torch import Tensor

from .base import Cell, Linearization


class LSTM(Cell):
    name = "lstm"
    drives = 4
    components = ("h", "c")

    @staticmethod
    def _gates(drive: Tensor, rec: Tensor, state: Tensor):
        pre = drive + rec
        i, f = torch.sigmoid(pre[..., :2, :]).unbind(-2)
        g = torch.tanh(pre[..., 2, :])
        o = torch.sigmoid(pre[..., 3, :])
        c_old = state[..., 1, :]
        return i, f, g, o, c_old, f * c_old + i * g

    def update(self, drive, rec, state, unit) -> Tensor:
        _, _, _, o, _, c = self._gates(drive, rec, state)
        return torch.stack((o * torch.tanh(c), c), -2)

    def linearize(self, drive, rec, state, unit) -> Linearization:
        i, f, g, o, c_old, c = self._gates(drive, rec, state)
        tanh_c = torch.tanh(c)
        h_by_c = o * (1 - tanh_c * tanh_c)
        zero = torch.zeros_like(c)
        c_by = torch.stack((g * i * (1 - i), c_old * f * (1 - f), i * (1 - g * g), zero), -2)
        h_by = h_by_c.unsqueeze(-2) * c_by
        h_by[..., 3, :] = tanh_c * o * (1 - o)
        by_state = torch.stack(
            (torch.stack((zero, h_by_c * f), -2), torch.stack((zero, f), -2)), -3
        )
        return Linearization(torch.stack((h_by, c_by), -3), None, by_state, None)
