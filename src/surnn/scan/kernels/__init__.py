"""``triton``: the event-driven scan as fused GPU kernels.

The same algorithm as :mod:`surnn.scan.events`, with nothing of the host in its loops: event lists
are made on the device, a head's events are walked by one program per 16 sequences with its
recurrent weights on chip, everything else is parallel over events or steps. Read
:mod:`surnn.scan.kernels.tiles` for the layout, then ``walk`` for the serial part, ``gate`` for the
gate's gradient, ``launch`` for how the passes are put together.

Contract:

* Outputs and all gradients equal ``reference`` to rounding; carries are exact, since a carried
  output is a copy. Results repeat bit for bit.
* Matrix products are made in x's dtype (bf16, fp16 or float32) and summed in float32; float32
  follows ``torch.set_float32_matmul_precision`` ("highest": IEEE, otherwise TF32). The state stays
  in float32 on chip and is kept in its own dtype.
* Memory: the states at events, and the drives there unless ``recompute``.
* Sizes follow the events, for which the host waits once a call; not so with ``max_rate``, while a
  CUDA graph is captured, or under ``torch.compile``, where there is room for ``max_rate`` (or all)
  of the steps. An event is a step at which any unit of a head is open. More events than there is
  room for give NaN outputs.
"""

import torch
from torch import Tensor

from ...cells import Cell
from ...eager import is_captured, is_traced
from ..contract import ScanInputs, step_mask
from .cells import kernel_cell
from .op import EagerScan, triton_forward
from .sizes import fits_on_chip, multiprocessors, part_of_head


def unsupported(
    cell: Cell, width: int, dtype: torch.dtype, state_dtype: torch.dtype, device: torch.device
) -> str | None:
    """Why the kernels cannot run heads of ``width`` units in ``dtype``, or None."""
    known = kernel_cell(cell)
    if known is None:
        return f"there is no kernel for the cell {cell.name!r}"
    for found in (dtype, state_dtype):
        if found not in (torch.float32, torch.bfloat16, torch.float16):
            return f"kernels compute in float32, bfloat16 and float16, not in {found}"
    if fits_on_chip(cell.drives, width, dtype, device):
        return None
    part = part_of_head(cell.drives, width, dtype, device)
    if part < 16 or -(-width // part) > multiprocessors(device):
        return (
            "a head's recurrent weights are shared by multiprocessors that keep 16 units' or more, "
            f"and {width} units in {dtype} do not fit this device: use more heads"
        )
    return None


def scan(inputs: ScanInputs) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, N, D] and the last state [B, N, C, D]."""
    steps, batch = inputs.x.shape[:2]
    gate = inputs.closed_past_length()
    lists, heads = gate.shape[1:3]
    if (steps + 2) * batch * heads >= 2**31 - 2**16:  # tiles may reach a little past the end
        raise ValueError(
            f"T * B * heads = {steps * batch * heads} is past what the kernels count to, 2^31; "
            "run the batch in parts"
        )
    room = 0
    known = kernel_cell(inputs.cell)
    if known is not None and known.spiking != (inputs.decay is not None):
        raise ValueError("decay is of spiking cells, and they need it")
    relevant = inputs.relevant
    if relevant is not None and inputs.lengths is not None:
        relevant = relevant & step_mask(steps, inputs.lengths).unsqueeze(-1)
    traced = is_traced(inputs.x)
    if inputs.max_rate is not None or traced or is_captured(inputs.x):
        rate = 1.0 if inputs.max_rate is None else inputs.max_rate
        room = lists * heads * (min(steps, int(rate * steps) + 1) + 2)
    run = triton_forward if traced else EagerScan.apply
    y, last, *_ = run(
        inputs.x,
        inputs.weight,
        inputs.bias,
        inputs.recurrent,
        inputs.unit,
        gate,
        inputs.state,
        inputs.decay,
        inputs.lengths,
        relevant,
        inputs.cell.name,
        inputs.binary,
        _precision(),
        inputs.recompute,
        room,
    )
    return y, last


@torch.compiler.assume_constant_result
def _precision() -> str:
    """How float32 products are made, as torch's own are set to."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"
