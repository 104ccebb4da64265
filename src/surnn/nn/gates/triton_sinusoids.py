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
from ..runtime import cdiv, differentiable_gradients, on_its_device
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
    M,
    G,
    K,
    BM: tl.constexpr,
    BG: tl.constexpr,
):
    """b_g + sum over k of α_gk sin(ω_k t + φ_gk)."""
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
    bias = tl.load(BIAS + g, mask=g < G, other=0.0).to(tl.float64)
    out = m[:, None].to(tl.int64) * G + g[None, :]
    tl.store(OUT + out, total + bias[None, :], mask=(m < M)[:, None] & (g < G)[None, :])


@triton.jit(do_not_specialize=["M"])
def correlate_kernel(
    T,
    OMEGA,
    GRAD,  # [M, G] float64
    SUMS,  # [splits, 2, G, K] float64
    M,
    G,
    K,
    SPLIT: tl.constexpr,
    BM: tl.constexpr,
    BG: tl.constexpr,
    BK: tl.constexpr,
):
    """Partial sums over time steps of GRAD times sin(ω t), and of GRAD times cos(ω t)."""
    split = tl.program_id(0)
    g = tl.program_id(1) * BG + tl.arange(0, BG)
    k = tl.program_id(2) * BK + tl.arange(0, BK)
    omega = tl.load(OMEGA + k, mask=k < K, other=0.0)
    by_sin = tl.zeros((BG, BK), tl.float64)
    by_cos = tl.zeros((BG, BK), tl.float64)
    for start in range(split * SPLIT, tl.minimum((split + 1) * SPLIT, M), BM):
        m = start + tl.arange(0, BM)
        angle = tl.load(T + m, mask=m < M, other=0).to(tl.float64)[:, None] * omega[None, :]
        at = m[:, None].to(tl.int64) * G + g[None, :]
        grad = tl.load(GRAD + at, mask=(m < M)[:, None] & (g < G)[None, :], other=0.0)
        by_sin += tl.sum(grad[:, :, None] * tl.sin(angle)[:, None, :], 0)
        by_cos += tl.sum(grad[:, :, None] * tl.cos(angle)[:, None, :], 0)
    out = SUMS + (tl.cast(split, tl.int64) * 2 * G + g)[:, None] * K + k[None, :]
    mask = (g < G)[:, None] & (k < K)[None, :]
    tl.store(out, by_sin, mask=mask)
    tl.store(out + tl.cast(G, tl.int64) * K, by_cos, mask=mask)


@triton.jit(do_not_specialize=["SPLITS"])
def parameter_kernel(
    SUMS, AMPLITUDE, PHASE, GRAD_AMPLITUDE, GRAD_PHASE, SPLITS, GK, BLOCK: tl.constexpr
):
    """Gradients of amplitude and phase, from the partial sums."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    by_sin = tl.zeros((BLOCK,), tl.float64)
    by_cos = tl.zeros((BLOCK,), tl.float64)
    for split in range(0, SPLITS):
        at = SUMS + tl.cast(split, tl.int64) * 2 * GK + i
        by_sin += tl.load(at, mask=i < GK, other=0.0)
        by_cos += tl.load(at + GK, mask=i < GK, other=0.0)
    amplitude = tl.load(AMPLITUDE + i, mask=i < GK, other=0.0).to(tl.float64)
    phase = tl.load(PHASE + i, mask=i < GK, other=0.0).to(tl.float64)
    sin, cos = tl.sin(phase), tl.cos(phase)
    tl.store(GRAD_AMPLITUDE + i, by_sin * cos + by_cos * sin, mask=i < GK)
    tl.store(GRAD_PHASE + i, amplitude * (by_cos * cos - by_sin * sin), mask=i < GK)


class FusedSinusoids(torch.autograd.Function):
    """a [..., G] in float64 at time steps t [...]; parameters [G, K], [G, K], [G] and ω [K]."""

    @staticmethod
    @on_its_device
    def forward(ctx, t: Tensor, omega: Tensor, amplitude: Tensor, phase: Tensor, bias: Tensor):
        gates, frequencies = amplitude.shape
        t = t.contiguous()
        amplitude, phase = amplitude.contiguous(), phase.contiguous()
        out = torch.empty(*t.shape, gates, dtype=torch.float64, device=t.device)
        grid = (cdiv(t.numel(), 32), cdiv(gates, 8))
        launch(
            sum_kernel, grid, t, omega, amplitude, phase, bias, out, t.numel(), gates, frequencies,
            BM=32, BG=8,
        )  # fmt: skip
        ctx.save_for_backward(t, omega, amplitude, phase, bias)
        return out

    @staticmethod
    @on_its_device
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        t, omega, amplitude, phase, bias = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives, differentiate the plain formula
            a = sinusoids(t.double(), omega, amplitude, phase) + bias.double()
            return None, None, *differentiable_gradients(a, (amplitude, phase, bias), grad)
        gates, frequencies = amplitude.shape
        grad = grad.contiguous()
        steps = t.numel()
        splits = cdiv(steps, SPLIT)
        sums = grad.new_empty(splits, 2, gates, frequencies)
        grid = (splits, cdiv(gates, 8), cdiv(frequencies, 8))
        launch(
            correlate_kernel, grid, t, omega, grad, sums, steps, gates, frequencies, SPLIT=SPLIT,
            BM=16, BG=8, BK=8,
        )  # fmt: skip
        by_amplitude, by_phase = torch.empty_like(amplitude), torch.empty_like(phase)
        size = gates * frequencies
        launch(
            parameter_kernel, (cdiv(size, 128),), sums, amplitude, phase, by_amplitude, by_phase,
            splits, size, BLOCK=128,
        )  # fmt: skip
        return None, None, by_amplitude, by_phase, grad.flatten(0, -2).sum(0).to(bias.dtype)
