"""Mackey-Glass: say where a chaotic series will be ``horizon`` steps from now.

dx/dt = 0.2 x(t - 17) / (1 + x(t - 17)^10) - 0.1 x, by Euler's method with 10 sub-steps per step.
Within one delay the nonlinear term is known beforehand, so that the recurrence is linear there and
a whole delay is one matrix product, for all series at once.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from .base import Batch, Output, Score, Split, Task, Values, generator_for, shuffled

DELAY = 17
SUBSTEPS = 10
WARM_UP = (1000, 3000)
SETTLING = 100
"""Steps at the start that do not count: nobody can forecast from nothing."""
SHIFT = 137
MEAN = -0.0653
VARIANCE = 0.0467
"""Of the squashed series, over 1024 trajectories of 5000 steps."""
DATA_SEED = 0

Control = Literal["forecast", "recall", "leak", "shift"]


def simulate(history: Tensor, start: Tensor, steps: int) -> Tensor:
    """Series [N, steps] after ``start`` [N], at one step of time each.

    ``history`` [N, 17 * substeps] is x before the start, oldest first; its width sets the number of
    sub-steps.
    """
    lag = history.shape[1]
    substeps = lag // DELAY
    decay = 1 - 0.1 / substeps
    place = torch.arange(lag, device=history.device, dtype=history.dtype)
    age = place.unsqueeze(1) - place
    response = torch.where(age >= 0, decay ** age.clamp(min=0), 0).T
    carried = decay ** (place + 1)

    state, blocks = start.unsqueeze(1), []
    for _ in range(math.ceil(steps / DELAY)):
        drive = 0.2 / substeps * history / (1 + history**10)
        block = torch.addmm(state * carried, drive, response)
        blocks.append(block[:, substeps - 1 :: substeps])
        history, state = torch.cat([state, block[:, :-1]], 1), block[:, -1:]
    return torch.cat(blocks, 1)[:, :steps]


def nrmse(mse: float) -> float:
    """Root mean square error in units of the series' own standard deviation."""
    return math.sqrt(mse / VARIANCE)


@lru_cache(maxsize=4)
def trajectories(count: int, steps: int, device: torch.device) -> Tensor:
    """Squashed, centred float32 series [count, steps], each on its own trajectory.

    Each has its own random history and is left alone for 1000 to 3000 steps before it is watched.
    More steps go on where fewer ended.
    """
    random = generator_for(DATA_SEED, 0, device)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=random, device=device, dtype=torch.float64)

    history = 1.1 + 0.2 * uniform(count, DELAY * SUBSTEPS)
    first = (WARM_UP[0] + (WARM_UP[1] - WARM_UP[0]) * uniform(count)).long()
    series = simulate(history, torch.full_like(history[:, 0], 1.2), WARM_UP[1] + steps)
    window = first.unsqueeze(1) + torch.arange(steps, device=device)
    return (torch.tanh(series.take_along_dim(window, 1) - 1) - MEAN).float()


@dataclass(frozen=True)
class MackeyGlass(Task):
    """Mackey-Glass prediction.

    Input [B, length, 1]: tanh(x - 1) less its mean, one sample per unit of time. Target
    [B, length]: the same series ``horizon`` steps later. Of ``series`` fixed trajectories a quarter
    is for training, a quarter for validation and a half for test, as for the LMU. Unlike there,
    trajectories are independent: state and history are reset, and the warm-up is random. The loss
    and the metric are the mean square error after the first 100 steps.

    Args:
        horizon: steps to look ahead.
        length: steps of a series.
        series: trajectories in all.
        control: ``"forecast"``, or what might look like it. ``"recall"``: input is the later series
            and target the earlier (the LMU's published direction). ``"leak"``: validation and test
            are the training series, which shows what a clock can memorise. ``"shift"``: so they
            are, 137 steps later; what was memorised by the clock is of no use there. Training sets
            of forecast, leak and shift are the same, so that one model can be put to all three.
    """

    horizon: int = 15
    length: int = 5000
    series: int = 128
    control: Control = "forecast"

    name: ClassVar[str] = "mackey_glass"
    metric: ClassVar[str] = "mse"
    higher_is_better: ClassVar[bool] = False
    # The paper prints a figure only, no numbers.

    def __post_init__(self) -> None:
        if self.control not in get_args(Control):
            expected = ", ".join(get_args(Control))
            raise ValueError(f"control is {self.control!r}; expected one of {expected}")
        if self.horizon < 1:
            raise ValueError(f"horizon is {self.horizon}; expected at least 1 step")
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
        return Output(1, "step")

    @property
    def steps(self) -> int:
        return self.length

    @property
    def chance(self) -> float:
        return VARIANCE

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        self._series(device)

    def size(self, split: Split) -> int:
        rows = self._rows(split)
        return rows.stop - rows.start

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        series = self._series(device)[self._rows(split)]
        if split == "train":
            series = series[shuffled(len(series), number, size, seed).to(device)]
        else:
            series = series[number * size : (number + 1) * size]
        begin = SHIFT if self.control == "shift" and split != "train" else 0
        now = series[:, begin : begin + self.length]
        later = series[:, begin + self.horizon : begin + self.horizon + self.length]
        if self.control == "recall":
            now, later = later, now
        return Batch(now.unsqueeze(-1), later)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        made = prediction[:, SETTLING:, 0].float()
        return functional.mse_loss(made, batch.target[:, SETTLING:])

    def score(self, prediction: Tensor, batch: Batch) -> Score:
        error = prediction.detach()[:, SETTLING:, 0].double() - batch.target[:, SETTLING:].double()
        return Score(error.square().sum(), torch.tensor(error.numel(), device=error.device))

    def _series(self, device: torch.device) -> Tensor:
        return trajectories(self.series, self.length + self.horizon + SHIFT, device)

    def _rows(self, split: Split) -> slice:
        if split == "train" or self.control in ("leak", "shift"):
            return slice(0, self.series // 4)
        half = self.series // 2
        return slice(half // 2, half) if split == "valid" else slice(half, self.series)
