"""From a contestant's description to a layer on the device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..gates import Gate, InputGate, Rhythm
from ..layers import SelectiveLayer, SuGRU, SuLSTM, SuRNN, SuSNN
from ..layers.sequence import spread_gates
from ..scan.contract import open_heads
from .cases import Case, Contestant
from .peers import PEERS

Make = Callable[..., Any]
OURS: dict[str, Make] = {"gru": SuGRU, "lstm": SuLSTM, "rnn": SuRNN, "alif": SuSNN}
TORCH: dict[str, Make] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}

# Room that a graph of ours is given over the updates that there are.
HEADROOM = 1.3


@dataclass(frozen=True)
class Built:
    """A layer, and what is known of it before it runs."""

    module: nn.Module
    backend: str | None = None
    events: int | None = None
    """Of the busiest head, and of the busiest sequence if each has its own: the serial depth."""
    rate: float | None = None
    """Share of open gates. Not read off the layer afterwards: a graph's memory is used again."""


def build(case: Case, contestant: Contestant, x: Tensor, *, fixed_room: bool, seed: int) -> Built:
    """The layer on x's device. ``fixed_room`` is for graphs: no size may depend on the gates."""
    torch.manual_seed(seed)
    if contestant.kind == "ours":
        return _build_ours(case, contestant, x, fixed_room)
    if contestant.kind == "torch":
        layer: nn.RNNBase = TORCH[contestant.cell](case.hidden, case.hidden).to(x.device, x.dtype)
        layer.flatten_parameters()  # the cast has torn the weights apart, which cuDNN warns of
        return Built(layer)
    peer = PEERS[contestant.cell](case.hidden, case.hidden, contestant.heads)
    return Built(peer.to(x.device, x.dtype))


def _build_ours(case: Case, contestant: Contestant, x: Tensor, fixed_room: bool) -> Built:
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
        found = opened.float().mean().item()
        layer.max_rate = min(1.0, HEADROOM * max(contestant.rate, found))
    events = int(opened.sum(0).max())
    return Built(layer, layer.chosen_backend, events, gate.float().mean().item())


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
