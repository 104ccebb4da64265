"""An exponential moving average of the weights, often better than the weights themselves while the
learning rate is high.

torch's AveragedModel waits for the device at every step and counts steps that failed; this does
neither.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

EARLY = 10
"""After n steps the mean covers at most about the last n / EARLY of them."""


class WeightEma:
    """The mean of a model's trainable weights and of its batch-norm statistics.

    Args:
        model: the model, on its device.
        decay: the share of the mean that a step keeps.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.own: dict[str, Tensor] = {
            **{name: p for name, p in model.named_parameters() if p.requires_grad},
            **{name: b for name, b in norm_statistics(model).items() if b.is_floating_point()},
        }
        self.mean = {name: value.detach().clone() for name, value in self.own.items()}
        self.count = torch.zeros((), device=next(iter(self.own.values())).device)
        """Steps in the mean. The first replaces it, so its initial value does not matter."""

    @torch.no_grad()
    def add(self, failed: Tensor) -> None:
        """Add the weights after a step, unless it ``failed``. Device work only."""
        share = (EARLY / (EARLY + self.count)).clamp_min(1 - self.decay)
        mean = [*self.mean.values()]
        change = torch._foreach_sub([*self.own.values()], mean)
        torch._foreach_mul_(change, torch.where(failed > 0, 0.0, share))
        torch._foreach_add_(mean, change)
        self.count.add_(failed == 0)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the mean, in the same memory, inside the context; before the first step
        its own weights."""
        if not self.count:
            yield
            return
        own, saved = [*self.own.values()], [value.detach().clone() for value in self.own.values()]
        with torch.no_grad():
            torch._foreach_copy_(own, [*self.mean.values()])
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(own, saved)

    def state(self) -> dict[str, Any]:
        """The mean and its count, for a checkpoint."""
        mean = {name: value.cpu() for name, value in self.mean.items()}
        return {"count": self.count.item(), "mean": mean}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the value of :meth:`state`."""
        self.count.fill_(state["count"])
        for name, value in self.mean.items():
            value.copy_(state["mean"][name])


def norm_statistics(model: nn.Module) -> dict[str, Tensor]:
    """The running statistics of batch norms, by name."""
    return {
        f"{name}.{part}": value
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm)
        for part, value in module.named_buffers()
    }
