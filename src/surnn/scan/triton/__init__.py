"""``triton``: the event-driven scan as fused GPU kernels.

The same algorithm as :mod:`surnn.scan.events`, without the host in its loops: event lists are
built on the device, one program per 16 sequences runs through a head's events with its recurrent
weights on chip, everything else is parallel over events or steps. Read
:mod:`surnn.scan.triton.tiles` for the layout, then ``serial`` for the loop over events, ``gate``
for the gate's gradient, ``launch`` for the order of the passes.

Contract:

* Outputs and all gradients equal ``reference`` to rounding; carries are exact, since a carried
  output is a copy. Results repeat bit for bit.
* Matrix products are computed in x's dtype (bf16, fp16 or float32) and summed in float32; float32
  follows ``torch.set_float32_matmul_precision`` ("highest": IEEE, otherwise TF32). The state is
  float32 on chip and is stored in its own dtype.
* Memory: the states at events, and the drives there unless ``recompute``.
* Sizes follow the number of events, for which the host waits once a call. It does not wait where
  memory for all steps is small (``UNCOUNTED_BYTES`` in ``passes``), with ``max_rate``, during CUDA
  graph capture, or under ``torch.compile``; there, the capacity is ``max_rate`` (or all) of the
  steps. An event is a step at which any unit of a head is open, or a
  reset. More events than the capacity give NaN outputs.
"""

import torch
from torch import Tensor

from surnn.nn.runtime import is_captured, is_traced

from ..contract import ScanInputs, ScanTraits
from .cells import kernel_cell
from .op import eager_scan, scan_of_contract
from .operands import KernelOperands as KernelOperands
from .sizes import fits_on_chip, multiprocessors, part_of_head


def unsupported(traits: ScanTraits) -> str | None:
    """Why the kernels cannot run such a scan, or None."""
    cell, width, dtype, device = traits.cell, traits.width, traits.dtype, traits.device
    if kernel_cell(cell) is None:
        return f"there is no kernel for the cell {cell.name!r}"
    for kind in (dtype, traits.state_dtype):
        if kind not in (torch.float32, torch.bfloat16, torch.float16):
            return f"kernels compute in float32, bfloat16 and float16, not in {kind}"
    if fits_on_chip(cell.drives, width, dtype, device):
        return None
    part = part_of_head(cell.drives, width, dtype, device)
    if part < 16 or -(-width // part) > multiprocessors(device):
        return (
            "multiprocessors share a head's recurrent weights, 16 units or more each, and "
            f"{width} units in {dtype} do not fit this device: use more heads"
        )
    return None


def scan(inputs: ScanInputs) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, N, D] and the last state [B, N, C, D]."""
    heads = inputs.gate.shape[2]
    if is_too_large(inputs.x, heads):
        raise ValueError(
            f"T * B * heads = {inputs.x.shape[:2].numel() * heads} is more than the kernels can "
            "index, 2^31; split the batch"
        )
    known = kernel_cell(inputs.cell)
    if known is not None and known.spiking != (inputs.decay is not None):
        raise ValueError(
            f"spiking cells need a decay and other cells have none, got cell {inputs.cell.name!r} "
            f"{'without' if inputs.decay is None else 'with'} decay"
        )
    traced = is_traced(inputs.x)
    capacity = _capacity(inputs.gate, heads, inputs.max_rate, traced or is_captured(inputs.x))
    return scan_of_contract(inputs, _precision(), capacity, traced)


def scan_of_layer(
    operands: KernelOperands, state: Tensor, max_rate: float | None, recompute: bool
) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, H] and the last state [C, B, H]; outside of compilers."""
    capacity = _capacity(operands.gate, operands.heads, max_rate, is_captured(operands.x))
    return eager_scan(operands, state, _precision(), recompute, capacity)


def is_too_large(x: Tensor, heads: int) -> bool:
    """Whether x [T, B, I] has more places than the kernels can index."""
    steps, batch = x.shape[:2]
    return (steps + 2) * batch * heads >= 2**31 - 2**16  # tiles may reach a little past the end


def _capacity(gate: Tensor, heads: int, max_rate: float | None, fixed: bool) -> int:
    """The number of list positions to allocate; 0 if it may depend on the events."""
    if max_rate is None and not fixed:
        return 0
    steps, lists = gate.shape[:2]
    rate = 1.0 if max_rate is None else max_rate
    return lists * heads * (min(steps, int(rate * steps) + 1) + 2)


@torch.compiler.assume_constant_result
def _precision() -> str:
    """The precision of float32 products, as set for torch's own."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"
