"""The one non-differentiable place: a strict step function and what stands in for its derivative.

A surrogate is a smooth step ``F(slope * a)``. It is used in three modes:

========  ==============================  =======================================
mode      forward                         backward
========  ==============================  =======================================
hard      ``1[a > 0]``, exactly 0 or 1    ``F'`` (straight-through)
sampled   ``1[F > u]`` in training,       ``F'``, the derivative of the mean
          hard at evaluation
soft      ``F`` itself (an ablation)      ``F'``
========  ==============================  =======================================

Compilers and ``torch.func`` see plain differentiable operations. Otherwise the hard step is an
operation of its own, which does not compute what its forward pass has no use for.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .eager import is_traced, is_transformed

Kind = Literal["sigmoid", "triangle", "rectangle", "arctan"]
Mode = Literal["hard", "sampled", "soft"]


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
            compact support (derivative exactly 0 where ``|slope * a| > 1``, so that steps far
            from the threshold cost no gradient work); ``"arctan"`` has heavy tails.
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

    def smooth(self, a: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """The smooth step ``F(slope * a)``, rising from 0 to 1 through 1/2 at ``a = 0``."""
        return _SMOOTH_STEP[self.kind](a * self.slope)

    def derivative(self, a: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """``dF/da``: what the backward pass uses in place of the step's derivative."""
        return _DERIVATIVE[self.kind](a * self.slope) * self.slope

    def support(self, a: Float[Tensor, "*s"]) -> Bool[Tensor, "*s"]:
        """Where the derivative may be non-zero (everywhere, unless :attr:`compact`)."""
        if not self.compact:
            return torch.ones_like(a, dtype=torch.bool)
        return (a.detach() * self.slope).abs() <= 1

    def step(self, a: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """``1[a > 0]``, strictly; the gradient is :meth:`derivative`."""
        if not torch.is_grad_enabled() and not is_transformed():  # nor any gradient in a trace
            return (a > 0).to(a.dtype)
        if is_traced(a):
            a = _closed_if_nan(a)
            return _straight_through((a > 0).to(a.dtype), self.smooth(a))
        return Step.apply(a, self)

    def sample(self, a: Float[Tensor, "*s"], noise: float | Tensor = 1.0) -> Float[Tensor, "*s"]:
        """A draw from Bernoulli(F); the gradient is that of the mean.

        ``noise`` in [0, 1] narrows the random threshold around 1/2: 1 draws fully, 0 is
        :meth:`step` (up to rounding of ``F`` at the threshold). It is the annealing knob.
        """
        mean = self.smooth(_closed_if_nan(a))
        threshold = 0.5 + noise * (torch.rand_like(mean) - 0.5)
        return _straight_through((mean.detach() > threshold).to(a.dtype), mean)


class Step(torch.autograd.Function):
    """``1[a > 0]`` with the surrogate's derivative; it can be differentiated again."""

    @staticmethod
    def forward(ctx, a: Tensor, surrogate: Surrogate) -> Tensor:
        ctx.save_for_backward(a)
        ctx.surrogate = surrogate
        return (a > 0).to(a.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        (a,) = ctx.saved_tensors
        return grad * ctx.surrogate.derivative(_closed_if_nan(a)), None


def _closed_if_nan(a: Tensor) -> Tensor:
    """A pre-activation that is not a number keeps the gate closed, and gets no gradient."""
    return a.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)


def _straight_through(hard: Tensor, smooth: Tensor) -> Tensor:
    # The brackets matter: hard + smooth - smooth.detach() is not exactly 0/1 one time in eight.
    return hard + (smooth - smooth.detach())
