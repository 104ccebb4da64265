"""How much of the loss's gradient arrives at states long before it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..baselines import TorchRecurrent
from ..layers import SelectiveLayer
from ..scan import ScanInputs, reference
from ..scan.contract import input_projection
from .recording import Unfit, scanned_by

States = list[list[Tensor]]
"""Of each layer and step: the state after it, [B, ...]."""


class GradientProfile(NamedTuple):
    """Gradient norms of every layer, in order, at every step."""

    norm: Float[Tensor, "L T"]
    """Entry τ - 1: the mean over sequences of ‖∂ℓ/∂h_τ‖₂, where ℓ is the sequence's own loss and
    h_τ the whole state after step τ (of an LSTM both h and c)."""

    @property
    def distance(self) -> Tensor:
        """[T] steps from each state to the last one."""
        return torch.arange(self.norm.shape[1] - 1, -1, -1)


def gradient_profile(
    model: nn.Module, x: Tensor, loss: Callable[[Tensor], Tensor]
) -> GradientProfile:
    """Gradient norms of a loss by the states at every step.

    The model is run in evaluation mode, step by step, so that every state is there to be asked for.

    Args:
        model: with surnn's layers, reading forwards, or with torch's.
        x: sequences of one length, as the model takes them.
        loss: of the model's output, the mean over sequences.
    """
    found: States = []
    training = model.training
    with ExitStack() as attached:
        for module in model.modules():
            if isinstance(module, SelectiveLayer):
                if module.bidirectional:
                    raise Unfit("a gradient profile is of layers that read forwards only")
                attached.enter_context(scanned_by(module, _stepwise(found)))
            elif isinstance(module, TorchRecurrent):
                attached.enter_context(_torch_stepwise(module, found))
        attached.callback(model.train, training)
        model.eval()
        with torch.enable_grad():
            output = model(x)
            mean = loss(output[0] if isinstance(output, tuple) else output)
    if not found:
        raise Unfit(
            f"{type(model).__name__} has no layer that can be run step by step: neither one of "
            "surnn's nor an RNN, GRU or LSTM of torch"
        )
    total = mean * len(found[0][0])  # sequences do not see each other, so each has its own again
    states = [state for layer in found for state in layer]
    grads = torch.autograd.grad(total, states, allow_unused=True, materialize_grads=True)
    norms = torch.stack([grad.flatten(1).double().norm(dim=1).mean() for grad in grads])
    return GradientProfile(norms.view(len(found), -1).cpu())


def _stepwise(found: States) -> Callable[[int, ScanInputs, str], tuple[Tensor, Tensor]]:
    def scan(_index: int, inputs: ScanInputs, _backend: str) -> tuple[Tensor, Tensor]:
        state, states = inputs.state, []
        drive = input_projection(inputs.x, inputs.weight, inputs.bias)
        for drive_t, gate_t in zip(drive, inputs.gate, strict=True):
            state = reference.step(inputs, drive_t, gate_t, state)
            states.append(state)
        found.append(states)
        return torch.stack([state[..., 0, :] for state in states]), state

    return scan


@contextmanager
def _torch_stepwise(module: TorchRecurrent, found: States) -> Iterator[None]:
    """The layer's forward, step by step; for an LSTM the state is h beside c."""
    layer = module.layer

    def forward(x: Tensor, lengths: Tensor | None = None) -> Tensor:
        state = torch.cat(module.init_state(len(x)), -1)[0]
        width, states = layer.hidden_size, []
        for frame in x.unbind(1):
            parts = tuple(part.unsqueeze(0) for part in state.split(width, -1))
            hidden = parts if isinstance(layer, nn.LSTM) else parts[0]  # type: ignore[misc]
            _, new = layer(frame.unsqueeze(1), hidden)
            state = torch.cat(new, -1)[0] if isinstance(new, tuple) else new[0]
            states.append(state)
        found.append(states)
        return torch.stack([state[:, :width] for state in states], 1)

    module.forward = forward
    try:
        yield
    finally:
        del module.forward


class Decay(NamedTuple):
    """``norm ≈ constant * rho ** (rate * distance)``, fitted to logarithms."""

    rho: float
    """Factor of one update."""
    constant: float
    r2: float
    """Share of the logarithms' variance that the line explains."""

    def at(self, distance: Tensor, rate: float) -> Tensor:
        """The line."""
        return self.constant * self.rho ** (rate * distance.double())


def fit_decay(
    norm: Float[Tensor, "T"], rate: float, first: int = 0, last: int | None = None
) -> Decay:
    """Fit ρ^{pΔ} to one layer's gradient norms at the states after steps first + 1 to last.

    ``rate`` is the layer's update rate p; where it is 0 nothing decays, and rho is 1. States at
    which float32 has no digits left for a gradient do not count; if that is all, rho is 0.
    """
    distance = torch.arange(len(norm) - 1, -1, -1, dtype=torch.float64)[first:last]
    there = norm[first:last] > torch.finfo(torch.float32).tiny
    if there.sum() < 2:
        return Decay(0.0, 0.0, 1.0)
    log = norm[first:last][there].double().log()
    updates = rate * distance[there]
    sides = torch.stack((updates, torch.ones_like(updates)), 1)
    slope, offset = torch.linalg.lstsq(sides, log[:, None]).solution[:, 0]
    spread = (log - log.mean()).square().sum()
    left = (log - slope * updates - offset).square().sum()
    r2 = 1 - (left / spread).item() if spread > 0 else 1.0
    return Decay(slope.exp().item(), offset.exp().item(), r2)
