"""The scan of one layer in one direction.

The kernels of a GPU read the weights of a layer as they are. :func:`fast_pass` gives them these
without the views that other backends need, whose making costs the host more than a short sequence
costs the GPU. Where it does not apply, it returns None and the layer takes the general path, which
also raises the errors.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from surnn.scan import ScanInputs, ScanTraits
from surnn.scan.dispatch import chooses_kernels

from ..constants import constant_zeros
from ..gates import Gate, Schedule
from ..runtime import runs_kernels
from .sequence import finer_than_heads, is_learned, merge_heads, spread_gates
from .weights import RecurrentWeights, suffix_of

if TYPE_CHECKING:
    from .base import SelectiveLayer


def run_scan(
    layer: "SelectiveLayer",
    index: int,
    x: Tensor,
    schedule: Schedule,
    state: Tensor,
    backend: str,
    *,
    lengths: Tensor | None,
    reset: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, H] and the last state [C, B, H] of x [T, B, I] from ``state`` [C, B, H]."""
    if lengths is None and reset is None:
        done = fast_pass(layer, index, x, schedule, state, backend)
        if done is not None:
            return done
    gate: Gate = layer.gates[index]  # type: ignore[assignment]
    suffix = suffix_of(*divmod(index, layer.num_directions))
    weight, bias, recurrent, unit = layer._weights(suffix)
    values, relevant = spread_gates(schedule, layer.heads, layer.head_size)
    by_head = state.unflatten(-1, (layer.heads, layer.head_size)).permute(1, 2, 0, 3)
    inputs = ScanInputs(
        cell=layer.cell,
        x=layer.up[index](x) if layer.expand > 1 else x,
        weight=weight,
        bias=bias,
        recurrent=recurrent,
        unit=unit,
        gate=values.to(state.dtype),
        state=by_head,
        decay=layer._decay(suffix),
        lengths=lengths,
        reset=reset,
        relevant=relevant,
        binary=gate.binary,
        learned_gate=is_learned(gate),
        skip_drive=layer.skip_drive,
        max_rate=layer.max_rate,
        recompute=layer.recompute,
    )
    y, last = layer._scan(inputs, backend)
    return merge_heads(y), last.permute(2, 0, 1, 3).flatten(2)


def fast_pass(
    layer: "SelectiveLayer",
    index: int,
    x: Tensor,
    schedule: Schedule,
    state: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor] | None:
    """The result of :func:`run_scan`, or None if the general path must compute it."""
    if not _can_run_here(layer, x):
        return None
    gate: Gate = layer.gates[index]  # type: ignore[assignment]
    unit_gates = finer_than_heads(schedule.g.shape[-1], layer.heads, layer.head_size)
    traits = ScanTraits(
        cell=layer.cell,
        width=layer.head_size,
        device=x.device,
        dtype=x.dtype,
        state_dtype=state.dtype,
        unit_gates=unit_gates,
        binary=gate.binary,
        learned_gate=is_learned(gate) or schedule.g.requires_grad,
    )
    if not _kernels_run(backend, traits):
        return None
    from surnn.scan.triton import KernelOperands, is_too_large, scan_of_layer  # noqa: PLC0415 (triton is optional)

    if is_too_large(x, layer.heads):
        return None
    suffix = suffix_of(*divmod(index, layer.num_directions))
    weight, recurrent = getattr(layer, "weight_ih" + suffix), getattr(layer, "weight_hh" + suffix)
    if layer.bias:
        biases = getattr(layer, "bias_ih" + suffix), getattr(layer, "bias_hh" + suffix)
    else:
        biases = (constant_zeros(weight.shape[:1], weight.dtype, x),) * 2
    values, relevant = schedule
    direct = values.shape[-1] in (layer.heads, layer.state_size) and gate.binary
    if not direct or relevant is not None:
        values, relevant = spread_gates(schedule, layer.heads, layer.head_size)
        values = values.to(state.dtype)
    operands = KernelOperands(
        x=layer.up[index](x) if layer.expand > 1 else x,
        weight=weight,
        recurrent=recurrent,
        bias=biases[0],
        more_bias=biases[1],
        unit=None,
        gate=values,
        relevant=relevant,
        heads=layer.heads,
        width=layer.head_size,
        cell=layer.cell_name,
        binary=gate.binary,
        weight_dtype=weight.dtype,
    )
    return scan_of_layer(operands, state, layer.max_rate, layer.recompute)


def _can_run_here(layer: "SelectiveLayer", x: Tensor) -> bool:
    """Whether the modes that are active and the layer allow it."""
    if not runs_kernels(x) or torch.jit.is_tracing() or not x.shape[1] or not layer.head_size:
        return False
    kind: Any = type(layer)
    return (
        "_scan" not in layer.__dict__
        and kind._weights is RecurrentWeights._weights
        and kind._decay is RecurrentWeights._decay
        and kind._split_biases is _known_biases().get(layer.cell_name)
    )


@lru_cache(maxsize=1)
def _known_biases() -> dict[str, Any]:
    """How the kernels add biases, by the name of the cell."""
    from .recurrent import SuGRU  # noqa: PLC0415 (that module imports this one)

    plain = RecurrentWeights._split_biases
    return {"rnn_tanh": plain, "rnn_relu": plain, "lstm": plain, "gru": SuGRU._split_biases}


_kernels_run = lru_cache(maxsize=64)(chooses_kernels)
