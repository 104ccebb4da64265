"""The operands of a scan as the kernels read them: weights in the layout of torch's layers."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from surnn.nn.pieces import Piece

from ..contract import ScanOperands


@dataclass(frozen=True, kw_only=True)
class KernelOperands:
    """The same as :class:`~surnn.scan.contract.ScanOperands`, in other layouts.

    All tensors are contiguous.
    """

    x: Tensor
    """[T, B, I]"""
    weight: Tensor
    """[S * H, I], as in ``nn.GRU.weight_ih``; H is N * D."""
    recurrent: Tensor
    """[S * H, D]: like ``nn.GRU.weight_hh``, but a row reads its own head only."""
    bias: Tensor
    """[S * H]"""
    more_bias: Tensor | None
    """[S * H], as ``nn.GRU.bias_hh``, or None: it adds to ``bias``. Those biases of it that do not
    simply add are the parameters of units, and ``unit`` is None."""
    unit: Tensor | None
    """[P, N, D]"""
    gate: Tensor
    """[T, b, N, m] or, with as many entries, [T, b, W]"""
    decay: Tensor | None = None
    """[N, C, D]"""
    lengths: Tensor | None = None
    relevant: Tensor | None = None
    reset: Tensor | None = None
    heads: int
    width: int
    cell: str
    binary: bool
    weight_dtype: torch.dtype
    """The dtype of the parameters, and of their gradients."""

    @classmethod
    def from_contract(cls, operands: ScanOperands) -> "KernelOperands":
        """The operands in the kernels' layout; differentiable."""
        heads, _, width, _ = operands.weight.shape
        return cls(
            x=operands.x,
            weight=operands.weight.transpose(0, 1).flatten(0, 2),
            recurrent=operands.recurrent.transpose(0, 1).flatten(0, 2),
            bias=operands.bias.transpose(0, 1).flatten(),
            more_bias=None,
            unit=operands.unit,
            gate=operands.gate,
            decay=operands.decay,
            lengths=operands.lengths,
            relevant=operands.relevant,
            reset=operands.reset,
            heads=heads,
            width=width,
            cell=operands.cell.name,
            binary=operands.binary,
            weight_dtype=operands.weight.dtype,
        )

    def readable(self) -> "KernelOperands":
        """The operands with contiguous tensors, matrices in x's dtype and masks as bytes."""
        changes: dict[str, Any] = {}
        for name in TENSORS:
            value = getattr(self, name)
            if value is None:
                continue
            if name in ("weight", "recurrent") and value.dtype != self.x.dtype:
                value = value.to(self.x.dtype)
            if value.dtype == torch.bool:
                value = value.view(torch.uint8)
            changes[name] = value.contiguous()
        return KernelOperands(**{**self.__dict__, **changes})

    def tensors(self) -> tuple[Tensor | None, ...]:
        """The tensor fields, in order."""
        return tuple([getattr(self, name) for name in TENSORS])

    def others(self) -> tuple[Any, ...]:
        """The other fields, in order."""
        return tuple([getattr(self, name) for name in _OTHERS])

    @classmethod
    def build(cls, tensors: Sequence[Tensor | None], others: Sequence[Any]) -> "KernelOperands":
        """The inverse of :meth:`tensors` and :meth:`others`."""
        values: dict[str, Any] = dict(zip((*TENSORS, *_OTHERS), (*tensors, *others), strict=True))
        return cls(**values)

    def unit_parameters(self, count: int) -> Tensor | Piece:
        """The parameters of units [P, N, D]: the last ones of ``more_bias``, or ``unit``."""
        if self.unit is not None:
            return self.unit
        assert self.more_bias is not None
        shape = count, self.heads, self.width
        start = (self.more_bias.numel() - count * self.heads * self.width) * self.bias.itemsize
        return Piece(self.more_bias, start, shape, self.more_bias.dtype)


_OTHERS = ("heads", "width", "cell", "binary", "weight_dtype")
TENSORS = tuple(field.name for field in fields(KernelOperands) if field.name not in _OTHERS)
DIFFERENTIABLE = TENSORS.index("decay") + 1
