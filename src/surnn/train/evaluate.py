"""Evaluate a model on a split: the metric, the loss, and update rates by kind of token.

All sums stay on the device and are read once, at the end.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from surnn.models.baselines import SavingMixer
from surnn.models.model import SequenceModel, StreamState
from surnn.nn.layers import SelectiveLayer
from surnn.nn.layers.sequence import reverse
from surnn.nn.runtime import has_float64
from surnn.tasks.base import Batch, Score, Split, Task

from .distributed import World


class GateWatch:
    """Counts the updates of every selective layer, in total and for each kind of token.

    Hooks read the gate schedules; the model does not change. Both directions of a layer count as
    one layer. For baselines that save work, it counts the share of their work instead.
    """

    def __init__(self, model: SequenceModel, kinds: tuple[str, ...], device: torch.device) -> None:
        self.kinds, self.pairs = kinds, model.output.pairs
        self.gates: list[tuple[int, bool, nn.Module]] = []
        """For each gate: the number of its layer, whether that reads backwards, the gate."""
        layers = 0
        for stack in model.selective_layers():
            for index, gate in enumerate(stack.gates):
                layer, direction = divmod(index, stack.num_directions)
                self.gates.append((layers + layer, direction == 1, gate))
            layers += stack.num_layers
        self.savers = [m for m in model.modules() if isinstance(m, SavingMixer)]
        """Baselines that save work; a model has these or gates."""
        layers += len(self.savers)
        self.sums = torch.zeros(layers, 1 + len(kinds), 2, dtype=sum_dtype(device), device=device)
        """Open gates and all gates of each layer, in total and by kind."""
        self.batch: Batch | None = None
        """The batch that the model runs on; None is not counted."""

    @contextmanager
    def watching(self) -> Iterator["GateWatch"]:
        """Count inside this context."""
        handles = [
            gate.register_forward_hook(self._hook(layer, backwards))
            for layer, backwards, gate in self.gates
        ]
        handles += [
            saver.register_forward_hook(self._hook(layer, False))
            for layer, saver in enumerate(self.savers)
        ]
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, layer: int, backwards: bool) -> Callable[..., None]:
        def count(module: nn.Module, inputs: Any, output: Any) -> None:
            if self.batch is None:
                return
            x, lengths, kinds = self.batch.x, self.batch.lengths, self.batch.kinds
            lengths = None if lengths is None else lengths.flatten()
            sequences = len(x) * (2 if self.pairs else 1)
            if isinstance(module, SavingMixer):
                assert module.work is not None
                rate = module.work.t().float()
            else:
                rate = output[0].g.float().mean(-1).expand(-1, sequences)  # [T, B]
            if backwards:
                rate = reverse(rate.unsqueeze(-1), lengths).squeeze(-1)
            masks = [torch.ones_like(rate)]
            if lengths is not None:
                masks = [(torch.arange(len(rate), device=rate.device)[:, None] < lengths).float()]
            if kinds is not None:
                masks += [masks[0] * (kinds.t() == kind) for kind in range(len(self.kinds))]
            added = torch.stack([torch.stack(((rate * m).sum(), m.sum())) for m in masks])
            self.sums[layer, : len(masks)] += added

        return count

    def rates(self, sums: Tensor) -> dict[str, Any]:
        """Update rates of each layer from ``sums``, also by kind for the kinds that occurred."""
        if not self.gates and not self.savers:
            return {}
        layers = sums.view_as(self.sums).tolist()
        rates: dict[str, Any] = {
            "update_rate": [updates / steps for (updates, steps), *_ in layers]
        }
        if self.kinds:
            rates["update_rate_by_kind"] = [
                {k: u / s for k, (u, s) in zip(self.kinds, by_kind, strict=True) if s}
                for _, *by_kind in layers
            ]
        return rates


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
    world: World | None = None,
    may_continue: Callable[[], bool] = lambda: True,
) -> dict[str, Any]:
    """Metric, loss and update rates over ``split`` (or its first ``batches``).

    The processes of ``world`` take batches in turn; all get the sums. ``may_continue`` is called
    after each batch. If it returns False before the end, the metrics cover the batches so far, and
    ``of`` is the number of sequences of a complete evaluation.
    """
    world = world or World()
    size = task.size(split)
    assert size is not None
    count = -(-size // batch_size)
    count = count if batches is None else min(batches, count)
    was_training = model.training
    model.eval()
    watch = GateWatch(model, task.kinds, device)
    scores: dict[str, Score] = {}
    sums = torch.zeros((), dtype=sum_dtype(device), device=device)
    sequences = 0
    state = first_state(model, batch_size, task) if task.is_stateful else None
    try:
        with watch.watching():
            # If batches continue each other, every process evaluates all of them.
            for begin in range(0, count, 1 if task.is_stateful else world.size):
                # Sharded weights are gathered by all processes together, so a process without a
                # batch repeats the first one, uncounted.
                mine = world.is_main if task.is_stateful else begin + world.rank < count
                number = begin if task.is_stateful else begin + world.rank if mine else 0
                batch = task.batch(split, number, batch_size, 0, device)
                watch.batch = batch if mine else None
                with autocast(device, precision):
                    if state is None:
                        prediction = model(batch.x, batch.lengths, **batch.resets)
                    else:
                        prediction, state = model(batch.x, batch.lengths, state, **batch.resets)
                scores = _scores(task, prediction.float(), batch)
                added = torch.cat([_sums(score, device) for score in scores.values()])
                sums = sums + (added if mine else torch.zeros_like(added))
                sequences += len(batch.x) if mine else 0
                if not may_continue():
                    break
    finally:
        model.train(was_training)
    seen = torch.tensor([sequences], dtype=sum_dtype(device), device=device)
    together = world.sum(torch.cat((seen, sums.flatten(), watch.sums.flatten()))).cpu()
    seen, own, gates = together.split((1, sums.numel(), watch.sums.numel()))
    complete = min(size, count * batch_size)
    return {
        **_values(scores, own),
        "sequences": int(seen),
        **({"of": complete} if int(seen) < complete else {}),
        **watch.rates(gates),
    }


def first_state(model: SequenceModel, batch: int, task: Task | None = None) -> StreamState:
    """The state of a model that continues from batch to batch; ConfigError if it cannot.

    If the task resets sequences inside a batch, each has its own clock.
    """
    for block in model.blocks:
        block.check_resumable()  # type: ignore[operator]
    # States start as zeros. Those of a sharded model would be sharded like its weights.

    def zeros(part: Any) -> Any:
        if not torch.is_tensor(part):
            return part
        own_clocks = task is not None and task.has_resets and not part.dim()
        shape = (batch,) if own_clocks else part.shape
        return torch.zeros(shape, dtype=part.dtype, device=part.device)

    return tree_map(zeros, model.init_state(batch))


def _scores(task: Task, prediction: Tensor, batch: Batch) -> dict[str, Score]:
    """The scores that are summed over a split."""
    weight = torch.as_tensor(task.weight(batch))
    return {
        task.metric: task.score(prediction, batch),
        "loss": Score(task.loss(prediction, batch) * weight, weight),
        **task.details(prediction, batch),
    }


def _sums(score: Score, device: torch.device) -> Tensor:
    """The numbers of a score that are summed over batches."""
    wide = sum_dtype(device)
    parts = (score.total, score.count)
    return torch.cat([part.to(device, wide).flatten() for part in parts])


def _values(scores: dict[str, Score], sums: Tensor) -> dict[str, Any]:
    """The values of scores like these, from their sums one after another."""
    values: dict[str, Any] = {}
    for name, score in scores.items():
        parts = score.total.numel(), score.count.numel()
        total, count, sums = sums.split((*parts, sums.numel() - sum(parts)))
        total, count = total.view_as(score.total), count.view_as(score.count)
        values[name] = replace(score, total=total, count=count).value
    return values


def sum_dtype(device: torch.device) -> torch.dtype:
    """The dtype of sums over a data set: float64, unless the device has none."""
    return torch.float64 if has_float64(device) else torch.float32


def autocast(device: torch.device, precision: str) -> Any:
    """bfloat16 matrix products, if ``precision`` asks for them and the device is a GPU."""
    half = precision == "bfloat16" and device.type == "cuda"
    return torch.autocast(device.type, torch.bfloat16, enabled=half)


@contextmanager
def float32_products(device: torch.device, tf32: bool) -> Iterator[None]:
    """Switch TF32 in float32 products on a GPU on or off, torch's recurrent layers included."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def layer_rates(layers: list[SelectiveLayer]) -> Tensor:
    """Update rates of the last forward pass, one for each layer, both directions together."""
    each = [layer.update_rate.view(layer.num_layers, -1).mean(1) for layer in layers]
    return torch.cat(each)
