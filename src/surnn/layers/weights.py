"""Recurrent weights: their names, initial values, and the layout that scans read.

Parameters have the names, shapes and order of their torch counterparts (``weight_ih_l0`` ...),
except that ``weight_hh_l0`` is ``[S * H, H / heads]``: row i holds the weights from unit i's own
head. One head is torch's layout.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..cells import Cell, get_cell


class RecurrentWeights(nn.Module):
    """The parameters of a stack of recurrent layers; what runs them is not here."""

    cell_name: str
    state_size: int
    heads: int
    head_size: int
    bias: bool

    @property
    def cell(self) -> Cell:
        """What an update is."""
        return get_cell(self.cell_name)

    def _create_parameters(self, suffix: str, reads: int, factory: dict[str, Any]) -> None:
        rows = self.cell.drives * self.state_size
        shapes = {"weight_ih": (rows, reads), "weight_hh": (rows, self.head_size)}
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        for name, shape in shapes.items():
            setattr(self, name + suffix, nn.Parameter(torch.empty(shape, **factory)))

    @torch.no_grad()
    def _reset_weights(self) -> None:
        """Unit-variance input weights, orthogonal recurrent blocks, zero biases.

        Stronger than torch's: a unit that seldom updates must write clearly when it does.
        """
        for name, parameter in self.named_parameters(recurse=False):
            if name.startswith("weight_ih"):
                bound = math.sqrt(3 / parameter.shape[1])
                nn.init.uniform_(parameter, -bound, bound)
            elif name.startswith("weight_hh"):
                blocks = parameter.view(-1, self.head_size, self.head_size)
                blocks.copy_(orthogonal(*blocks.shape[:2]))
            else:
                nn.init.zeros_(parameter)

    def flatten_parameters(self) -> None:
        """Nothing to do; here so that code written for ``nn.GRU`` runs."""

    def _weights(self, suffix: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """weight, bias, recurrent and unit of :class:`ScanInputs`."""
        weight = self._by_head(getattr(self, "weight_ih" + suffix))
        recurrent = self._by_head(getattr(self, "weight_hh" + suffix))
        if self.bias:
            b_ih = self._by_head(getattr(self, "bias_ih" + suffix))
            b_hh = self._by_head(getattr(self, "bias_hh" + suffix))
        else:
            b_ih = b_hh = weight.new_zeros(weight.shape[:3])
        bias, unit = self._split_biases(b_ih, b_hh, suffix)
        return weight, bias, recurrent, unit

    def _split_biases(self, b_ih: Tensor, b_hh: Tensor, suffix: str) -> tuple[Tensor, Tensor]:
        """What adds to the drive [N, S, D], and the cell's per-unit parameters [P, N, D]."""
        return b_ih + b_hh, b_ih.new_empty(0, self.heads, self.head_size)

    def _by_head(self, rows: Tensor) -> Tensor:
        """torch's [S * H, ...] to [N, S, D, ...]."""
        return rows.unflatten(0, (self.cell.drives, self.heads, self.head_size)).transpose(0, 1)

    def _decay(self, suffix: str) -> Tensor | None:
        """What a carry multiplies the state by, [N, C, D]; None for an exact carry of all."""
        return None


def orthogonal(count: int, size: int) -> Tensor:
    """``count`` random orthogonal matrices, uniformly distributed."""
    q, r = torch.linalg.qr(torch.randn(count, size, size, dtype=torch.float32, device="cpu"))
    return q * r.diagonal(dim1=1, dim2=2).sign().unsqueeze(1)


def suffix_of(layer: int, direction: int) -> str:
    """torch's ending of a parameter's name."""
    return f"_l{layer}" + ("_reverse" if direction else "")
