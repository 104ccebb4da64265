"""Multiply-accumulates of a model per time step, from its weights and its update rates."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from surnn.models.baselines import Attention, DiagonalSSM, GatedDelta, SavingMixer, SkipGRU
from surnn.models.model import SequenceModel
from surnn.nn.layers import SelectiveLayer

PER_MODE = 6
"""Real multiplications of a complex mode: 4 for A s (the input comes in with weight 1), 2 for the
real part of C s."""


class StepWork(NamedTuple):
    """Multiply-accumulates of one time step of a stream."""

    dense: float
    """If every unit updated."""
    done: float
    """At the update rates."""

    def __add__(self, other: "StepWork") -> "StepWork":  # type: ignore[override]
        return StepWork(self.dense + other.dense, self.done + other.done)


def step_work(model: SequenceModel, rates: Sequence[float] = ()) -> StepWork:
    """The products of weights with inputs and states, gates and readout included.

    Sums, activations and norms are not counted. ``rates`` are the update rates of the layers, or
    for baselines that save work its shares, in the order of the metric ``update_rate``; it stays
    empty for models without.
    """
    total, inside, remaining = StepWork(0, 0), set(), list(rates)
    for module in model.modules():
        if isinstance(module, Attention | GatedDelta):
            raise ValueError(f"the work of {type(module).__name__} is not counted here")
        if isinstance(module, SelectiveLayer):
            count = module.num_layers
            total += _selective(module, _take(remaining, count))
        elif isinstance(module, SavingMixer):
            total += _saving(module, _take(remaining, 1)[0])
        elif isinstance(module, DiagonalSSM):
            modes, width = module.log_decay.numel(), len(module.skip)
            total += StepWork(*[PER_MODE * modes + width] * 2)
        elif not isinstance(module, nn.Embedding):
            continue
        inside.update(id(p) for p in module.parameters())
    if remaining:
        raise ValueError(f"there are {len(rates)} rates, {len(remaining)} too many for the model")
    rest = sum(p.numel() for p in model.parameters() if id(p) not in inside and p.dim() > 1)
    return total + StepWork(rest, rest)


def _take(rates: list[float], count: int) -> list[float]:
    if len(rates) < count:
        raise ValueError("there are fewer rates than layers that save work")
    taken, rates[:] = rates[:count], rates[count:]
    return taken


def _selective(layer: SelectiveLayer, rates: list[float]) -> StepWork:
    """Gates are computed at every time step, weights of the layer at updates."""
    work = StepWork(0, 0)
    for index, gate in enumerate(layer.gates):
        level, direction = divmod(index, layer.num_directions)
        suffix = f"_l{level}" + ("_reverse" if direction else "")
        weights = sum(
            p.numel()
            for name, p in layer.named_parameters(recurse=False)
            if name.endswith(suffix) and p.dim() > 1
        )
        always = sum(p.numel() for p in gate.parameters() if p.dim() > 1)
        work += StepWork(always + weights, always + weights * rates[level])
    return work


def _saving(layer: SavingMixer, rate: float) -> StepWork:
    weights = layer.weight_ih.numel() + layer.weight_hh.numel()
    weights += layer.width if isinstance(layer, SkipGRU) else 0
    return StepWork(weights, weights * rate)
