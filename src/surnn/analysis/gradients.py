"""Gradients of the loss with respect to states many time steps earlier."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from surnn.models.base import Mixer
from surnn.scan import ScanInputs, reference
from surnn.scan.contract import input_projection

from .recording import NotApplicable, dense_recurrences, replace_scan, selective_layers

States = list[list[Tensor]]
"""The state [B, ...] after each time step, for each layer."""


class GradientProfile(NamedTuple):
    """Gradient norms of every layer, in order, at every time step."""

    norm: Float[Tensor, "L T"]
    """Entry τ - 1: the mean over sequences of ‖∂ℓ/∂h_τ‖₂, where ℓ is the sequence's own loss and
    h_τ the whole state after time step τ (for an LSTM both h and c)."""

    @property
    def distance(self) -> Tensor:
        """[T] time steps from each state to the last one."""
        return torch.arange(self.norm.shape[1] - 1, -1, -1)


def gradient_profile(
    model: nn.Module, x: Tensor, loss: Callable[[Tensor], Tensor]
) -> GradientProfile:
    """Norms of the gradient of a loss with respect to the state after every time step.

    The model runs in evaluation mode, step by step, so that every state is in the graph.

    Args:
        model: a model with surnn's layers, reading forwards, or with recurrent baselines.
        x: sequences of equal length, the input of the model.
        loss: the mean loss over sequences, from the model's output.
    """
    states: States = []
    training = model.training
    with ExitStack() as hooks:
        for layer in selective_layers(model):
            if layer.bidirectional:
                raise NotApplicable("a gradient profile needs layers that read forwards only")
            hooks.enter_context(replace_scan(layer, _stepwise_scan(states)))
        for mixer in dense_recurrences(model):
            if mixer.outputs_state:
                hooks.enter_context(_stepwise(mixer, states))
        hooks.callback(model.train, training)
        model.eval()
        with torch.enable_grad():
            output = model(x)
            mean = loss(output[0] if isinstance(output, tuple) else output)
    if not states:
        raise NotApplicable(
            f"{type(model).__name__} has no recurrent layer that can run step by step: expected "
            "one of surnn's layers, or a baseline that outputs its state: gru, lstm, rnn or mingru"
        )
    total = mean * len(states[0][0])  # sequences are independent: each has its own loss again
    flat = [state for layer in states for state in layer]
    grads = torch.autograd.grad(total, flat, allow_unused=True, materialize_grads=True)
    norms = torch.stack([grad.flatten(1).double().norm(dim=1).mean() for grad in grads])
    return GradientProfile(norms.view(len(states), -1).cpu())


def _stepwise_scan(states: States) -> Callable[[int, ScanInputs, str], tuple[Tensor, Tensor]]:
    """A scan that appends the state after each time step to ``states``."""

    def scan(_index: int, inputs: ScanInputs, _backend: str) -> tuple[Tensor, Tensor]:
        state, own = inputs.state, []
        drive = input_projection(inputs.x, inputs.weight, inputs.bias)
        for drive_t, gate_t in zip(drive, inputs.gate, strict=True):
            state = reference.step(inputs, drive_t, gate_t, state)
            own.append(state)
        states.append(own)
        return torch.stack([state[..., 0, :] for state in own]), state

    return scan


@contextmanager
def _stepwise(mixer: Mixer, states: States) -> Iterator[None]:
    """Inside this context, the mixer runs step by step; its states are appended to ``states``.

    The tensors of a state are joined to one and split again. So the output and the next time step
    depend on the tensor whose gradient is taken.
    """

    def forward(x: Tensor, lengths: Tensor | None = None) -> Tensor:
        t = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        state, own, outputs = mixer.init_state(len(x)), [], []
        shapes = [part.shape[1:] for part in mixer.split_state(state)]
        for frame in x.unbind(1):
            y, state = mixer.step(frame, state)
            t = t + 1
            flat = torch.cat([part.flatten(1) for part in mixer.split_state(state)], 1)
            parts = flat.split([shape.numel() for shape in shapes], 1)
            parts = [part.unflatten(1, shape) for part, shape in zip(parts, shapes, strict=True)]
            state = mixer.join_state(parts, t)
            own.append(flat)
            outputs.append(parts[0].to(y.dtype))
        states.append(own)
        return torch.stack(outputs, 1)

    mixer.forward = forward
    try:
        yield
    finally:
        del mixer.forward


class Decay(NamedTuple):
    """The fit ``norm ≈ constant * rho ** (rate * distance)``, by least squares of logarithms."""

    rho: float
    """Factor per update."""
    constant: float
    r2: float
    """Share of the variance of the logarithms that the fit explains."""

    def at(self, distance: Tensor, rate: float) -> Tensor:
        """The fitted norm."""
        return self.constant * self.rho ** (rate * distance.double())


def fit_decay(
    norm: Float[Tensor, "T"], rate: float, first: int = 0, last: int | None = None
) -> Decay:
    """Fit ρ^{pΔ} to one layer's gradient norms at the states after time steps first + 1 to last.

    ``rate`` is the layer's update rate p. If it is 0, rho is 1. Norms that are 0 in float32 are
    left out; if fewer than two remain, rho is 0.
    """
    distance = torch.arange(len(norm) - 1, -1, -1, dtype=torch.float64)[first:last]
    positive = norm[first:last] > torch.finfo(torch.float32).tiny
    if positive.sum() < 2:
        return Decay(0.0, 0.0, 1.0)
    log = norm[first:last][positive].double().log()
    updates = rate * distance[positive]
    sides = torch.stack((updates, torch.ones_like(updates)), 1)
    slope, offset = torch.linalg.lstsq(sides, log[:, None]).solution[:, 0]
    spread = (log - log.mean()).square().sum()
    residual = (log - slope * updates - offset).square().sum()
    r2 = 1 - (residual / spread).item() if spread > 0 else 1.0
    return Decay(slope.exp().item(), offset.exp().item(), r2)
