"""minGRU's scan as one GPU kernel in each direction, gates and nonlinearities included.

A program walks over the time steps of some units of one sequence, a tile of steps at a time. Inside
a tile the recurrence is an associative scan of pairs (keep, write). The forward pass reads the
gates and writes the states. The backward pass reads both and the gradient of the states, and writes
the gradient of the gates: nothing else is stored.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from surnn.nn.runtime import cdiv, on_its_device

UNITS, STEPS = 32, 64
"""Size of a tile."""


@triton.jit
def then(keep, write, next_keep, next_write):
    """Two steps ``h -> keep h + write`` as one."""
    return keep * next_keep, next_keep * write + next_write


@triton.jit
def sigmoid(x):
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, e) / (1.0 + e)


@triton.jit
def load(GATES, at, mask, W, dtype: tl.constexpr):
    """Update gate and candidate before their nonlinearities."""
    update = tl.load(GATES + at, mask=mask, other=0.0).to(dtype)
    return update, tl.load(GATES + at + W, mask=mask, other=0.0).to(dtype)


@triton.jit
def load_keep(GATES, RESET, at, t, mask, HAS_RESET: tl.constexpr, dtype: tl.constexpr):
    """The share of the state that a time step keeps; 0 outside ``mask`` and at a reset."""
    keep = sigmoid(-tl.load(GATES + at, mask=mask, other=0.0).to(dtype))
    if HAS_RESET:
        reset = tl.load(RESET + t[:, None] + tl.zeros_like(at), mask=mask, other=1)
        keep = tl.where(reset != 0, 0.0, keep)
    return tl.where(mask, keep, 0.0)


@triton.jit(do_not_specialize=["T"])
def mingru_kernel(
    GATES,  # [B, T, 2, W]
    RESET,  # [B, T]
    INITIAL,  # [B, W]
    H,  # [B, T, W]
    T,
    W,
    HAS_RESET: tl.constexpr,
    BT: tl.constexpr,
    BW: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    w = tl.program_id(1) * BW + tl.arange(0, BW)
    rows = tl.arange(0, BT)
    dtype: tl.constexpr = H.dtype.element_ty
    GATES += b * T * 2 * W
    RESET += b * T
    H += b * T * W
    carry = tl.load(INITIAL + b * W + w, mask=w < W, other=0.0).to(dtype)
    for start in range(0, T, BT):
        t = start + rows.to(tl.int64)
        mask = (t < T)[:, None] & (w < W)[None, :]
        at = t[:, None] * 2 * W + w[None, :]
        update, new = load(GATES, at, mask, W, dtype)
        keep = load_keep(GATES, RESET, at, t, mask, HAS_RESET, dtype)
        write = sigmoid(update) * tl.where(new >= 0, new + 0.5, sigmoid(new))
        keeps, writes = tl.associative_scan((keep, write), 0, then)
        h = writes + keeps * tl.expand_dims(carry, 0)
        tl.store(H + t[:, None] * W + w[None, :], h, mask=mask)
        carry = tl.sum(tl.where((rows == BT - 1)[:, None], h, 0.0), 0)


@triton.jit(do_not_specialize=["T"])
def mingru_gradient_kernel(
    GATES,  # [B, T, 2, W]
    RESET,  # [B, T]
    INITIAL,  # [B, W]
    H,  # [B, T, W]
    GRAD,  # [B, T, W], of H
    GRAD_GATES,  # [B, T, 2, W]
    GRAD_INITIAL,  # [B, W]
    T,
    W,
    HAS_RESET: tl.constexpr,
    BT: tl.constexpr,
    BW: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    w = tl.program_id(1) * BW + tl.arange(0, BW)
    rows = tl.arange(0, BT)
    dtype: tl.constexpr = H.dtype.element_ty
    GATES += b * T * 2 * W
    GRAD_GATES += b * T * 2 * W
    RESET += b * T
    H += b * T * W
    GRAD += b * T * W
    initial = tl.load(INITIAL + b * W + w, mask=w < W, other=0.0).to(dtype)
    carry = tl.zeros((BW,), dtype)
    for back in range(0, T, BT):
        t = ((T - 1 - back) // BT * BT).to(tl.int64) + rows
        mask = (t < T)[:, None] & (w < W)[None, :]
        at = t[:, None] * 2 * W + w[None, :]
        later = (t + 1 < T)[:, None] & (w < W)[None, :]
        next_keep = load_keep(GATES, RESET, at + 2 * W, t + 1, later, HAS_RESET, dtype)
        place = t[:, None] * W + w[None, :]
        grad = tl.load(GRAD + place, mask=mask, other=0.0).to(dtype)
        keeps, sums = tl.associative_scan((next_keep, grad), 0, then, reverse=True)
        grad = sums + keeps * tl.expand_dims(carry, 0)  # by each state, through all later ones
        carry = tl.sum(tl.where((rows == 0)[:, None], grad, 0.0), 0)
        earlier = mask & (t > 0)[:, None]
        before = tl.load(H + place - W, mask=earlier, other=0.0)
        before = tl.where((t > 0)[:, None], before, initial[None, :])
        if HAS_RESET:
            reset = tl.load(RESET + t[:, None] + tl.zeros_like(at), mask=mask, other=1)
            before = tl.where(reset != 0, 0.0, before)
        update, new = load(GATES, at, mask, W, dtype)
        z, s = sigmoid(update), sigmoid(new)
        candidate = tl.where(new >= 0, new + 0.5, s)
        grad_update = grad * (candidate - before) * z * (1.0 - z)
        grad_new = grad * z * tl.where(new >= 0, 1.0, s * (1.0 - s))
        tl.store(GRAD_GATES + at, grad_update.to(GRAD_GATES.dtype.element_ty), mask=mask)
        tl.store(GRAD_GATES + at + W, grad_new.to(GRAD_GATES.dtype.element_ty), mask=mask)
    first = tl.zeros((1,), tl.int64)
    at = first[:, None] + w[None, :]
    keep = load_keep(GATES, RESET, at, first, (w < W)[None, :], HAS_RESET, dtype)
    grad_initial = tl.sum(keep, 0) * carry
    tl.store(GRAD_INITIAL + b * W + w, grad_initial, mask=w < W)


class FusedMinGRU(torch.autograd.Function):
    """States [B, T, W] from gates [B, T, 2 W] before their nonlinearities, and the state before.

    States are float32, or float64 if gates are. ``reset`` is [B, T] or None.
    """

    @staticmethod
    @on_its_device
    def forward(ctx: Any, gates: Tensor, initial: Tensor, reset: Tensor | None) -> Tensor:
        gates, initial = gates.contiguous(), initial.contiguous()
        batch, steps, double = gates.shape
        units = double // 2
        dtype = torch.promote_types(gates.dtype, torch.float32)
        h = torch.empty(batch, steps, units, dtype=dtype, device=gates.device)
        mask = gates if reset is None else reset.contiguous().view(torch.uint8)
        ctx.options = {"HAS_RESET": reset is not None, "BT": STEPS, "BW": UNITS}
        mingru_kernel[(batch, cdiv(units, UNITS))](
            gates, mask, initial, h, steps, units, **ctx.options
        )
        ctx.save_for_backward(gates, initial, h, mask)
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    @on_its_device
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        gates, initial, h, mask = ctx.saved_tensors
        batch, steps, units = h.shape
        grad_gates, grad_initial = torch.empty_like(gates), torch.empty_like(initial)
        mingru_gradient_kernel[(batch, cdiv(units, UNITS))](
            gates, mask, initial, h, grad.contiguous(), grad_gates, grad_initial, steps, units,
            **ctx.options,
        )  # fmt: skip
        return grad_gates, grad_initial, None
