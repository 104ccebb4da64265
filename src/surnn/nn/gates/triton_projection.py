"""GPU kernels of a gate's linear map: float32 pre-activations from half-precision inputs.

A gate compares with a threshold, so its pre-activation is computed in float32. Plain PyTorch checks
x for NaN, replaces it and converts the dtype: three passes over a tensor much larger than the
result. These kernels read x once. Rows with NaN give NaN, which keeps the gate closed, and add
nothing to the gradient of the weights.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..kernel_launch import launch
from ..runtime import cdiv, differentiable_gradients, next_power_of_2, on_its_device

# Most partial sums of the weights' gradient; each program adds up a share of the rows.
SPLITS = 256


@triton.jit
def load_rows(X, m, i, M, I):
    """Rows of x in float32, and where they are NaN."""
    at = m.to(tl.int64)[:, None] * I + i[None, :]
    x = tl.load(X + at, mask=(m < M)[:, None] & (i < I)[None, :], other=0.0).to(tl.float32)
    return x, x != x


@triton.jit(do_not_specialize=["M"])
def gate_projection_kernel(
    X,  # [M, I]
    W,  # [G, I]
    BIAS,  # [G]
    OUT,  # [M, G]
    M,
    G,
    I,
    BM: tl.constexpr,
    BG: tl.constexpr,
    BI: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    g = tl.arange(0, BG)
    total = tl.zeros((BM, BG), tl.float32)
    has_nan = tl.zeros((BM,), tl.int32)
    for start in range(0, I, BI):
        i = start + tl.arange(0, BI)
        x, is_nan = load_rows(X, m, i, M, I)
        has_nan = tl.maximum(has_nan, tl.max(is_nan.to(tl.int32), 1))
        mask = (g < G)[None, :] & (i < I)[:, None]
        w = tl.load(W + g[None, :] * I + i[:, None], mask=mask, other=0.0)
        x = tl.where(is_nan, 0.0, x)
        if X.dtype.element_ty == tl.float32:
            total = tl.dot(x, w, total, input_precision="tf32x3")
        else:  # TF32 holds half-precision numbers exactly: only the weights need two products
            first = (w.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
            total = tl.dot(x, w - first, total, input_precision="tf32")
            total = tl.dot(x, first, total, input_precision="tf32")
    total += tl.load(BIAS + g, mask=g < G, other=0.0)[None, :]
    total = tl.where(has_nan[:, None] > 0, float("nan"), total)
    out = OUT + m.to(tl.int64)[:, None] * G + g[None, :]
    tl.store(out, total, mask=(m < M)[:, None] & (g < G)[None, :])


@triton.jit(do_not_specialize=["M"])
def gate_input_gradient_kernel(
    GRAD,  # [M, G]
    W,  # [G, I]
    GRAD_X,  # [M, I]
    M,
    G,
    I,
    BM: tl.constexpr,
    BG: tl.constexpr,
    BI: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    i = tl.program_id(1) * BI + tl.arange(0, BI)
    g = tl.arange(0, BG)
    at = m.to(tl.int64)[:, None]
    grad = tl.load(GRAD + at * G + g[None, :], mask=(m < M)[:, None] & (g < G)[None, :], other=0.0)
    mask = (g < G)[:, None] & (i < I)[None, :]
    w = tl.load(W + g[:, None] * I + i[None, :], mask=mask, other=0.0)
    whole: tl.constexpr = GRAD_X.dtype.element_ty == tl.float32
    by_x = tl.dot(grad, w, input_precision="tf32x3" if whole else "tf32")
    mask = (m < M)[:, None] & (i < I)[None, :]
    tl.store(GRAD_X + at * I + i[None, :], by_x.to(GRAD_X.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["M", "SHARE"])
def gate_weight_gradient_kernel(
    GRAD,  # [M, G]
    X,  # [M, I]
    GRAD_W,  # [splits, G, I]
    M,
    SHARE,
    G,
    I,
    BM: tl.constexpr,
    BG: tl.constexpr,
    BI: tl.constexpr,
):
    split = tl.program_id(0)
    i = tl.program_id(1) * BI + tl.arange(0, BI)
    g = tl.arange(0, BG)
    total = tl.zeros((BG, BI), tl.float32)
    for start in range(split * SHARE, tl.minimum((split + 1) * SHARE, M), BM):
        m = start + tl.arange(0, BM)
        x, is_nan = load_rows(X, m, i, M, I)
        at = m.to(tl.int64)[:, None] * G + g[None, :]
        grad = tl.load(GRAD + at, mask=(m < M)[:, None] & (g < G)[None, :], other=0.0)
        x = tl.where(is_nan, 0.0, x)
        whole: tl.constexpr = X.dtype.element_ty == tl.float32
        total = tl.dot(tl.trans(grad), x, total, input_precision="tf32x3" if whole else "tf32")
    out = GRAD_W + (split * G + g)[:, None].to(tl.int64) * I + i[None, :]
    tl.store(out, total, mask=(g < G)[:, None] & (i < I)[None, :])


class FusedProjection(torch.autograd.Function):
    """x [..., I] to float32 [..., G], for float32 weight [G, I] and bias [G]."""

    @staticmethod
    @on_its_device
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor):
        x, weight = x.contiguous(), weight.contiguous()
        gates, features = weight.shape
        rows = x.numel() // features
        out = torch.empty(*x.shape[:-1], gates, dtype=torch.float32, device=x.device)
        launch(
            gate_projection_kernel, (cdiv(rows, 64),), x, weight, bias, out, rows, gates, features,
            BM=64, **_tiles(gates, features, 64),
        )  # fmt: skip
        ctx.save_for_backward(x, weight, bias)
        return out

    @staticmethod
    @on_its_device
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        x, weight, bias = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives, differentiate the plain formula
            readable = x.isnan().any(-1, keepdim=True).logical_not()
            a = torch.nn.functional.linear(x.nan_to_num(nan=0.0).float(), weight, bias) * readable
            return differentiable_gradients(a, (x, weight, bias), grad)
        gates, features = weight.shape
        rows = x.numel() // features
        grad = grad.contiguous()
        grad_x = grad_weight = None
        tiles = _tiles(gates, features, 128)
        across = cdiv(features, tiles["BI"])
        if ctx.needs_input_grad[0]:
            grad_x = torch.empty_like(x)
            launch(
                gate_input_gradient_kernel, (cdiv(rows, 64), across), grad, weight, grad_x, rows,
                gates, features, BM=64, **tiles,
            )  # fmt: skip
        if ctx.needs_input_grad[1]:
            share = max(512, 64 * cdiv(rows, 64 * SPLITS))
            splits = cdiv(rows, share)
            sums = torch.empty(splits, gates, features, dtype=torch.float32, device=x.device)
            launch(
                gate_weight_gradient_kernel, (splits, across), grad, x, sums, rows, share, gates,
                features, BM=64, **tiles,
            )  # fmt: skip
            grad_weight = sums.sum(0)
        return grad_x, grad_weight, grad.flatten(0, -2).sum(0)


def _tiles(gates: int, features: int, widest: int) -> dict[str, int]:
    return {
        "BG": max(16, next_power_of_2(gates)),
        "BI": min(widest, max(16, next_power_of_2(features))),
    }
