"""Derivatives of the state by earlier states: Jacobian rows, sensitivities, Proposition 1."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ..scan import reference
from ..scan.contract import input_projection
from .depth import update_count
from .recording import scan_inputs


class Jacobians(NamedTuple):
    """One-step derivatives along a trajectory, of the state flattened to [C * H]."""

    step: Float[Tensor, "T S S"]
    """∂h_t/∂h_{t-1} = I + D_t (J_f - I)."""
    proposal: Float[Tensor, "T S S"]
    """J_f = ∂f/∂h_{t-1}: the same step with every gate open."""
    g: Float[Tensor, "T S"]
    """Gates of the state's coordinates."""


def jacobians(model: nn.Module, x: Tensor, layer: int = 0, steps: int | None = None) -> Jacobians:
    """Jacobians of one of surnn's layers along its trajectory on one sequence.

    Args:
        model: the layer, or a model that contains it.
        x: one sequence, as the model takes it.
        layer: which one, in the order of :func:`record`, layers of a stack one by one.
        steps: of the sequence, from the first; None is all.
    """
    known = scan_inputs(model, x)
    if not 0 <= layer < len(known):
        raise ValueError(
            f"there is no layer {layer}; {type(model).__name__} has {len(known)} of "
            "surnn's, counted from 0"
        )
    inputs = known[layer]
    if len(inputs.state) != 1:
        raise ValueError(f"jacobians are of one sequence, got {len(inputs.state)}")
    opened = torch.ones_like(inputs.gate)
    drive = input_projection(inputs.x, inputs.weight, inputs.bias)[:steps]
    units = inputs.gate.expand(-1, 1, *inputs.state.shape[1::2])  # [T, 1, N, D]
    coordinates = units[:steps, :, :, None].expand(-1, *inputs.state.shape).flatten(1)

    def step(flat: Tensor, gate_t: Tensor, drive_t: Tensor) -> Tensor:
        return reference.step(inputs, drive_t, gate_t, flat.view(inputs.state.shape)).flatten()

    found: tuple[list[Tensor], list[Tensor]] = ([], [])
    with torch.no_grad():
        flat = inputs.state.flatten()
        for t, drive_t in enumerate(drive):
            for kind, gate_t in zip(found, (inputs.gate[t], opened[t]), strict=True):
                kind.append(torch.func.jacrev(step)(flat, gate_t, drive_t))
            flat = step(flat, inputs.gate[t], drive_t)
    return Jacobians(torch.stack(found[0]), torch.stack(found[1]), coordinates.detach())


def identity_rows(jacobian: Float[Tensor, "S S"]) -> Bool[Tensor, "S"]:
    """Which rows are those of the identity, exactly: coordinates that were carried."""
    return (jacobian == torch.eye(len(jacobian)).to(jacobian)).all(1)


def sensitivity(jac: Jacobians, s: int, t: int) -> Float[Tensor, "S S"]:
    """∂h_t/∂h_s: the product of the one-step Jacobians in (s, t], latest first."""
    total = torch.eye(jac.step.shape[-1]).to(jac.step)
    for step in jac.step[s:t]:
        total = step @ total
    return total


@dataclass(frozen=True)
class RowBound:
    """Proposition 1, measured: ``norm = constant * rho ** count`` for every coordinate."""

    norm: Float[Tensor, "*t S"]
    """‖e_i ∂h_t/∂h_s‖₂: the sensitivity of coordinate i."""
    count: Int[Tensor, "*t S"]
    """Updates of coordinate i in (s, t]."""
    rho: float
    """The largest ‖J_f‖₂ in the window."""
    constant: Float[Tensor, "*t S"]
    """C_i(s, t) = norm / rho ** count; the paper leaves open whether it is bounded."""


def row_bound(jac: Jacobians, s: int, t: int) -> RowBound:
    """Row sensitivities in (s, t], and the constant that Proposition 1 needs there."""
    norm = sensitivity(jac, s, t).norm(dim=1)
    count = update_count(jac.g, s, t)
    rho = torch.linalg.matrix_norm(jac.proposal[s:t], ord=2).max().item()
    return RowBound(norm, count, rho, norm / torch.tensor(rho, dtype=norm.dtype) ** count)


def row_growth(jac: Jacobians) -> RowBound:
    """:func:`row_bound` in (0, t] for every t from 1 on: all fields but rho, which is that of the
    whole trajectory, are [T, S]."""
    total = torch.eye(jac.step.shape[-1], dtype=torch.float64)
    norms = []
    for step in jac.step.double():
        total = step @ total
        norms.append(total.norm(dim=1))
    norm, count = torch.stack(norms), (jac.g != 0).cumsum(0)
    rho = torch.linalg.matrix_norm(jac.proposal, ord=2).max().item()
    return RowBound(norm, count, rho, norm / torch.tensor(rho, dtype=norm.dtype) ** count)
