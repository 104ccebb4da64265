"""GPU kernels of a learned sum of sinusoids and its gradient.

Plain PyTorch takes about twenty small operations for a rhythm and forty more for its gradient. On a
GPU, launching these takes longer than the scan of a short sequence; here there are three launches.
The results equal the plain formula up to rounding in float64.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..kernel_launch import launch
from ..pieces import allocate
from ..runtime import cdiv, differentiable_gradients, on_its_device
from ..surrogate import Surrogate
from ..triton_surrogate import surrogate_derivative
from .parts import sinusoids

# Time steps whose gradients one program sums; the partial sums are added in a fixed order.
SPLIT = 256


@triton.jit(do_not_specialize=["M"])
def sum_kernel(
    T,  # [M] int64
    OMEGA,  # [K] float64
    AMPLITUDE,  # [G, K]
    PHASE,  # [G, K]
    BIAS,  # [G]
    OUT,  # [M, G] float64
    GATE,  # [M, G]
    M,
    G,
    K,
    HAS_OUT: tl.constexpr,
    HAS_GATE: tl.constexpr,
    BM: tl.constexpr,
    BG: tl.constexpr,
):
    """b_g + sum over k of α_gk sin(ω_k t + φ_gk), and whether that is positive."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    g = tl.program_id(1) * BG + tl.arange(0, BG)
    t = tl.load(T + m, mask=m < M, other=0).to(tl.float64)
    total = tl.zeros((BM, BG), tl.float64)
    for k in range(0, K):
        angle = t * tl.load(OMEGA + k)
        amplitude = tl.load(AMPLITUDE + g * K + k, mask=g < G, other=0.0).to(tl.float64)
        phase = tl.load(PHASE + g * K + k, mask=g < G, other=0.0).to(tl.float64)
        by_sin, by_cos = amplitude * tl.cos(phase), amplitude * tl.sin(phase)
        total += tl.sin(angle)[:, None] * by_sin[None, :] + tl.cos(angle)[:, None] * by_cos[None, :]
    total += tl.load(BIAS + g, mask=g < G, other=0.0).to(tl.float64)[None, :]
    at = m[:, None].to(tl.int64) * G + g[None, :]
    mask = (m < M)[:, None] & (g < G)[None, :]
    if HAS_OUT:
        tl.store(OUT + at, total, mask=mask)
    if HAS_GATE:
        tl.store(GATE + at, tl.where(total > 0, 1.0, 0.0), mask=mask)


@triton.jit(do_not_specialize=["M"])
def correlate_kernel(
    T,
    OMEGA,
    GRAD,  # [M, G] float64: by the sum, or by the gate
    A,  # [M, G] float64: the sum, if there is a gate
    SUMS,  # [splits, 2, G, K] float64
    BIAS_SUMS,  # [splits, G] float64
    M,
    G,
    K,
    KIND: tl.constexpr,  # of the gate's surrogate; empty without a gate
    SLOPE: tl.constexpr,
    SPLIT: tl.constexpr,
    BM: tl.constexpr,
    BG: tl.constexpr,
    BK: tl.constexpr,
):
    """Partial sums over time steps of GRAD times sin(ω t), of GRAD times cos(ω t), and of GRAD."""
    split = tl.program_id(0)
    g = tl.program_id(1) * BG + tl.arange(0, BG)
    k = tl.program_id(2) * BK + tl.arange(0, BK)
    omega = tl.load(OMEGA + k, mask=k < K, other=0.0)
    by_sin = tl.zeros((BG, BK), tl.float64)
    by_cos = tl.zeros((BG, BK), tl.float64)
    by_bias = tl.zeros((BG,), tl.float64)
    for start in range(split * SPLIT, tl.minimum((split + 1) * SPLIT, M), BM):
        m = start + tl.arange(0, BM)
        angle = tl.load(T + m, mask=m < M, other=0).to(tl.float64)[:, None] * omega[None, :]
        at = m[:, None].to(tl.int64) * G + g[None, :]
        mask = (m < M)[:, None] & (g < G)[None, :]
        grad = tl.load(GRAD + at, mask=mask, other=0.0)
        if KIND != "":
            grad = grad * surrogate_derivative(tl.load(A + at, mask=mask, other=0.0), KIND, SLOPE)
        by_sin += tl.sum(grad[:, :, None] * tl.sin(angle)[:, None, :], 0)
        by_cos += tl.sum(grad[:, :, None] * tl.cos(angle)[:, None, :], 0)
        by_bias += tl.sum(grad, 0)
    out = SUMS + (tl.cast(split, tl.int64) * 2 * G + g)[:, None] * K + k[None, :]
    mask = (g < G)[:, None] & (k < K)[None, :]
    tl.store(out, by_sin, mask=mask)
    tl.store(out + tl.cast(G, tl.int64) * K, by_cos, mask=mask)
    if tl.program_id(2) == 0:
        tl.store(BIAS_SUMS + split * G + g, by_bias, mask=g < G)


@triton.jit(do_not_specialize=["SPLITS"])
def parameter_kernel(
    SUMS, BIAS_SUMS, AMPLITUDE, PHASE, GRAD_AMPLITUDE, GRAD_PHASE, GRAD_BIAS, SPLITS, G, GK,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of amplitude, phase and bias, from the partial sums."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    by_sin = tl.zeros((BLOCK,), tl.float64)
    by_cos = tl.zeros((BLOCK,), tl.float64)
    by_bias = tl.zeros((BLOCK,), tl.float64)
    for split in range(0, SPLITS):
        at = SUMS + tl.cast(split, tl.int64) * 2 * GK + i
        by_sin += tl.load(at, mask=i < GK, other=0.0)
        by_cos += tl.load(at + GK, mask=i < GK, other=0.0)
        by_bias += tl.load(BIAS_SUMS + split * G + i, mask=i < G, other=0.0)
    amplitude = tl.load(AMPLITUDE + i, mask=i < GK, other=0.0).to(tl.float64)
    phase = tl.load(PHASE + i, mask=i < GK, other=0.0).to(tl.float64)
    sin, cos = tl.sin(phase), tl.cos(phase)
    tl.store(GRAD_AMPLITUDE + i, by_sin * cos + by_cos * sin, mask=i < GK)
    tl.store(GRAD_PHASE + i, amplitude * (by_cos * cos - by_sin * sin), mask=i < GK)
    tl.store(GRAD_BIAS + i, by_bias.to(GRAD_BIAS.dtype.element_ty), mask=i < G)


class FusedSinusoids(torch.autograd.Function):
    """a [..., G] in float64 at time steps t [...]; parameters [G, K], [G, K], [G] and ω [K].

    With a surrogate, the gate ``1[a > 0]``, whose gradient uses the surrogate's derivative. Without
    ``trains`` nothing is kept for it.
    """

    @staticmethod
    @on_its_device
    def forward(
        ctx,
        t: Tensor,
        omega: Tensor,
        amplitude: Tensor,
        phase: Tensor,
        bias: Tensor,
        surrogate: Surrogate | None = None,
        trains: bool = True,
    ):
        gates, frequencies = amplitude.shape
        t = t.contiguous()
        amplitude, phase = amplitude.contiguous(), phase.contiguous()
        keeps_sum = trains or surrogate is None
        new = {"dtype": torch.float64, "device": t.device}
        a = torch.empty(*t.shape, gates, **new) if keeps_sum else None
        gate = None if surrogate is None else torch.empty(*t.shape, gates, **new)
        grid = (cdiv(t.numel(), 32), cdiv(gates, 8))
        launch(
            sum_kernel, grid, t, omega, amplitude, phase, bias, omega if a is None else a,
            omega if gate is None else gate, t.numel(), gates, frequencies, HAS_OUT=a is not None,
            HAS_GATE=gate is not None, BM=32, BG=8,
        )  # fmt: skip
        ctx.save_for_backward(t, omega, amplitude, phase, bias, None if gate is None else a)
        ctx.surrogate = surrogate
        return a if gate is None else gate

    @staticmethod
    @on_its_device
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        t, omega, amplitude, phase, bias, a = ctx.saved_tensors
        surrogate: Surrogate | None = ctx.surrogate
        if torch.is_grad_enabled():  # for second derivatives, differentiate the plain formula
            a = sinusoids(t.double(), omega, amplitude, phase) + bias.double()
            grad = grad if surrogate is None else grad * surrogate.derivative(a)
            grads = differentiable_gradients(a, (amplitude, phase, bias), grad)
            return None, None, *grads, None, None
        gates, frequencies = amplitude.shape
        grad = grad.contiguous()
        steps = t.numel()
        splits = cdiv(steps, SPLIT)
        specs = [((splits, 2, gates, frequencies), torch.float64), ((splits, gates), torch.float64)]
        _, (sums, bias_sums) = allocate(t.device, specs)
        grid = (splits, cdiv(gates, 8), cdiv(frequencies, 8))
        launch(
            correlate_kernel, grid, t, omega, grad, grad if a is None else a, sums, bias_sums,
            steps, gates, frequencies, KIND="" if surrogate is None else surrogate.kind,
            SLOPE=1.0 if surrogate is None else surrogate.slope, SPLIT=SPLIT, BM=16, BG=8, BK=8,
        )  # fmt: skip
        grads = torch.empty_like(amplitude), torch.empty_like(phase), torch.empty_like(bias)
        size = gates * frequencies
        launch(
            parameter_kernel, (cdiv(size, 128),), sums, bias_sums, amplitude, phase, *grads, splits,
            gates, size, BLOCK=128,
        )  # fmt: skip
        return None, None, *grads, None, None
