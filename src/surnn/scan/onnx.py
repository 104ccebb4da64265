"""The event scan in torch's own operations, for ``torch.onnx.export`` of a whole sequence.

ONNX has no such operator, so its exporter replaces the scan by ``reference``, unrolled over time:
right for the number of time steps that was exported, and a long file for a long sequence. For
sequences of any length export one time step: :func:`surnn.export.to_onnx`.
"""

from typing import Any

import torch
from torch import Tensor
from torch._decomp import register_decomposition

from . import events as _events  # noqa: F401 (it defines the operator)
from . import reference
from .contract import ScanInputs, ScanOperands
from .operators import COUNT


@register_decomposition(torch.ops.surnn.events.default)
def unrolled(*arguments: Any) -> tuple[Tensor, ...]:
    """The results of ``surnn::events``; the packed rows, which only training reads, are empty."""
    operands = ScanOperands.from_flat(arguments[:COUNT])
    state, rows = arguments[COUNT:]
    y, last = reference.scan(ScanInputs(**operands.__dict__, state=state))
    _, drives, width, _ = operands.weight.shape
    unused = state.new_zeros(rows, *state.shape[2:]), y.new_zeros(rows, drives, width)
    return y, last.contiguous(), *unused
