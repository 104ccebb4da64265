"""Labels as shares of all classes, sequences mixed by pairs: against over-fitting."""

import torch
from torch.distributions import Beta

from .config import TrainConfig
from .tasks.base import Batch, Classification, Task, Values


class Softened:
    """Makes batches so: label smoothing (Szegedy et al., 2016), mixup (Zhang et al., 2018).

    Args:
        task: with a label for each sequence.
        train: how much of both.
        device: of the batches.
    """

    def __init__(self, task: Task, train: TrainConfig, device: torch.device) -> None:
        if not isinstance(task, Classification):
            raise ValueError(
                "train.label_smoothing and train.mixup are for tasks with a label for each "
                f"sequence, and {task.name} is none: leave them out"
            )
        if train.mixup and not isinstance(task.input, Values):
            raise ValueError(
                f"train.mixup takes means of sequences, and those of {task.name} are tokens: leave "
                "it out"
            )
        self.smoothing = train.label_smoothing
        self.classes = torch.arange(task.output.size, device=device)
        self.shares = None
        if train.mixup:
            both = torch.full((2,), train.mixup, device=device)  # there before a graph is captured
            self.shares = Beta(*both, validate_args=False)

    def __call__(self, batch: Batch) -> Batch:
        """The batch with targets [B, classes]."""
        x, target = batch.x, (batch.target.unsqueeze(-1) == self.classes).float()
        if self.shares is not None:
            if batch.lengths is not None:
                raise ValueError(
                    "train.mixup is for sequences that are all of one length: leave it out"
                )
            share = self.shares.sample((len(x), 1))
            target = torch.lerp(target.flip(0), target, share)
            x = torch.lerp(x.flip(0), x, share.unsqueeze(-1).to(x.dtype))
        target = (1 - self.smoothing) * target + self.smoothing / len(self.classes)
        return batch._replace(x=x, target=target)
