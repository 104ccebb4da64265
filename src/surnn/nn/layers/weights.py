"""Recurrent weights: names, initial values, and the layout that scans read.

Parameters have the names, shapes and order of their torch counterparts (``weight_ih_l0`` ...),
except that ``weight_hh_l0`` is ``[S * H, H / heads]``: row i holds the weights from unit i's own
head. One head is torch's layout.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..cells import Cell, get_cell

# Recurrent blocks of more rows are not drawn by a QR decomposition.
_LARGEST_QR = 512


class RecurrentWeights(nn.Module):
    """The parameters of a stack of recurrent layers, without the code that runs them."""

    cell_name: str
    state_size: int
    heads: int
    head_size: int
    bias: bool
    num_directions: int
    gates: nn.ModuleList

    @property
    def cell(self) -> Cell:
        """The cell: the function that an update applies."""
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

        Larger than torch's: a unit that rarely updates needs a large change when it does.
        """
        for name, parameter in self.named_parameters(recurse=False):
            if not parameter.numel():  # a cell without units
                continue
            if name.startswith("weight_ih"):
                bound = math.sqrt(3 / parameter.shape[1])
                nn.init.uniform_(parameter, -bound, bound)
            elif name.startswith("weight_hh"):
                blocks = parameter.view(-1, self.head_size, self.head_size)
                blocks.copy_(orthogonal(*blocks.shape[:2]))
            else:
                nn.init.zeros_(parameter)

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The weights of each layer and direction, as torch's layers list them."""
        kinds = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
        kinds += [f"log_tau_{name}" for name in self.cell.unit_parameters]
        suffixes = [suffix_of(*divmod(i, self.num_directions)) for i in range(len(self.gates))]
        lists = [[kind + suffix for kind in kinds] for suffix in suffixes]
        return [[getattr(self, n) for n in names if hasattr(self, n)] for names in lists]

    @property
    def _flat_weights(self) -> list[nn.Parameter]:
        """The weights of all layers in one list, which some tools read on torch's layers."""
        return [weight for layer in self.all_weights for weight in layer]

    def flatten_parameters(self) -> None:
        """Does nothing; lets code written for ``nn.GRU`` run."""

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
        """The bias that adds to the drive [N, S, D], and the per-unit parameters [P, N, D]."""
        return b_ih + b_hh, b_ih.new_empty(0, self.heads, self.head_size)

    def _by_head(self, rows: Tensor) -> Tensor:
        """torch's [S * H, ...] to [N, S, D, ...]."""
        return rows.unflatten(0, (self.cell.drives, self.heads, self.head_size)).transpose(0, 1)

    def _decay(self, suffix: str) -> Tensor | None:
        """The factor that a carry applies to the state, [N, C, D]; None carries exactly."""
        return None


def orthogonal(count: int, size: int) -> Tensor:
    """``count`` random orthogonal matrices.

    Up to ``_LARGEST_QR`` rows they are uniformly distributed. Larger ones are products of random
    signs and orthonormal Hartley transforms, which take milliseconds where a QR decomposition takes
    seconds.
    """
    if size > _LARGEST_QR:
        return torch.stack([_mixed_signs(size) for _ in range(count)])
    q, r = torch.linalg.qr(torch.randn(count, size, size, dtype=torch.float32, device="cpu"))
    return q * r.diagonal(dim1=1, dim2=2).sign().unsqueeze(1)


def _mixed_signs(size: int) -> Tensor:
    matrix = torch.eye(size, dtype=torch.float32, device="cpu")
    for _ in range(3):  # two would give the sum of a Toeplitz and a Hankel matrix
        signs = torch.randint(2, (size,), device="cpu") * 2 - 1
        wave = torch.fft.fft(matrix * signs, norm="ortho")
        matrix = wave.real - wave.imag
    return matrix


def suffix_of(layer: int, direction: int) -> str:
    """The suffix of a parameter's name, as torch's layers have it."""
    return f"_l{layer}" + ("_reverse" if direction else "")
