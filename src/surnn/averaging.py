"""A running mean of the weights: often better than they are while the learning rate is high.

(torch's AveragedModel asks the device in every update whether it is the first, and counts those
that did not happen.)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

EARLY = 10
"""The mean after n updates reaches back over about n / EARLY of them, if not fewer."""


class Average:
    """The mean of a model's trained weights and of the statistics of its norms.

    Args:
        model: on its device.
        decay: what is left of the mean after an update.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.own: dict[str, Tensor] = {
            **{name: p for name, p in model.named_parameters() if p.requires_grad},
            **{name: b for name, b in statistics(model).items() if b.is_floating_point()},
        }
        self.mean = {name: value.detach().clone() for name, value in self.own.items()}
        self.count = torch.zeros((), device=next(iter(self.own.values())).device)
        """Updates in it. The first takes all of the mean: what it begins as does not matter."""

    @torch.no_grad()
    def add(self, lost: Tensor) -> None:
        """Take in the weights after an update, unless it was ``lost``. Device work only."""
        share = (EARLY / (EARLY + self.count)).clamp_min(1 - self.decay)
        mean = [*self.mean.values()]
        change = torch._foreach_sub([*self.own.values()], mean)
        torch._foreach_mul_(change, torch.where(lost > 0, 0.0, share))
        torch._foreach_add_(mean, change)
        self.count.add_(lost == 0)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the mean, in the same memory, while in here; before the first update its
        own weights."""
        if not self.count:
            yield
            return
        own, kept = [*self.own.values()], [value.detach().clone() for value in self.own.values()]
        with torch.no_grad():
            torch._foreach_copy_(own, [*self.mean.values()])
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(own, kept)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        mean = {name: value.cpu() for name, value in self.mean.items()}
        return {"count": self.count.item(), "mean": mean}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what :meth:`state` gave."""
        self.count.fill_(state["count"])
        for name, value in self.mean.items():
            value.copy_(state["mean"][name])


def statistics(model: nn.Module) -> dict[str, Tensor]:
    """What batch norms have seen, and how often."""
    return {
        f"{name}.{part}": value
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm)
        for part, value in module.named_buffers()
    }
