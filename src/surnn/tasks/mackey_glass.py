"""Mackey-Glass: forecast a chaotic series some time steps ahead.

dx/dt = 0.2 x(t - 17) / (1 + x(t - 17)^10) - 0.1 x, by Euler's method with 10 sub-steps per step.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from .base import Batch, Output, Score, Split, Task, Values, generator_for
from .batching import check_choice, row_numbers

DELAY = 17
SUBSTEPS = 10
WARM_UP = (1000, 3000)
SETTLING = 100
"""Time steps at the start that do not count: a forecast needs some history."""
SHIFT = 137
MEAN = -0.0653
VARIANCE = 0.0467
"""Mean of the squashed series, over 1024 trajectories of 5000 time steps."""
DATA_SEED = 0

Control = Literal["forecast", "recall", "leak", "shift"]


def simulate(history: np.ndarray, start: np.ndarray, steps: int) -> np.ndarray:
    """Series [N, steps] after ``start`` [N], at one step of time each.

    ``history`` [N, 17 * substeps] is x before the start, oldest first; its width sets the number of
    sub-steps. Only sums, products and quotients in a fixed order, so that every machine computes
    the same series to the last bit; chaos would amplify any difference.
    """
    lag = history.shape[1]
    substeps = lag // DELAY
    decay = 1 - 0.1 / substeps
    past, x = history.T.copy(), start
    series = np.empty((math.ceil(steps / DELAY), DELAY, len(start)))
    for block in series:  # within one delay, the delayed values are already known
        square = past * past
        drive = 0.2 / substeps * past / (1 + square * (square * square) * (square * square))
        for place in range(lag):
            past[place] = x
            x = decay * x + drive[place]
            if (place + 1) % substeps == 0:
                block[place // substeps] = x
    return series.reshape(-1, len(start))[:steps].T


@lru_cache(maxsize=4)
def trajectories(count: int, steps: int, device: torch.device) -> Tensor:
    """Squashed, centred float32 series [count, steps], each on its own trajectory.

    Each has its own random history and a warm-up of 1000 to 3000 time steps. A longer series begins
    with the shorter one. Drawn on the CPU, so that all devices have the same series.
    """
    random = generator_for(DATA_SEED, 0, torch.device("cpu"))

    def uniform(*shape: int) -> np.ndarray:
        return torch.rand(shape, generator=random, dtype=torch.float64).numpy()

    history = 1.1 + 0.2 * uniform(count, DELAY * SUBSTEPS)
    first = (WARM_UP[0] + (WARM_UP[1] - WARM_UP[0]) * uniform(count)).astype(int)
    series = simulate(history, np.full(count, 1.2), WARM_UP[1] + steps)
    watched = np.take_along_axis(series, first[:, None] + np.arange(steps), 1)
    return torch.from_numpy(np.tanh(watched - 1) - MEAN).float().to(device)


@dataclass(frozen=True)
class MackeyGlass(Task):
    """Mackey-Glass prediction.

    Input [B, length, 1]: tanh(x - 1) less its mean, one sample per unit of time. Target
    [B, length, horizons]: the series at each of ``horizons`` time steps later. A quarter of the
    ``series`` fixed trajectories is for training, a quarter for validation and a half for test, as
    for the LMU. Unlike there, trajectories are independent: state and history are reset, and the
    warm-up is random. Loss and metric are the mean square error after the first 100 time steps.
    Also
    logged: the root mean square error relative to the spread of the series, and the mean square
    error of each horizon.

    Args:
        horizons: time steps to look ahead. Several give one model with as many outputs, which is
            cheaper than one model per horizon.
        length: time steps of a series.
        series: number of trajectories.
        control: ``"forecast"``, or a control. ``"recall"``: the input is the later series and the
            target the earlier one (the LMU's published direction). ``"leak"``: validation and test
            are the training series, which shows how much a clock can memorise. ``"shift"``: the
            validation and test sets of the forecast with the clock 137 time steps ahead: as many
            earlier time steps precede them and do not count. Forecast, leak and shift have the same
            training set, so that one model can be tested on all three.
    """

    horizons: tuple[int, ...] = (15,)
    length: int = 5000
    series: int = 128
    control: Control = "forecast"

    name: ClassVar[str] = "mackey_glass"
    looks_ahead: ClassVar[bool] = True
    metric: ClassVar[str] = "mse"
    higher_is_better: ClassVar[bool] = False
    # The paper prints a figure only, no numbers.

    def __post_init__(self) -> None:
        check_choice("control", self.control, Control)
        if not self.horizons or min(self.horizons) < 1:
            raise ValueError(f"horizons is {self.horizons}; expected one or more, of at least 1")
        if self.length <= SETTLING:
            raise ValueError(
                f"length is {self.length}; expected more than {SETTLING} steps, the first of which"
                " do not count"
            )
        if self.series < 4 or self.series % 4:
            raise ValueError(
                f"series is {self.series}; expected a multiple of 4, to be split 1 : 1 : 2"
            )

    @property
    def input(self) -> Values:
        return Values(1)

    @property
    def output(self) -> Output:
        return Output(len(self.horizons), "step")

    @property
    def steps(self) -> int:
        return self.length + (SHIFT if self.control == "shift" else 0)

    @property
    def chance(self) -> float:
        return VARIANCE

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        self._series(device)

    def size(self, split: Split) -> int:
        rows = self._rows(split)
        return rows.stop - rows.start

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        rows = row_numbers(split, self.size(split), number, size, seed)
        series = self._series(device)[self._rows(split)][rows.to(device)]
        shifted = self.control == "shift" and split != "train"
        begin, end = 0 if shifted else SHIFT, SHIFT + self.length
        last = max(self.horizons) if self.control == "recall" else 0
        x = series[:, begin + last : end + last]
        sign = -1 if self.control == "recall" else 1
        places = [last + sign * horizon for horizon in self.horizons]
        target = torch.stack([series[:, begin + at : end + at] for at in places], -1)
        return Batch(x.unsqueeze(-1), target)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        forecast, target = self._counted(prediction.float(), batch)
        return functional.mse_loss(forecast, target)

    def score(self, prediction: Tensor, batch: Batch) -> Score:
        return _mean(self._squared_error(prediction, batch))

    def details(self, prediction: Tensor, batch: Batch) -> dict[str, Score]:
        error = self._squared_error(prediction, batch)
        scores = {"nrmse": replace(_mean(error / VARIANCE), root=True)}
        if len(self.horizons) > 1:
            for horizon, its_error in zip(self.horizons, error.unbind(-1), strict=True):
                scores[f"mse at {horizon}"] = _mean(its_error)
        return scores

    def _squared_error(self, prediction: Tensor, batch: Batch) -> Tensor:
        forecast, target = self._counted(prediction.detach().double(), batch)
        return (forecast - target).square()

    def _counted(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The part that counts, without the beginning and the time steps that shift the clock."""
        begin = batch.x.shape[1] - self.length + SETTLING
        return prediction[:, begin:], batch.target[:, begin:]

    def _series(self, device: torch.device) -> Tensor:
        """[series, SHIFT + length + the longest horizon]."""
        return trajectories(self.series, SHIFT + self.length + max(self.horizons), device)

    def _rows(self, split: Split) -> slice:
        if split == "train" or self.control == "leak":
            return slice(0, self.series // 4)
        half = self.series // 2
        return slice(half // 2, half) if split == "valid" else slice(half, self.series)


def _mean(values: Tensor) -> Score:
    return Score(values.sum(), torch.tensor(values.numel(), device=values.device))
