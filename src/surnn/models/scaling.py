"""Standardised inputs and outputs: the model takes raw values and predicts in raw units.

Means and standard deviations are buffers of the model. They are therefore saved with its weights,
and evaluation, streams and every export apply them.
"""

from typing import Any

import torch
from torch import Tensor, nn

Scale = tuple[Any, Any]
"""Means and standard deviations, one number for each feature."""


class ScaledEncoder(nn.Module):
    """Standardises every feature, then applies another encoder.

    Args:
        features: numbers per time step.
        inner: the encoder of standardised values.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, features: int, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("scale", torch.ones(features))
        self.register_buffer("shift", torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        features = self.scale.shape[0]
        if not torch.jit.is_tracing() and x.shape[-1] != features:  # one would be repeated
            raise ValueError(
                f"the model takes {features} features at each time step, got {x.shape[-1]}"
            )
        return self.inner(x * self.scale + self.shift)

    def set(self, scale: Scale) -> None:
        """Use these means and standard deviations."""
        mean, std = (torch.as_tensor(part, dtype=torch.float64) for part in scale)
        self.scale.copy_(1 / std)
        self.shift.copy_(-mean / std)

    def unscaled(self, x: Tensor) -> Tensor:
        """Raw values that are standardised to ``x``."""
        return (x - self.shift) / self.scale


class ScaledReadout(nn.Module):
    """A linear map whose result is multiplied by standard deviations and shifted by means.

    ``weight`` and ``bias`` are those of the whole map.

    Args:
        width: features that it reads.
        size: numbers that it predicts.
    """

    std: Tensor
    mean: Tensor

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, size)
        self.register_buffer("std", torch.ones(size))
        self.register_buffer("mean", torch.zeros(size))

    @property
    def weight(self) -> Tensor:
        """[size, width]."""
        return self.inner.weight * self.std[:, None]

    @property
    def bias(self) -> Tensor:
        """[size]."""
        return self.inner.bias * self.std + self.mean

    def forward(self, y: Tensor) -> Tensor:
        return self.inner(y) * self.std + self.mean

    def set(self, scale: Scale) -> None:
        """Use these means and standard deviations."""
        for buffer, values in zip((self.mean, self.std), scale, strict=True):
            buffer.copy_(torch.as_tensor(values, dtype=torch.float64))


def set_scales(model: Any, inputs: Scale | None, outputs: Scale | None) -> None:
    """Set the means and standard deviations of a model's input and output, where it has them."""
    for module, scale in ((model.encoder, inputs), (model.head, outputs)):
        if isinstance(module, ScaledEncoder | ScaledReadout) and scale is not None:
            module.set(scale)
