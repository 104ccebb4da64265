"""A learned sum of sinusoids and its gradient on a CPU.

Frequencies are fixed, so the sines of a range of time steps are the same in every optimizer step:
they are computed once.
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ..runtime import can_branch_on, differentiable_gradients
from .parts import frequency_grid, sinusoids

# Ranges of time steps whose sines are kept, and the most numbers that one of them has.
_KEPT_RANGES = 2
_MOST_NUMBERS = 1 << 20


@dataclass(frozen=True)
class Grid:
    """The frequencies of a sum of sinusoids."""

    min_period: float
    max_period: float
    count: int

    def frequencies(self) -> Tensor:
        return frequency_grid(self.min_period, self.max_period, self.count, torch.device("cpu"))


class _Sines(NamedTuple):
    t: Tensor
    """[T, 1]"""
    sin: Tensor
    """[T, K] in float64"""
    cos: Tensor
    both: Tensor
    """[T, 2K] in float32, for gradients"""


def is_supported(t: Tensor, grid: Grid) -> bool:
    """Whether time steps t [T, b] are those of all sequences, on a CPU, and not too many."""
    small = t.shape[1] == 1 and t.shape[0] * grid.count <= _MOST_NUMBERS
    return small and t.is_cpu and can_branch_on(t) and not torch.jit.is_tracing()


@cache
def _kept(grid: Grid) -> list[_Sines]:
    return []


def _sines(t: Tensor, grid: Grid) -> _Sines:
    kept = _kept(grid)
    for sines in kept:
        if torch.equal(sines.t, t):
            return sines
    with torch.inference_mode(False), torch.no_grad():  # later callers may train with them
        angle = t.double() * grid.frequencies()
        sin, cos = angle.sin(), angle.cos()
        sines = _Sines(t.clone(), sin, cos, torch.cat((sin, cos), 1).float())
    kept[:] = [sines, *kept[: _KEPT_RANGES - 1]]
    return sines


class CpuSinusoids(torch.autograd.Function):
    """a [T, 1, G] in float64 at time steps t [T, 1]; parameters [G, K], [G, K] and [G]."""

    @staticmethod
    def forward(ctx, t: Tensor, grid: Grid, amplitude: Tensor, phase: Tensor, bias: Tensor):  # type: ignore[override]
        sines = _sines(t, grid)
        scale, shift = amplitude.double(), phase.double()
        sin, cos = shift.sin(), shift.cos()
        ctx.sines, ctx.grid = sines, grid
        ctx.save_for_backward(amplitude, phase, bias, sin, cos)
        a = functional.linear(sines.sin, scale * cos)
        a += functional.linear(sines.cos, scale * sin)
        a += bias.double()
        return a.unsqueeze(1)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        amplitude, phase, bias, sin, cos = ctx.saved_tensors
        sines: _Sines = ctx.sines
        if torch.is_grad_enabled():  # for second derivatives, differentiate the plain formula
            omega = ctx.grid.frequencies()
            a = sinusoids(sines.t.double(), omega, amplitude, phase) + bias.double()
            return None, None, *differentiable_gradients(a, (amplitude, phase, bias), grad)
        # Decisions need float64; the gradient has the precision of the parameters.
        exact = amplitude.dtype == torch.float64
        both = torch.cat((sines.sin, sines.cos), 1) if exact else sines.both
        rows = grad.squeeze(1).t().to(both.dtype)
        by_sin, by_cos = (rows @ both).chunk(2, 1)
        by_amplitude = (by_sin * cos).add_(by_cos * sin)
        by_phase = (by_cos.mul_(cos)).sub_(by_sin.mul_(sin)).mul_(amplitude)
        by_bias = rows.sum(1).to(bias.dtype)
        return None, None, by_amplitude.to(amplitude.dtype), by_phase.to(phase.dtype), by_bias
