"""``reference`` is the law: the definition as a plain loop over time.

Differentiable by autograd any number of times, in any precision, under ``torch.func``. Every
other backend is tested against it. It visits all T steps, so it is slow.

The gradient of a closed step is 0, and autograd multiplies it by derivatives and operands. The
product is 0 only if they are finite. In a step with a number that is not finite,
:func:`guarded_step` hides everything that closed units would read, as :mod:`surnn.scan.contract`
demands. In such a step, second derivatives treat proposals of closed units as constants. Under
``torch.func`` and compilers no step is guarded, because Python cannot branch on values: gradients
may then be NaN.
"""

from dataclasses import replace

import torch
from torch import Tensor

from surnn.nn.runtime import can_branch_on, is_transformed

from .contract import ScanInputs, blend, input_projection, step_mask


def recurrent_product(recurrent: Tensor, output: Tensor) -> Tensor:
    """[N, S, D, D] times [..., N, D] -> [..., N, S, D]."""
    return torch.einsum("nsij,...nj->...nsi", recurrent, output)


def step(inputs: ScanInputs, drive_t: Tensor, gate_t: Tensor, state: Tensor) -> Tensor:
    """One step of the recurrence: state [B, N, C, D] to state."""
    rec = recurrent_product(inputs.recurrent.to(state.dtype), state[..., 0, :])
    drive_t = drive_t.to(state.dtype)
    proposed = inputs.cell.update(drive_t, rec, state, inputs.unit.to(state.dtype).unbind(0))
    kept = _kept(inputs, state)
    gate_t = gate_t.to(state.dtype).unsqueeze(-2)
    if inputs.binary and not torch.is_grad_enabled() and not is_transformed():
        return torch.where(
            gate_t != 0, proposed, kept
        )  # equals blend, whose gradient is not needed
    return blend(kept, proposed, gate_t.expand_as(kept))


def guarded_step(
    inputs: ScanInputs, x_t: Tensor, gate_t: Tensor, alive_t: Tensor | None, state: Tensor
) -> Tensor:
    """:func:`step` from x [B, I], with all operands hidden where closed units would read them."""
    dtype = state.dtype
    is_open = (gate_t != 0).expand(state.shape[0], *gate_t.shape[1:])  # [B, N, m]
    if alive_t is not None:
        gate_t = torch.where(alive_t[:, None, None], gate_t, 0.0)
        is_open = gate_t != 0
    event = is_open.any(-1, keepdim=True)  # [B, N, 1]
    recurrent, unit = inputs.recurrent.to(dtype), inputs.unit.to(dtype)

    x_open = torch.where(event, x_t.unsqueeze(-2), 0.0)  # [B, N, I]
    weight, bias = inputs.weight.to(x_t.dtype), inputs.bias.to(x_t.dtype)
    drive = (torch.einsum("nsdi,bni->bnsd", weight, x_open) + bias).to(dtype)
    rec = recurrent_product(recurrent, torch.where(event, state[..., 0, :], 0.0))
    by_unit = is_open.unsqueeze(-2)  # [B, N, 1, m]
    drive, rec, own = (torch.where(by_unit, v, 0.0) for v in (drive, rec, state))
    units = [torch.where(is_open, v, 0.0) for v in unit]
    proposed = inputs.cell.update(drive, rec, own, units)
    with torch.no_grad():
        drive = input_projection(x_t, inputs.weight, inputs.bias).to(dtype)
        rec = recurrent_product(recurrent, state[..., 0, :])
        unread = inputs.cell.update(drive, rec, state, unit.unbind(0))
    gate_t = gate_t.to(dtype).unsqueeze(-2).expand_as(state)
    replaced = gate_t == 1  # and not kept
    if alive_t is not None:
        replaced = replaced | ~alive_t[:, None, None, None]
    kept = _kept(inputs, torch.where(replaced, 0.0, state))
    kept = torch.where(replaced, _kept(inputs, state).detach(), kept)
    return blend(kept, torch.where(by_unit, proposed, unread), gate_t)


def scan(inputs: ScanInputs) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, N, D] and the last state [B, N, C, D].

    The state stops at each sequence's length. Outputs past it are not defined here:
    :func:`surnn.scan.scan` sets them to 0, for all backends.
    """
    state = inputs.state
    if torch.is_grad_enabled() and inputs.recurrent.requires_grad:
        # einsum transposes the gradient, stack restores the layout; it may also change roundings
        inputs = replace(inputs, recurrent=torch.stack(inputs.recurrent.unbind(0)))
    drive = input_projection(inputs.x, inputs.weight, inputs.bias)
    alive = None if inputs.lengths is None else step_mask(drive.shape[0], inputs.lengths)
    may_guard = torch.is_grad_enabled() and can_branch_on(drive)
    weights = (inputs.weight, inputs.bias, inputs.recurrent, inputs.unit)
    guarded = may_guard and not _are_finite(inputs.x, drive, *weights)
    outputs = []
    reset = None if inputs.reset is None else inputs.reset[..., None, None, None]
    for t, (drive_t, gate_t) in enumerate(zip(drive.unbind(0), inputs.gate.unbind(0), strict=True)):
        if reset is not None:
            state = torch.where(reset[t], 0.0, state)
        if guarded or (may_guard and not _are_finite(state)):
            alive_t = None if alive is None else alive[t]
            new = guarded_step(inputs, inputs.x[t], gate_t, alive_t, state)
        else:
            new = step(inputs, drive_t, gate_t, state)
        outputs.append(new[..., 0, :])
        state = new if alive is None else torch.where(alive[t, :, None, None, None], new, state)
    return torch.stack(outputs).to(inputs.x.dtype), state


def _kept(inputs: ScanInputs, state: Tensor) -> Tensor:
    """The state after a carry."""
    if inputs.decay is None:
        return state
    kept = state * inputs.decay
    return torch.cat((torch.zeros_like(kept[..., :1, :]), kept[..., 1:, :]), -2)


def _are_finite(*tensors: Tensor) -> bool:
    return all(bool(tensor.isfinite().all()) for tensor in tensors)
