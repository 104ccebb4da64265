"""Leaky integrate-and-fire cells, plain and adaptive.

The adaptive cell in its usual, delayed form: ``b ← ρ b + (1 - ρ) s``, ``θ = θ₀ + β b``,
``u ← α u + (1 - α) I - θ s``, ``s = 1[u > θ]``, where s on the right is the previous spike. We
keep (u, b) *after* the decay and reset that the spike causes, which gives the same trajectory
and a state complete in itself: a unit that closes right after a spike has already been reset.

``v = u + (1 - α) I``, ``s = 1[v > θ(b)]``, ``b' = ρ b + (1 - ρ) s``, ``u' = α v - θ(b') s``.

Component 0 is the spike that was *emitted* at the last step: a carried unit emits none, so it
decays by factor 0 on a carry (see ``decay`` in :mod:`surnn.scan.contract`).
"""

import torch
from torch import Tensor

from ..surrogate import Surrogate
from .base import Cell, Linearization

# A compact surrogate in the voltage's own scale, as spiking networks commonly use.
SPIKE = Surrogate("triangle", slope=2.0)


class LIF(Cell):
    """Leaky integrate-and-fire neuron: a decaying voltage that spikes above a fixed threshold.

    ``unit`` is α, the voltage's decay per step.
    """

    name = "lif"
    drives = 1
    components = ("s", "u")
    unit_parameters = ("alpha",)

    def __init__(
        self, name: str = "lif", threshold: float = 1.0, surrogate: Surrogate = SPIKE
    ) -> None:
        self.name = name
        self.threshold = threshold
        self.surrogate = surrogate

    def update(self, drive, rec, state, unit) -> Tensor:
        (alpha,) = unit
        v = state[..., 1, :] + (1 - alpha) * (drive + rec)[..., 0, :]
        s = self.surrogate.step(v - self.threshold)
        return torch.stack((s, alpha * v - self.threshold * s), -2)

    def linearize(self, drive, rec, state, unit) -> Linearization:
        (alpha,) = unit
        current = (drive + rec)[..., 0, :]
        v = state[..., 1, :] + (1 - alpha) * current
        s_by_v = self.surrogate.derivative(v - self.threshold)
        u_by_v = alpha - self.threshold * s_by_v
        by_v = torch.stack((s_by_v, u_by_v), -2).unsqueeze(-2)  # [..., C, 1, D]
        explicit = torch.stack((torch.zeros_like(v), v), -2).unsqueeze(-2)
        return Linearization(
            by_v * (1 - alpha).unsqueeze(-2).unsqueeze(-2),
            None,
            torch.cat((torch.zeros_like(by_v), by_v), -2),
            explicit - by_v * current.unsqueeze(-2).unsqueeze(-2),
        )


class ALIF(Cell):
    """Adaptive leaky integrate-and-fire neuron: each spike raises its threshold for a while.

    The threshold is ``θ₀ + β b``; ``unit`` is (α, ρ), the decays of the voltage and of b.
    """

    name = "alif"
    drives = 1
    components = ("s", "u", "b")
    unit_parameters = ("alpha", "rho")

    def __init__(
        self,
        name: str = "alif",
        threshold: float = 0.01,
        beta: float = 1.8,
        surrogate: Surrogate = SPIKE,
    ) -> None:
        self.name = name
        self.threshold = threshold
        self.beta = beta
        self.surrogate = surrogate

    def update(self, drive, rec, state, unit) -> Tensor:
        alpha, rho = unit
        u, b = state[..., 1, :], state[..., 2, :]
        v = u + (1 - alpha) * (drive + rec)[..., 0, :]
        s = self.surrogate.step(v - (self.threshold + self.beta * b))
        b = rho * b + (1 - rho) * s
        return torch.stack((s, alpha * v - (self.threshold + self.beta * b) * s, b), -2)

    def linearize(self, drive, rec, state, unit) -> Linearization:
        alpha, rho = unit
        u, b = state[..., 1, :], state[..., 2, :]
        current = (drive + rec)[..., 0, :]
        v = u + (1 - alpha) * current
        above = v - (self.threshold + self.beta * b)
        s = (above > 0).to(v.dtype)
        theta_new = self.threshold + self.beta * (rho * b + (1 - rho) * s)
        s_by_v = self.surrogate.derivative(above)
        s_by_b = -self.beta * s_by_v
        b_by_v = (1 - rho) * s_by_v
        b_by_b = rho + (1 - rho) * s_by_b
        b_by_rho = b - s
        u_by_v = alpha - theta_new * s_by_v - self.beta * s * b_by_v
        u_by_b = -theta_new * s_by_b - self.beta * s * b_by_b
        u_by_rho = -self.beta * s * b_by_rho
        zero = torch.zeros_like(v)
        by_v = torch.stack((s_by_v, u_by_v, b_by_v), -2)  # [..., C, D]
        by_b = torch.stack((s_by_b, u_by_b, b_by_b), -2)
        by_alpha = torch.stack((zero, v, zero), -2) - by_v * current.unsqueeze(-2)
        by_rho = torch.stack((zero, u_by_rho, b_by_rho), -2)
        return Linearization(
            (by_v * (1 - alpha).unsqueeze(-2)).unsqueeze(-2),
            None,
            torch.stack((torch.zeros_like(by_v), by_v, by_b), -2),
            torch.stack((by_alpha, by_rho), -2),
        )
