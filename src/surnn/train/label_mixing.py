"""Label smoothing and mixup, against over-fitting."""

import torch
from torch.distributions import Beta

from surnn.config import TrainConfig
from surnn.errors import ConfigError
from surnn.tasks.base import Batch, Classification, Task, Values


class LabelMixer:
    """Applies label smoothing (Szegedy et al., 2016) and mixup (Zhang et al., 2018) to batches.

    Args:
        task: a task with a label for each sequence.
        train: the amounts of both.
        device: the device of the batches.
    """

    def __init__(self, task: Task, train: TrainConfig, device: torch.device) -> None:
        if not isinstance(task, Classification):
            raise ConfigError(
                "train.label_smoothing and train.mixup need a task with a label for each sequence, "
                f"and {task.name} has none: leave them out"
            )
        if train.mixup and not isinstance(task.input, Values):
            raise ConfigError(
                f"train.mixup averages sequences, and those of {task.name} are tokens: leave it out"
            )
        self.smoothing = train.label_smoothing
        self.classes = torch.arange(task.output.size, device=device)
        self.shares = None
        if train.mixup:
            both = torch.full((2,), train.mixup, device=device)  # before a graph is captured
            self.shares = Beta(*both, validate_args=False)

    def __call__(self, batch: Batch) -> Batch:
        """The batch with targets [B, classes]."""
        x, target = batch.x, (batch.target.unsqueeze(-1) == self.classes).float()
        if self.shares is not None:
            if batch.lengths is not None:
                raise ConfigError("train.mixup needs sequences of equal length: leave it out")
            share = self.shares.sample((len(x), 1))
            target = torch.lerp(target.flip(0), target, share)
            x = torch.lerp(x.flip(0), x, share.unsqueeze(-1).to(x.dtype))
        target = (1 - self.smoothing) * target + self.smoothing / len(self.classes)
        return batch._replace(x=x, target=target)
