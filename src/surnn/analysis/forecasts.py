"""Mackey-Glass: forecast error against the horizon, and the attractor of the forecasts."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from surnn.tasks.base import Batch
from surnn.tasks.mackey_glass import DELAY, SETTLING, MackeyGlass


class Forecast(NamedTuple):
    """Forecasts for several horizons and the true values, without the settling time steps."""

    horizons: tuple[int, ...]
    predicted: Float[Tensor, "B T K"]
    true: Float[Tensor, "B T K"]

    @property
    def error(self) -> Float[Tensor, "K"]:
        """Mean square error of each horizon."""
        return (self.predicted - self.true).double().square().mean((0, 1))


@torch.no_grad()
def forecast(model: nn.Module, task: MackeyGlass, batch: Batch) -> Forecast:
    """A model's forecasts for a batch."""
    begin = batch.x.shape[1] - task.length + SETTLING
    predicted = model.eval()(batch.x).float()
    return Forecast(task.horizons, predicted[:, begin:].cpu(), batch.target[:, begin:].cpu())


def attractor(series: Float[Tensor, "*any T"]) -> tuple[Tensor, Tensor]:
    """x(t - 17) and x(t), the plane of the attractor; 17 is the delay of the equation."""
    return series[..., :-DELAY], series[..., DELAY:]
