"""Floating-point operations of a scan, for ``torch.utils.flop_counter``.

``events`` computes the products of a head at its events alone and ``native`` those of a unit at its
updates, and so do the counts. Open gates count as torch's own layers do: two operations for each
weight and time step. The backward pass counts twice the forward pass. The gate's gradient at closed
steps is not counted. Without values to read (meta and fake tensors) every time step counts. The
eager ``triton`` kernels are no operators, and the counter does not see them.
"""

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.flop_counter import register_flop_formula

from . import events as _events  # noqa: F401 (they define the operators)
from . import native as _native  # noqa: F401
from . import onepass as _onepass  # noqa: F401
from .contract import open_heads


def count_events(x: Tensor, gate: Tensor) -> int:
    """Events of all heads and sequences of a scan over x [T, B, I] with gate [T, b, N, m]."""
    steps, batch = x.shape[:2]
    heads, shared = gate.shape[2], gate.shape[1]
    if gate.is_meta or isinstance(gate, FakeTensor):
        return steps * batch * heads
    return int(open_heads(gate).sum()) * (batch if shared == 1 else 1)


def product_flops(x: Tensor, weight: Tensor, events: int) -> int:
    """Operations of the input projection and the recurrent product at ``events``."""
    _, drives, width, features = weight.shape
    return events * 2 * drives * width * (features + width)


@register_flop_formula(torch.ops.surnn.events, get_raw=True)
def _forward(x: Tensor, weight: Tensor, *operands: Any, **_: Any) -> int:
    gate = operands[3]
    return product_flops(x, weight, count_events(x, gate))


@register_flop_formula(torch.ops.surnn.events_backward, get_raw=True)
def _backward(x: Tensor, weight: Tensor, *operands: Any, **_: Any) -> int:
    return 2 * _forward(x, weight, *operands)


@register_flop_formula(torch.ops.surnn.native, get_raw=True)
def _native_forward(x: Tensor, weight: Tensor, *operands: Any, **_: Any) -> int:
    gate = operands[3]
    heads, drives, width, features = weight.shape
    if gate.is_meta or isinstance(gate, FakeTensor):
        updates = x.shape[0] * x.shape[1] * heads * width
    else:
        units, shared = width // gate.shape[-1], gate.shape[1] == 1
        updates = int((gate != 0).sum()) * units * (x.shape[1] if shared else 1)
    return updates * 2 * drives * (features + width)


@register_flop_formula(torch.ops.surnn.native_backward, get_raw=True)
def _native_backward(x: Tensor, weight: Tensor, *operands: Any, **_: Any) -> int:
    return 2 * _native_forward(x, weight, *operands)


def _dense(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor) -> int:
    steps, batch = x.shape[:2]
    return steps * batch * 2 * (w_ih.numel() + w_hh.numel())


@register_flop_formula(torch.ops.surnn.fused_gru, get_raw=True)
def _fused(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, *_a: Any, **_k: Any) -> int:
    return _dense(x, h, w_ih, w_hh)


@register_flop_formula(torch.ops.surnn.fused_gru_backward, get_raw=True)
def _fused_backward(
    _y: Tensor, _last: Tensor, x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, *_a: Any, **_k: Any
) -> int:
    return 3 * _dense(x, h, w_ih, w_hh)  # it runs the forward pass again
