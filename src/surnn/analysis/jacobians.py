"""Derivatives of the state by earlier states: Jacobian rows, sensitivities, Proposition 1."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..gates import Schedule
from ..layers import SelectiveLayer
from ..layers.sequence import spread_gates
from ..scan import reference
from ..scan.contract import input_projection
from .depth import update_count


class Jacobians(NamedTuple):
    """One-step derivatives along a trajectory, of the state flattened to [C * H]."""

    step: Float[Tensor, "T S S"]
    """∂h_t/∂h_{t-1} = I + D_t (J_f - I)."""
    proposal: Float[Tensor, "T S S"]
    """J_f = ∂f/∂h_{t-1}: the same step with every gate open."""
    g: Float[Tensor, "T S"]
    """Gates of the state's coordinates."""


def jacobians(layer: SelectiveLayer, x: Float[Tensor, "T I"]) -> Jacobians:
    """Jacobians of a one-layer, one-directional layer along its trajectory on one sequence."""
    if layer.num_layers * layer.num_directions != 1 or layer.expand > 1:
        raise ValueError("jacobians are of a single layer in one direction, without expand")
    x = x.unsqueeze(1)
    state = layer.init_state(1)
    steps = torch.arange(1, x.shape[0] + 1, device=x.device)[:, None]
    gate = layer.gates[0]
    schedule, _ = gate(steps, x, gate.init_memory(1))  # type: ignore[operator]
    inputs = layer._scan_inputs(0, x, schedule, state.cell[0], None, binary=True)
    everything = Schedule(torch.ones_like(schedule.g), None)
    opened, _ = spread_gates(everything, layer.heads, layer.head_size)
    drive = input_projection(inputs.x, inputs.weight, inputs.bias)
    h = inputs.state
    units = inputs.gate.expand(-1, 1, layer.heads, layer.head_size)[:, :, :, None]
    coordinates = units.expand(-1, *h.shape).flatten(1)

    def step(flat: Tensor, gate_t: Tensor, drive_t: Tensor) -> Tensor:
        return reference.step(inputs, drive_t, gate_t, flat.view(inputs.state.shape)).flatten()

    found: tuple[list[Tensor], list[Tensor]] = ([], [])
    with torch.no_grad():
        flat = h.flatten()
        for t, drive_t in enumerate(drive):
            for kind, gate_t in zip(found, (inputs.gate[t], opened[t].to(h.dtype)), strict=True):
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

    norm: Float[Tensor, "S"]
    """‖e_i ∂h_t/∂h_s‖₂: the sensitivity of coordinate i."""
    count: Int[Tensor, "S"]
    """Updates of coordinate i in (s, t]."""
    rho: float
    """The largest ‖J_f‖₂ in the window."""
    constant: Float[Tensor, "S"]
    """C_i(s, t) = norm / rho ** count; the paper leaves open whether it is bounded."""


def row_bound(jac: Jacobians, s: int, t: int) -> RowBound:
    """Row sensitivities in (s, t], and the constant that Proposition 1 needs there."""
    norm = sensitivity(jac, s, t).norm(dim=1)
    count = update_count(jac.g, s, t)
    rho = torch.linalg.matrix_norm(jac.proposal[s:t], ord=2).max().item()
    return RowBound(norm, count, rho, norm / torch.tensor(rho, dtype=norm.dtype) ** count)
