"""Mackey-Glass: how the error grows with the horizon, and whether forecasts keep the attractor."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..tasks.base import Batch
from ..tasks.mackey_glass import DELAY, SETTLING, MackeyGlass


class Forecast(NamedTuple):
    """What a model said of several horizons, and what came, after the steps that do not count."""

    horizons: tuple[int, ...]
    made: Float[Tensor, "B T K"]
    true: Float[Tensor, "B T K"]

    @property
    def error(self) -> Float[Tensor, "K"]:
        """Mean square error of each horizon."""
        return (self.made - self.true).double().square().mean((0, 1))


@torch.no_grad()
def forecast(model: nn.Module, task: MackeyGlass, batch: Batch) -> Forecast:
    """A model's forecasts of a batch."""
    begin = batch.x.shape[1] - task.length + SETTLING
    made = model.eval()(batch.x).float()
    return Forecast(task.horizons, made[:, begin:].cpu(), batch.target[:, begin:].cpu())


def attractor(series: Float[Tensor, "*any T"]) -> tuple[Tensor, Tensor]:
    """x(t - 17) and x(t): the delay of the equation, in which its attractor unfolds."""
    return series[..., :-DELAY], series[..., DELAY:]
