"""A model on a whole split: the metric, the loss, and how often its gates opened, on what."""

from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from .models import SequenceModel
from .tasks.base import Batch, Score, Split, Task


class GateWatch:
    """Update rates of every selective layer, in all and for each kind of token.

    Sees the schedules that the gates hand out, through hooks; the model is not touched.
    """

    def __init__(self, model: SequenceModel, kinds: tuple[str, ...]) -> None:
        self.kinds, self.pairs = kinds, model.wanted.pairs
        self.layers = model.selective_layers()
        self.opened = [0.0] * len(self.layers)
        self.steps = [0.0] * len(self.layers)
        self.by_kind = [dict.fromkeys(kinds, (0.0, 0.0)) for _ in self.layers]
        self.batch: Batch | None = None

    @contextmanager
    def watching(self):
        """Count while in here."""
        handles = [
            layer.gates[0].register_forward_hook(self._hook(i))
            for i, layer in enumerate(self.layers)
        ]
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, index: int) -> Any:
        def count(module: nn.Module, inputs: Any, output: Any) -> None:
            assert self.batch is not None
            rate = output[0].g.float().mean(-1).t()  # [b, T]
            sequences = len(self.batch.x) * (2 if self.pairs else 1)
            rate = rate.expand(sequences, -1) if len(rate) == 1 else rate
            inside = torch.ones_like(rate)
            if self.batch.lengths is not None:
                lengths = self.batch.lengths.flatten()[:, None]
                inside = (torch.arange(rate.shape[1], device=rate.device) < lengths).float()
            self.opened[index] += (rate * inside).sum().item()
            self.steps[index] += inside.sum().item()
            if self.batch.kinds is None:
                return
            for number, kind in enumerate(self.kinds):
                mask = inside * (self.batch.kinds == number)
                total, count = self.by_kind[index][kind]
                self.by_kind[index][kind] = (
                    total + (rate * mask).sum().item(),
                    count + mask.sum().item(),
                )

        return count

    def rates(self) -> list[float]:
        """Of each layer."""
        return [o / s for o, s in zip(self.opened, self.steps, strict=True) if s]

    def rates_by_kind(self) -> list[dict[str, float]]:
        """Of each layer, for each kind of token that came."""
        return [{k: o / s for k, (o, s) in layer.items() if s} for layer in self.by_kind]


@torch.no_grad()
def evaluate(
    model: SequenceModel,
    task: Task,
    split: Split,
    batch_size: int,
    device: torch.device,
    *,
    batches: int | None = None,
    precision: str = "float32",
) -> dict[str, Any]:
    """Metric, loss and update rates over ``split`` (or its first ``batches``)."""
    size = task.size(split)
    assert size is not None
    count = -(-size // batch_size)
    count = count if batches is None else min(batches, count)
    was_training = model.training
    model.eval()
    total = seen = loss = torch.zeros((), dtype=torch.float64, device=device)
    sequences = 0
    details: dict[str, Score] = {}
    watch = GateWatch(model, task.kinds)
    try:
        with watch.watching():
            for number in range(count):
                batch = task.batch(split, number, batch_size, 0, device)
                watch.batch = batch
                with autocast(device, precision):
                    prediction = model(batch.x, batch.lengths)
                prediction = prediction.float()
                score = task.score(prediction, batch)
                total, seen = total + score.total, seen + score.count
                for name, part in task.details(prediction, batch).items():
                    details[name] = details[name] + part if name in details else part
                loss = loss + task.loss(prediction, batch) * len(batch.x)
                sequences += len(batch.x)
    finally:
        model.train(was_training)
    found: dict[str, Any] = {
        task.metric: (total / seen).item(),
        "loss": (loss / sequences).item(),
        **{name: score.value for name, score in details.items()},
    }
    if watch.layers:
        found["update_rate"] = watch.rates()
        if task.kinds:
            found["update_rate_by_kind"] = watch.rates_by_kind()
    return found


def autocast(device: torch.device, precision: str) -> Any:
    """Half-precision products where the run asks for them."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")
