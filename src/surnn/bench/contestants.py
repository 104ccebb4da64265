"""Builds a contestant's layer on the device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from surnn.nn.gates import Gate, InputGate, Rhythm
from surnn.nn.layers import SelectiveLayer, SuGRU, SuLSTM, SuRNN, SuSNN
from surnn.nn.layers.sequence import spread_gates
from surnn.scan.contract import open_heads

from .cases import Case, Contestant
from .peers import PEERS

Make = Callable[..., Any]
OURS: dict[str, Make] = {"gru": SuGRU, "lstm": SuLSTM, "rnn": SuRNN, "alif": SuSNN}
TORCH: dict[str, Make] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}

# Room of a CUDA graph of ours relative to the updates it needs.
HEADROOM = 1.3


@dataclass(frozen=True)
class LayerInstance:
    """A layer, its backend, events and update rate."""

    module: nn.Module
    backend: str | None = None
    events: int | None = None
    """Events of the busiest head (and of the busiest sequence, if each has its own gates): the
    serial depth."""
    rate: float | None = None
    """Share of open gates, computed before the run: a graph reuses its memory."""


def build(
    case: Case, contestant: Contestant, x: Tensor, *, fixed_room: bool, seed: int
) -> LayerInstance:
    """The layer on x's device. ``fixed_room`` is for graphs: no size may depend on the gates."""
    torch.manual_seed(seed)
    if contestant.kind == "ours":
        return _build_ours(case, contestant, x, fixed_room)
    if contestant.kind == "torch":
        layer: nn.RNNBase = TORCH[contestant.cell](case.hidden, case.hidden).to(x.device, x.dtype)
        layer.flatten_parameters()  # the cast scatters the weights, and cuDNN would warn
        return LayerInstance(layer)
    peer = PEERS[contestant.cell](case.hidden, case.hidden, contestant.heads)
    return LayerInstance(peer.to(x.device, x.dtype))


def _build_ours(case: Case, contestant: Contestant, x: Tensor, fixed_room: bool) -> LayerInstance:
    layer: SelectiveLayer = OURS[contestant.cell](
        case.hidden,
        case.hidden,
        heads=contestant.heads,
        gate=_gate(contestant, case.steps),
        backend=contestant.backend,
    ).to(x.device, x.dtype)
    if contestant.gate == "input":
        layer.calibrate(x)
    gate = _gates(layer, x)
    opened = open_heads(gate)
    if fixed_room:
        assert contestant.rate is not None
        rate = max(contestant.rate, opened.float().mean().item())
        layer.max_rate = min(1.0, HEADROOM * rate)
    events = int(opened.sum(0).max())
    return LayerInstance(layer, layer.chosen_backend, events, gate.float().mean().item())


def _gate(contestant: Contestant, steps: int) -> Gate:
    assert contestant.rate is not None
    if contestant.gate == "input":
        return InputGate(rate=contestant.rate, mode="hard")
    granularity = "unit" if contestant.gate == "unit" else "auto"
    return Rhythm(rate=contestant.rate, horizon=steps, granularity=granularity)


@torch.no_grad()
def _gates(layer: SelectiveLayer, x: Tensor) -> Tensor:
    """Gate values [T, b, N, m]."""
    t = torch.arange(1, x.shape[0] + 1, device=x.device)[:, None]
    schedule, _ = layer.gates[0](t, x)
    return spread_gates(schedule, layer.heads, layer.head_size)[0]
