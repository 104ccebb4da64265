"""Derivatives of the state with respect to earlier states, and Proposition 1 measured."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from surnn.scan import reference
from surnn.scan.contract import input_projection

from .depth import update_count
from .recording import scan_inputs


class Jacobians(NamedTuple):
    """One-step derivatives along a trajectory, for the state flattened to [C * H]."""

    step: Float[Tensor, "T S S"]
    """∂h_t/∂h_{t-1} = I + D_t (J_f - I)."""
    proposal: Float[Tensor, "T S S"]
    """J_f = ∂f/∂h_{t-1}: the same time step with every gate open."""
    g: Float[Tensor, "T S"]
    """Gate of each coordinate of the state."""


def jacobians(model: nn.Module, x: Tensor, layer: int = 0, steps: int | None = None) -> Jacobians:
    """Jacobians of one of surnn's layers along its trajectory on one sequence.

    Args:
        model: the layer, or a model that contains it.
        x: one sequence, the input of the model.
        layer: number of the layer in the order of :func:`record`, from 0.
        steps: number of time steps, from the first; None means all.
    """
    layers = scan_inputs(model, x)
    if not 0 <= layer < len(layers):
        raise ValueError(
            f"there is no layer {layer}; {type(model).__name__} has {len(layers)} of surnn's "
            "layers, counted from 0"
        )
    inputs = layers[layer]
    if len(inputs.state) != 1:
        raise ValueError(f"jacobians takes one sequence, got {len(inputs.state)}")
    all_open = torch.ones_like(inputs.gate)
    drive = input_projection(inputs.x, inputs.weight, inputs.bias)[:steps]
    units = inputs.gate.expand(-1, 1, *inputs.state.shape[1::2])  # [T, 1, N, D]
    coordinates = units[:steps, :, :, None].expand(-1, *inputs.state.shape).flatten(1)

    def step(flat: Tensor, gate_t: Tensor, drive_t: Tensor) -> Tensor:
        return reference.step(inputs, drive_t, gate_t, flat.view(inputs.state.shape)).flatten()

    results: tuple[list[Tensor], list[Tensor]] = ([], [])
    with torch.no_grad():
        flat = inputs.state.flatten()
        for t, drive_t in enumerate(drive):
            for result, gate_t in zip(results, (inputs.gate[t], all_open[t]), strict=True):
                result.append(torch.func.jacrev(step)(flat, gate_t, drive_t))
            flat = step(flat, inputs.gate[t], drive_t)
    return Jacobians(torch.stack(results[0]), torch.stack(results[1]), coordinates.detach())


def identity_rows(jacobian: Float[Tensor, "S S"]) -> Bool[Tensor, "S"]:
    """Which rows equal those of the identity exactly: coordinates that were carried."""
    return (jacobian == torch.eye(len(jacobian)).to(jacobian)).all(1)


def sensitivity(jac: Jacobians, s: int, t: int) -> Float[Tensor, "S S"]:
    """∂h_t/∂h_s: the product of the one-step Jacobians in (s, t], latest first."""
    total = torch.eye(jac.step.shape[-1]).to(jac.step)
    for step in jac.step[s:t]:
        total = step @ total
    return total


@dataclass(frozen=True)
class RowBound:
    """Proposition 1 measured: ``norm = constant * rho ** count`` for every coordinate."""

    norm: Float[Tensor, "*t S"]
    """‖e_i ∂h_t/∂h_s‖₂: the sensitivity of coordinate i."""
    count: Int[Tensor, "*t S"]
    """Updates of coordinate i in (s, t]."""
    rho: float
    """The largest ‖J_f‖₂ in the window."""
    constant: Float[Tensor, "*t S"]
    """C_i(s, t) = norm / rho ** count; the paper does not show that it is bounded."""


def row_bound(jac: Jacobians, s: int, t: int) -> RowBound:
    """Row sensitivities in (s, t], and the constant that Proposition 1 needs there."""
    norm = sensitivity(jac, s, t).norm(dim=1)
    count = update_count(jac.g, s, t)
    rho = torch.linalg.matrix_norm(jac.proposal[s:t], ord=2).max().item()
    return RowBound(norm, count, rho, norm / torch.tensor(rho, dtype=norm.dtype) ** count)


def row_growth(jac: Jacobians) -> RowBound:
    """:func:`row_bound` in (0, t] for t = 1, ..., T.

    All fields are [T, S], except rho, which is the maximum over the whole trajectory.
    """
    total = torch.eye(jac.step.shape[-1], dtype=torch.float64)
    norms = []
    for step in jac.step.double():
        total = step @ total
        norms.append(total.norm(dim=1))
    norm, count = torch.stack(norms), (jac.g != 0).cumsum(0)
    rho = torch.linalg.matrix_norm(jac.proposal, ord=2).max().item()
    return RowBound(norm, count, rho, norm / torch.tensor(rho, dtype=norm.dtype) ** count)
