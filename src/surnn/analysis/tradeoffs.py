"""The paper's table of trade-offs: attention, convolution, RNN and suRNN, formulas and counts.

T steps, d features and units, kernels of k, update rate p. Products are counted by torch's own
counter, events and updates by what the gates really did. The paper's formulas of suRNN are of its
one-pass form, which computes all steps; ours computes events only. Times are measured here and now.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ..baselines import Attention
from ..layers import SelectiveLayer
from .recording import LayerRecord, scan_inputs

KERNEL = 4
ROUNDS = 5


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
    with torch.device("meta"), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        x = torch.randn(1, steps, width)  # counting takes shapes, and no time
        return [_attention(x), _convolution(x), _recurrence(x), _selective(layer, seen)]


def training_seconds(model: nn.Module, x: Tensor, rounds: int = ROUNDS) -> list[float]:
    """Seconds of a training step (forward and backward) on these sequences, of the same four
    layers in the same order; the last is the last of the model's, with the gates that it has there.

    They take turns, and the median of all rounds counts. On the device of x, with the threads that
    torch has.
    """
    inputs = scan_inputs(model, x)[-1]
    steps, batch = inputs.x.shape[:2]
    width = inputs.state.shape[1] * inputs.state.shape[3]
    frames = torch.randn(batch, steps, width, device=x.device, requires_grad=True)
    attention = Attention(width, heads=1).to(x.device)
    convolution = nn.Conv1d(width, width, KERNEL, padding=KERNEL - 1, device=x.device)
    dense = nn.GRU(width, width, batch_first=True, device=x.device)
    trained = ("x", "weight", "bias", "recurrent", "unit", "gate")
    ours = replace(
        inputs, **{name: getattr(inputs, name).detach().requires_grad_() for name in trained}
    )
    forwards: tuple[Callable[[], Tensor], ...] = (
        lambda: attention(frames),
        lambda: convolution(frames.transpose(1, 2)),
        lambda: dense(frames)[0],
        lambda: SelectiveLayer._scan(ours, "auto")[0],
    )
    taken = [[_seconds(forward) for forward in forwards] for _ in range(1 + rounds)]
    return torch.tensor(taken[1:]).median(0).values.tolist()  # the first of all takes longer


def _seconds(forward: Callable[[], Tensor]) -> float:
    begin = time.perf_counter()
    forward().square().mean().backward()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begin


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
        f"{kind}{heads}, p = {updates / (steps * units):.2g}",
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
