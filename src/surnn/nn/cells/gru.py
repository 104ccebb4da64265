"""The GRU in PyTorch's (and cuDNN's) convention.

``r, z = sigmoid(drive + rec)``, ``n = tanh(drive_n + r * (rec_n + b_hn))``,
``h' = (1 - z) * n + z * h``: the reset gate is applied after the recurrent product.
"""

import torch
from torch import Tensor

from .base import Cell, Linearization


class GRU(Cell):
    name = "gru"
    drives = 3
    components = ("h",)
    unit_parameters = ("bias_hn",)

    @staticmethod
    def _gates(drive: Tensor, rec: Tensor, bias_hn: Tensor):
        r, z = torch.sigmoid(drive[..., :2, :] + rec[..., :2, :]).unbind(-2)
        q = rec[..., 2, :] + bias_hn
        n = torch.tanh(drive[..., 2, :] + r * q)
        return r, z, q, n

    def update(self, drive, rec, state, unit) -> Tensor:
        _, z, _, n = self._gates(drive, rec, unit[0])
        return ((1 - z) * n + z * state[..., 0, :]).unsqueeze(-2)

    def linearize(self, drive, rec, state, unit) -> Linearization:
        r, z, q, n = self._gates(drive, rec, unit[0])
        by_n = (1 - z) * (1 - n * n)
        by_z = (state[..., 0, :] - n) * z * (1 - z)
        by_r = by_n * q * r * (1 - r)
        by_q = by_n * r
        return Linearization(
            torch.stack((by_r, by_z, by_n), -2).unsqueeze(-3),
            torch.stack((by_r, by_z, by_q), -2).unsqueeze(-3),
            z.unsqueeze(-2).unsqueeze(-3),
            by_q.unsqueeze(-2).unsqueeze(-3),
        )
