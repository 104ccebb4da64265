"""The paper's table of trade-offs: attention, convolution, RNN and suRNN, formulas and counts.

T steps, d features and units, kernels of k, update rate p. Counts are of layers that are really
run: products by torch's own counter, events and updates by what the gates did. The paper's formulas
of suRNN are of its one-pass form, which computes all steps; ours computes events only.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ..baselines import Attention
from ..layers import SelectiveLayer
from .recording import LayerRecord

KERNEL = 4


class Cost(NamedTuple):
    """One aspect of a layer: the paper's formula, and what was counted."""

    formula: str
    counted: float


class TradeOffs(NamedTuple):
    """One kind of layer."""

    name: str
    compute: Cost
    """Multiply-adds of a forward pass over one sequence."""
    serial: Cost
    """Steps that wait for one another."""
    depth: Cost
    """Transformations that are not the identity on the way from the first step to the last."""
    state: Cost
    """Numbers that a stream keeps."""
    token: Cost
    """Multiply-adds of one more step, at the end of the sequence."""


def trade_offs(layer: SelectiveLayer, seen: LayerRecord) -> list[TradeOffs]:
    """The table at the width of ``layer`` and the length of the sequences in ``seen``.

    Args:
        layer: the selective layer; of a stack, the last is meant.
        seen: what that did on some sequences.
    """
    width, steps = layer.state_size, seen.gate.shape[1]
    x = torch.randn(1, steps, width)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        return [_attention(x), _convolution(x), _recurrence(x), _selective(layer, seen)]


def _attention(x: Tensor) -> TradeOffs:
    width = x.shape[-1]
    layer = Attention(width, heads=1)
    _, cache = layer.run(x[:, :-1], layer.init_state(1))
    kept = cache.keys.numel() + cache.values.numel() + 2 * width
    return TradeOffs(
        "self-attention",
        Cost("T² d", multiply_adds(layer, x)),
        Cost("1", 1),
        Cost("1", 1),
        Cost("T d", kept),
        Cost("T d", multiply_adds(layer.step, x[:, -1], cache)),
    )


def _convolution(x: Tensor) -> TradeOffs:
    _, steps, width = x.shape
    layer = nn.Conv1d(width, width, KERNEL)
    frames = nn.functional.pad(x.transpose(1, 2), (KERNEL - 1, 0))
    window = frames[..., -KERNEL:]
    return TradeOffs(
        f"convolution, k = {KERNEL}",
        Cost("T k d²", multiply_adds(layer, frames)),
        Cost("1", 1),
        Cost("log_k T", _layers_to_see(steps)),
        Cost("k d", window[..., 1:].numel()),
        Cost("k d²", multiply_adds(layer, window)),
    )


def _layers_to_see(steps: int) -> int:
    """Layers, each k times as dilated as the one below, until the last step sees the first."""
    layers, seen = 0, 1
    while seen < steps:
        layers, seen = layers + 1, seen * KERNEL
    return layers


def _recurrence(x: Tensor) -> TradeOffs:
    _, steps, width = x.shape
    layer = nn.GRU(width, width, batch_first=True)
    return TradeOffs(
        "RNN (GRU)",
        Cost("T d²", multiply_adds(layer, x)),
        Cost("T", steps),
        Cost("T", steps),
        Cost("d", layer(x)[1].numel()),
        Cost("d²", multiply_adds(layer, x[:, -1:])),
    )


def _selective(layer: SelectiveLayer, seen: LayerRecord) -> TradeOffs:
    cell, (batch, steps, units) = layer.cell, seen.gate.shape
    is_open = seen.gate != 0
    events = is_open.unflatten(-1, (layer.heads, -1)).any(-1).sum(1)
    reads = getattr(layer, f"weight_ih_l{layer.num_layers - 1}").shape[-1]
    each = cell.drives * (reads + layer.head_size)  # rows of both weights, for one unit
    updates = is_open.sum().item() / batch
    memory = layer.gates[-1].init_memory(1).numel()  # type: ignore[operator]
    kind = type(layer).__name__
    heads = "" if layer.heads == 1 else f", {layer.heads} heads"
    return TradeOffs(
        f"{kind}{heads}, p = {updates / (steps * units):.2f}",
        Cost("T d²", updates * each),
        Cost("T", events.max().item()),
        Cost("p T", updates / units),
        Cost("d", len(cell.components) * units + memory + 1),  # and the clock
        Cost("p d²", updates * each / steps),
    )


def multiply_adds(call: Callable[..., Any], *arguments: Any) -> int:
    """Of the matrix products in a call."""
    with FlopCounterMode(display=False) as counter:
        call(*arguments)
    return counter.get_total_flops() // 2
