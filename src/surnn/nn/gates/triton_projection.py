"""GPU kernels of a gate's linear map: float32 pre-activations from half-precision inputs.

A gate compares with a threshold, so its pre-activation is computed in float32. Plain PyTorch checks
x for NaN, replaces it and converts the dtype: three passes over a tensor much larger than the
result. These kernels read x once. Rows with NaN give NaN, which keeps the gate closed, and add
nothing to the gradient of the weights.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..kernel_launch import launch
from ..pieces import allocate
from ..runtime import cdiv, differentiable_gradients, next_power_of_2, on_its_device
from ..surrogate import Surrogate
from ..triton_sums import add_splits
from ..triton_surrogate import sigmoid, surrogate_derivative

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
    RANDOM,  # [M, G]: uniform numbers, for draws
    GATE,  # [M, G]
    M,
    G,
    I,
    NOISE,  # how wide the random thresholds are
    SLOPE: tl.constexpr,  # of the surrogate
    HAS_OUT: tl.constexpr,
    HAS_GATE: tl.constexpr,
    SAMPLED: tl.constexpr,
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
    at = m.to(tl.int64)[:, None] * G + g[None, :]
    mask = (m < M)[:, None] & (g < G)[None, :]
    if HAS_OUT:
        tl.store(OUT + at, total, mask=mask)
    if HAS_GATE:
        opens = total > 0
        if SAMPLED:
            random = tl.load(RANDOM + at, mask=mask, other=0.0)
            opens = sigmoid(total * SLOPE) > 0.5 + NOISE * (random - 0.5)
        tl.store(GATE + at, tl.where(opens, 1.0, 0.0), mask=mask)


@triton.jit
def load_gradients(GRAD, A, at, mask, KIND: tl.constexpr, SLOPE: tl.constexpr):
    """Gradients by pre-activations; GRAD has those by the gate, if there is one."""
    grad = tl.load(GRAD + at, mask=mask, other=0.0)
    if KIND != "":
        grad = grad * surrogate_derivative(tl.load(A + at, mask=mask, other=0.0), KIND, SLOPE)
    return grad


@triton.jit(do_not_specialize=["M"])
def gate_input_gradient_kernel(
    GRAD,  # [M, G]
    A,  # [M, G], if there is a gate
    W,  # [G, I]
    GRAD_X,  # [M, I]
    M,
    G,
    I,
    KIND: tl.constexpr,  # of the gate's surrogate; empty without a gate
    SLOPE: tl.constexpr,
    BM: tl.constexpr,
    BG: tl.constexpr,
    BI: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    i = tl.program_id(1) * BI + tl.arange(0, BI)
    g = tl.arange(0, BG)
    at = m.to(tl.int64)[:, None]
    mask = (m < M)[:, None] & (g < G)[None, :]
    grad = load_gradients(GRAD, A, at * G + g[None, :], mask, KIND, SLOPE)
    mask = (g < G)[:, None] & (i < I)[None, :]
    w = tl.load(W + g[:, None] * I + i[None, :], mask=mask, other=0.0)
    whole: tl.constexpr = GRAD_X.dtype.element_ty == tl.float32
    by_x = tl.dot(grad, w, input_precision="tf32x3" if whole else "tf32")
    mask = (m < M)[:, None] & (i < I)[None, :]
    tl.store(GRAD_X + at * I + i[None, :], by_x.to(GRAD_X.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["M", "SHARE"])
def gate_weight_gradient_kernel(
    GRAD,  # [M, G]
    A,  # [M, G], if there is a gate
    X,  # [M, I]
    SUMS,  # [splits, G * I + G]: by weights, then by biases
    M,
    SHARE,
    G,
    I,
    KIND: tl.constexpr,  # of the gate's surrogate; empty without a gate
    SLOPE: tl.constexpr,
    BM: tl.constexpr,
    BG: tl.constexpr,
    BI: tl.constexpr,
):
    split = tl.program_id(0)
    i = tl.program_id(1) * BI + tl.arange(0, BI)
    g = tl.arange(0, BG)
    total = tl.zeros((BG, BI), tl.float32)
    by_bias = tl.zeros((BG,), tl.float32)
    for start in range(split * SHARE, tl.minimum((split + 1) * SHARE, M), BM):
        m = start + tl.arange(0, BM)
        x, is_nan = load_rows(X, m, i, M, I)
        at = m.to(tl.int64)[:, None] * G + g[None, :]
        mask = (m < M)[:, None] & (g < G)[None, :]
        grad = load_gradients(GRAD, A, at, mask, KIND, SLOPE)
        by_bias += tl.sum(grad, 0)
        x = tl.where(is_nan, 0.0, x)
        whole: tl.constexpr = X.dtype.element_ty == tl.float32
        total = tl.dot(tl.trans(grad), x, total, input_precision="tf32x3" if whole else "tf32")
    first = SUMS + tl.cast(split, tl.int64) * (G * I + G)
    tl.store(first + g[:, None] * I + i[None, :], total, mask=(g < G)[:, None] & (i < I)[None, :])
    if tl.program_id(1) == 0:
        tl.store(first + G * I + g, by_bias, mask=g < G)


class FusedProjection(torch.autograd.Function):
    """x [..., I] to float32 [..., G], for float32 weight [G, I] and bias [G].

    With a surrogate, the gate that is open where that is positive; with ``noise``, a draw (see
    :meth:`~surnn.Surrogate.sample`). Its gradient uses the surrogate's derivative. Without
    ``trains`` nothing is kept for it.
    """

    @staticmethod
    @on_its_device
    def forward(
        ctx,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        surrogate: Surrogate | None = None,
        noise: float | None = None,
        trains: bool = True,
    ):
        x, weight = x.contiguous(), weight.contiguous()
        gates, features = weight.shape
        rows = x.numel() // features
        keeps_sum = trains or surrogate is None
        shape, new = (*x.shape[:-1], gates), {"dtype": torch.float32, "device": x.device}
        a = torch.empty(shape, **new) if keeps_sum else None
        gate = None if surrogate is None else torch.empty(shape, **new)
        random = None if noise is None else torch.rand(shape, **new)
        launch(
            gate_projection_kernel, (cdiv(rows, 64),), x, weight, bias, *_or(bias, a, random, gate),
            rows, gates, features, 0.0 if noise is None else noise,
            SLOPE=1.0 if surrogate is None else surrogate.slope, HAS_OUT=a is not None,
            HAS_GATE=gate is not None, SAMPLED=random is not None, BM=64,
            **_tiles(gates, features, 64),
        )  # fmt: skip
        ctx.save_for_backward(x, weight, bias, None if gate is None else a)
        ctx.surrogate = surrogate
        return a if gate is None else gate

    @staticmethod
    @on_its_device
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        x, weight, bias, a = ctx.saved_tensors
        surrogate: Surrogate | None = ctx.surrogate
        if torch.is_grad_enabled():  # for second derivatives, differentiate the plain formula
            readable = x.isnan().any(-1, keepdim=True).logical_not()
            a = torch.nn.functional.linear(x.nan_to_num(nan=0.0).float(), weight, bias) * readable
            grad = grad if surrogate is None else grad * surrogate.derivative(a)
            return *differentiable_gradients(a, (x, weight, bias), grad), None, None, None
        gates, features = weight.shape
        rows = x.numel() // features
        grad = grad.contiguous()
        grad_x = grad_weight = grad_bias = None
        tiles = _tiles(gates, features, 128)
        tiles |= {"KIND": "", "SLOPE": 1.0}
        if surrogate is not None:
            tiles |= {"KIND": surrogate.kind, "SLOPE": surrogate.slope}
        across = cdiv(features, tiles["BI"])
        grads = _or(grad, grad, a)
        if ctx.needs_input_grad[0]:
            grad_x = torch.empty_like(x)
            launch(
                gate_input_gradient_kernel, (cdiv(rows, 64), across), *grads, weight, grad_x, rows,
                gates, features, BM=64, **tiles,
            )  # fmt: skip
        if any(ctx.needs_input_grad[1:3]):
            share = max(512, 64 * cdiv(rows, 64 * SPLITS))
            splits = cdiv(rows, share)
            spec = (splits, gates * features + gates), torch.float32
            _, (sums,) = allocate(x.device, [spec])
            launch(
                gate_weight_gradient_kernel, (splits, across), *grads, x, sums, rows, share, gates,
                features, BM=64, **tiles,
            )  # fmt: skip
            grad_weight, grad_bias = torch.empty_like(weight), torch.empty_like(bias)
            add_splits(sums, grad_weight, grad_bias)
        return grad_x, grad_weight, grad_bias, None, None, None


def _or(other: Tensor, *tensors: Tensor | None) -> list[Tensor]:
    """``tensors``, with another one where a kernel reads none."""
    return [other if tensor is None else tensor for tensor in tensors]


def _tiles(gates: int, features: int, widest: int) -> dict[str, Any]:
    return {
        "BG": max(16, next_power_of_2(gates)),
        "BI": min(widest, max(16, next_power_of_2(features))),
    }
