"""The step function of gates and spikes, with a surrogate for its derivative.

A surrogate is a smooth step ``F(slope * a)``. It is used in four modes:

========  ==============================  =======================================
mode      forward                         backward
========  ==============================  =======================================
hard      ``1[a > 0]``, exactly 0 or 1    ``F'`` (straight-through)
sampled   ``1[F > u]`` in training,       ``F'``, the derivative of the mean
          hard at evaluation
relaxed   ``F`` in training,              ``F'``
          hard at evaluation
soft      ``F`` itself (an ablation)      ``F'``
========  ==============================  =======================================

Under compilers and ``torch.func`` the step consists of plain differentiable operations. Otherwise
it is one autograd function, whose forward pass does not compute ``F``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from . import native_surrogate
from .runtime import can_branch_on, is_traced, is_transformed, runs_kernels

Kind = Literal["sigmoid", "triangle", "rectangle", "arctan"]
Mode = Literal["hard", "sampled", "relaxed", "soft"]


def _triangle(u: Tensor) -> Tensor:
    u = u.clamp(-1, 1)
    return 0.5 + u - 0.5 * u * u.abs()


_SMOOTH_STEP: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "triangle": _triangle,
    "rectangle": lambda u: 0.5 + 0.5 * u.clamp(-1, 1),
    "arctan": lambda u: 0.5 + torch.atan(u * (math.pi / 2)) / math.pi,
}
_DERIVATIVE: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": lambda u: torch.sigmoid(u) * torch.sigmoid(-u),
    "triangle": lambda u: (1 - u.abs()).clamp(min=0),
    "rectangle": lambda u: 0.5 * (u.abs() <= 1).to(u.dtype),
    "arctan": lambda u: 0.5 / (1 + (u * (math.pi / 2)) ** 2),
}
_COMPACT = ("triangle", "rectangle")


@dataclass(frozen=True)
class Surrogate:
    """A step function with a chosen derivative.

    Args:
        kind: the smooth step ``F``: ``"sigmoid"``; ``"triangle"`` and ``"rectangle"`` have
            compact support (the derivative is exactly 0 where ``|slope * a| > 1``, so that time
            steps far from the threshold cost no gradient work); ``"arctan"`` has heavy tails.
        slope: ``k`` in ``F(k * a)``; larger is steeper and narrower.

    Example:
        >>> a = torch.tensor([-1.0, 0.0, 0.5], requires_grad=True)
        >>> g = Surrogate("sigmoid", slope=4.0).step(a)
        >>> g.tolist()
        [0.0, 0.0, 1.0]
        >>> g.sum().backward()
        >>> bool((a.grad > 0).all())
        True
    """

    kind: Kind = "sigmoid"
    slope: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in _SMOOTH_STEP:
            raise ValueError(
                f"unknown surrogate {self.kind!r}; choose one of {', '.join(_SMOOTH_STEP)}"
            )
        if not (math.isfinite(self.slope) and self.slope > 0):
            raise ValueError(f"surrogate slope must be a positive number, got {self.slope!r}")

    @property
    def compact(self) -> bool:
        """True when the derivative is exactly zero away from the threshold."""
        return self.kind in _COMPACT

    def smooth(self, a: Tensor) -> Tensor:
        """The smooth step ``F(slope * a)``, rising from 0 to 1 through 1/2 at ``a = 0``."""
        return _SMOOTH_STEP[self.kind](a * self.slope)

    def derivative(self, a: Tensor) -> Tensor:
        """``dF/da``, which the backward pass uses instead of the step's derivative; 0 at NaN."""
        return _DERIVATIVE[self.kind](_closed_if_nan(a) * self.slope) * self.slope

    def support(self, a: Tensor) -> Tensor:
        """Where the derivative may be non-zero (everywhere, unless :attr:`compact`)."""
        if not self.compact:
            return torch.ones_like(a, dtype=torch.bool)
        return (a.detach() * self.slope).abs() <= 1

    def step(self, a: Tensor) -> Tensor:
        """``1[a > 0]``, strictly; the gradient is :meth:`derivative`."""
        recorded = torch.jit.is_tracing()  # one graph for both grad modes
        if not torch.is_grad_enabled() and not is_transformed() and not recorded:
            return _is_positive(a)
        if is_traced(a) or recorded:
            a = _closed_if_nan(a)
            return _straight_through((a > 0).to(a.dtype), self.smooth(a))
        return Step.apply(a, self)

    def sample(self, a: Tensor, noise: float | Tensor = 1.0) -> Tensor:
        """A draw from Bernoulli(F); the gradient is that of the mean.

        ``noise`` in [0, 1] narrows the random threshold around 1/2, for annealing: 1 draws fully,
        0 is :meth:`step` (up to rounding of ``F`` at the threshold).
        """
        if self.kind == "sigmoid" and _runs_in_c(a) and not torch.jit.is_tracing():
            if torch.is_grad_enabled() and a.requires_grad:
                return Step.apply(a, self, float(noise))
            return native_surrogate.sampled_gates(a, self.slope, float(noise))
        mean = self.smooth(_closed_if_nan(a))
        threshold = 0.5 + noise * (torch.rand_like(mean) - 0.5)
        return _straight_through((mean.detach() > threshold).to(a.dtype), mean)

    def relax(self, a: Tensor, noise: float | Tensor = 1.0) -> Tensor:
        """Between the smooth step (``noise`` 1) and :meth:`step` (0), for annealing.

        The gradient is that of the smooth step throughout.
        """
        mean = self.smooth(_closed_if_nan(a))
        if isinstance(noise, float | int) and noise == 1:
            return mean
        hard = (a.detach() > 0).to(a.dtype)
        return _straight_through(hard + noise * (mean.detach() - hard), mean)


class Step(torch.autograd.Function):
    """``1[a > 0]`` with the surrogate's derivative; twice differentiable.

    With ``noise``, a draw with a random threshold; only where the surrogate runs in C.
    """

    @staticmethod
    def forward(ctx, a: Tensor, surrogate: Surrogate, noise: float | None = None) -> Tensor:
        ctx.save_for_backward(a)
        ctx.surrogate = surrogate
        if noise is not None:
            return native_surrogate.sampled_gates(a, surrogate.slope, noise)
        return _is_positive(a)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        (a,) = ctx.saved_tensors
        surrogate = ctx.surrogate
        if torch.is_grad_enabled():
            return grad * surrogate.derivative(a), None, None
        if runs_kernels(a):
            from .triton_surrogate import step_gradient  # noqa: PLC0415 (triton is optional)

            return step_gradient(a, grad, surrogate.kind, surrogate.slope), None, None
        if _runs_in_c(a) and _runs_in_c(grad):
            by_a = native_surrogate.step_gradient(a, grad, surrogate.kind, surrogate.slope)
            return by_a, None, None
        return grad * surrogate.derivative(a), None, None


def _runs_in_c(a: Tensor) -> bool:
    return can_branch_on(a) and not runs_kernels(a) and native_surrogate.is_available(a)


def _is_positive(a: Tensor) -> Tensor:
    """``1[a > 0]`` in a's dtype, without gradient."""
    if not can_branch_on(a):
        return (a > 0).to(a.dtype)
    return torch.gt(a, 0, out=torch.empty_like(a, memory_format=torch.contiguous_format))


def _closed_if_nan(a: Tensor) -> Tensor:
    """NaN becomes -inf: the gate stays closed and gets no gradient."""
    return a.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)


def _straight_through(hard: Tensor, smooth: Tensor) -> Tensor:
    # Without the brackets, rounding makes one result in eight differ from 0 and 1.
    return hard + (smooth - smooth.detach())
