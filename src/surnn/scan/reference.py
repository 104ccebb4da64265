"""``reference`` is the law: the definition as a plain loop over time.

Differentiable by autograd any number of times, in any precision, under ``torch.func``. Every
other backend is tested against it. It visits all T steps, so it is slow.
"""

import torch
from torch import Tensor

from ..eager import is_transformed
from .contract import ScanInputs, blend, input_projection, step_mask


def recurrent_product(recurrent: Tensor, output: Tensor) -> Tensor:
    """[N, S, D, D] times [..., N, D] -> [..., N, S, D]."""
    return torch.einsum("nsij,...nj->...nsi", recurrent, output)


def step(inputs: ScanInputs, drive_t: Tensor, gate_t: Tensor, state: Tensor) -> Tensor:
    """One step of the recurrence: state [B, N, C, D] to state."""
    rec = recurrent_product(inputs.recurrent.to(state.dtype), state[..., 0, :])
    drive_t = drive_t.to(state.dtype)
    proposed = inputs.cell.update(drive_t, rec, state, inputs.unit.to(state.dtype).unbind(0))
    kept = state if inputs.decay is None else state * inputs.decay
    gate_t = gate_t.to(state.dtype).unsqueeze(-2)
    if inputs.binary and not torch.is_grad_enabled() and not is_transformed():
        return torch.where(gate_t != 0, proposed, kept)  # the same, where nobody wants gradients
    return blend(kept, proposed, gate_t.expand_as(kept))


def scan(inputs: ScanInputs) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, N, D] and the last state [B, N, C, D]."""
    state = inputs.state
    drive = input_projection(inputs.x, inputs.weight, inputs.bias)
    alive = None if inputs.lengths is None else step_mask(drive.shape[0], inputs.lengths)
    outputs = []
    for t, (drive_t, gate_t) in enumerate(zip(drive.unbind(0), inputs.gate.unbind(0), strict=True)):
        new = step(inputs, drive_t, gate_t, state)
        if alive is not None:
            inside = alive[t, :, None, None, None]
            outputs.append(torch.where(inside[..., 0], new[..., 0, :], 0.0))
            state = torch.where(inside, new, state)
        else:
            outputs.append(new[..., 0, :])
            state = new
    return torch.stack(outputs).to(inputs.x.dtype), state
