"""From random or smooth gates to hard ones in the course of training."""

import torch
from torch import Tensor, nn

from .base import Gate


def noise_at(step: float, begin: float, end: float) -> float:
    """1 up to ``begin``, then linearly down to 0 at ``end``."""
    if step <= begin:
        return 1.0
    return max(0.0, 1 - (step - begin) / max(1.0, end - begin))


@torch.no_grad()
def anneal(module: nn.Module, step: float, begin: float, end: float) -> float:
    """Harden the sampled and relaxed gates in ``module``; call it before each optimizer step.

    Args:
        module: a layer or a model with layers in it.
        step: the number of this optimizer step.
        begin: up to this step gates are fully random (``mode="sampled"``) or smooth
            (``mode="relaxed"``).
        end: from this step on they are hard. Leave time to train after it.

    Returns:
        the remaining randomness or smoothness, from 1 to 0: the ``noise`` of these gates.

    Example:
        >>> import surnn
        >>> layer = surnn.SuGRU(4, 32, gate=surnn.InputGate(mode="sampled"))
        >>> for step in range(100):
        ...     noise = surnn.anneal(layer, step, begin=50, end=75)
        ...     # forward, backward, optimizer.step()
        >>> float(layer.gates[0].noise)
        0.0
    """
    noise = noise_at(step, begin, end)
    for gate in (part for part in module.modules() if isinstance(part, Gate)):
        parameter = next(gate.parameters(), None)
        if parameter is None:
            continue
        # A tensor: a compiled layer is not compiled again when the value changes.
        if isinstance(gate.noise, Tensor) and gate.noise.device == parameter.device:
            gate.noise.fill_(noise)
        else:
            gate.noise = torch.tensor(noise, device=parameter.device)
    return noise
