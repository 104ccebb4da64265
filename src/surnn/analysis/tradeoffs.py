"""The paper's table of trade-offs: attention, convolution, RNN and suRNN, formulas and counts.

T time steps, d features and units, kernel size k, update rate p. Torch's own counter counts
products; events and updates are counted from recorded gates. The paper's formulas for suRNN are
those of its one-pass form, which computes all time steps; surnn computes events only. Times are
measured.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from surnn.models.baselines import Attention
from surnn.nn.layers import SelectiveLayer

from .recording import LayerRecord, scan_inputs

KERNEL = 4
ROUNDS = 5


class Cost(NamedTuple):
    """One aspect of a layer: the paper's formula, and the count."""

    formula: str
    counted: float


class TradeOffs(NamedTuple):
    """The costs of one kind of layer."""

    name: str
    compute: Cost
    """Multiply-adds of a forward pass over one sequence."""
    serial: Cost
    """Time steps that must run one after another."""
    depth: Cost
    """Non-identity transformations between the first time step and the last."""
    state: Cost
    """Numbers in the state of a stream."""
    token: Cost
    """Multiply-adds of one more time step after the sequence."""


def trade_offs(layer: SelectiveLayer, record: LayerRecord) -> list[TradeOffs]:
    """The table at the width of ``layer`` and the length of the recorded sequences.

    Args:
        layer: the selective layer; in a stack, its last level counts.
        record: the record of this layer on some sequences.
    """
    width, steps = layer.state_size, record.gate.shape[1]
    with torch.device("meta"), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        x = torch.randn(1, steps, width)  # on the meta device: shapes suffice to count
        return [_attention(x), _convolution(x), _recurrence(x), _selective(layer, record)]


def training_seconds(model: nn.Module, x: Tensor, rounds: int = ROUNDS) -> list[float]:
    """Seconds of forward and backward on these sequences, for the layers of :func:`trade_offs`.

    The last one is the model's last selective layer with its gates. The layers take turns; the
    result is the median of all rounds, on the device of x, with torch's number of threads.
    """
    inputs = scan_inputs(model, x)[-1]
    steps, batch = inputs.x.shape[:2]
    width = inputs.state.shape[1] * inputs.state.shape[3]
    frames = torch.randn(batch, steps, width, device=x.device, requires_grad=True)
    attention = Attention(width, heads=1).to(x.device)
    convolution = nn.Conv1d(width, width, KERNEL, padding=KERNEL - 1, device=x.device)
    dense = nn.GRU(width, width, batch_first=True, device=x.device)
    leaves = ("x", "weight", "bias", "recurrent", "unit", "gate")
    ours = replace(
        inputs, **{name: getattr(inputs, name).detach().requires_grad_() for name in leaves}
    )
    forwards: tuple[Callable[[], Tensor], ...] = (
        lambda: attention(frames),
        lambda: convolution(frames.transpose(1, 2)),
        lambda: dense(frames)[0],
        lambda: SelectiveLayer._scan(ours, "auto")[0],
    )
    seconds = [[_seconds(forward) for forward in forwards] for _ in range(1 + rounds)]
    return torch.tensor(seconds[1:]).median(0).values.tolist()  # the first round is a warm-up


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
    state = cache.keys.numel() + cache.values.numel() + 2 * width
    return TradeOffs(
        "self-attention",
        Cost("T² d", multiply_adds(layer, x)),
        Cost("1", 1),
        Cost("1", 1),
        Cost("T d", state),
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
    """Number of layers, each k times as dilated, until the last time step sees the first."""
    layers, reach = 0, 1
    while reach < steps:
        layers, reach = layers + 1, reach * KERNEL
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


def _selective(layer: SelectiveLayer, record: LayerRecord) -> TradeOffs:
    cell, (batch, steps, units) = layer.cell, record.gate.shape
    is_open = record.gate != 0
    events = is_open.unflatten(-1, (layer.heads, -1)).any(-1).sum(1)
    features = getattr(layer, f"weight_ih_l{layer.num_layers - 1}").shape[-1]
    per_update = cell.drives * (features + layer.head_size)  # rows of both weights of one unit
    updates = is_open.sum().item() / batch
    memory = layer.gates[-1].init_memory(1).numel()  # type: ignore[operator]
    kind = type(layer).__name__
    heads = "" if layer.heads == 1 else f", {layer.heads} heads"
    return TradeOffs(
        f"{kind}{heads}, p = {updates / (steps * units):.2g}",
        Cost("T d²", updates * per_update),
        Cost("T", events.max().item()),
        Cost("p T", updates / units),
        Cost("d", len(cell.components) * units + memory + 1),  # one more for the clock
        Cost("p d²", updates * per_update / steps),
    )


def multiply_adds(call: Callable[..., Any], *arguments: Any) -> int:
    """Multiply-adds of the matrix products in a call."""
    with FlopCounterMode(display=False) as counter:
        call(*arguments)
    return counter.get_total_flops() // 2
