"""A model on a whole split: the metric, the loss, and how often its gates opened, on what.

All sums stay on the device and are read once, at the end.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from .blocks import Convolution
from .distributed import World
from .layers import SelectiveLayer
from .layers.sequence import reverse
from .models import SequenceModel, StreamState
from .tasks.base import Batch, Score, Split, Task


class GateWatch:
    """Update rates of every selective layer, in all and for each kind of token.

    Sees the schedules that the gates hand out, through hooks; the model is not touched. Both
    directions of a layer count as one.
    """

    def __init__(self, model: SequenceModel, kinds: tuple[str, ...], device: torch.device) -> None:
        self.kinds, self.pairs = kinds, model.wanted.pairs
        self.gates: list[tuple[int, bool, nn.Module]] = []
        """Number of the layer, whether it reads backwards, its gate."""
        layers = 0
        for stack in model.selective_layers():
            for index, gate in enumerate(stack.gates):
                layer, direction = divmod(index, stack.num_directions)
                self.gates.append((layers + layer, direction == 1, gate))
            layers += stack.num_layers
        self.sums = torch.zeros(layers, 1 + len(kinds), 2, dtype=torch.float64, device=device)
        """Open and all gates of each layer; in all, and by kind."""
        self.batch: Batch | None = None
        """What the model sees; None is not counted."""

    @contextmanager
    def watching(self) -> Iterator["GateWatch"]:
        """Count while in here."""
        handles = [
            gate.register_forward_hook(self._hook(layer, backwards))
            for layer, backwards, gate in self.gates
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

    def told(self, sums: Tensor) -> dict[str, Any]:
        """Rates of each layer; also by kind, of those that came."""
        if not self.gates:
            return {}
        layers = sums.view_as(self.sums).tolist()
        found: dict[str, Any] = {"update_rate": [opened / steps for (opened, steps), *_ in layers]}
        if self.kinds:
            found["update_rate_by_kind"] = [
                {k: o / s for k, (o, s) in zip(self.kinds, by_kind, strict=True) if s}
                for _, *by_kind in layers
            ]
        return found


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
    go_on: Callable[[], bool] = lambda: True,
) -> dict[str, Any]:
    """Metric, loss and update rates over ``split`` (or its first ``batches``).

    The processes of ``world`` take batches in turn; all get the sums. ``go_on`` is asked after
    each batch; when it says no before the end, what has been seen is all that counts, and ``of``
    says how many sequences there would have been.
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
    sums = torch.zeros((), dtype=torch.float64, device=device)
    sequences = 0
    state = first_state(model, batch_size) if task.carries else None
    try:
        with watch.watching():
            # Where each batch goes on from the one before, all processes go through all of them.
            for begin in range(0, count, 1 if task.carries else world.size):
                # Sharded weights are gathered by all processes together, so one that has no batch
                # left takes part with the first, uncounted.
                mine = world.first if task.carries else begin + world.rank < count
                number = begin if task.carries else begin + world.rank if mine else 0
                batch = task.batch(split, number, batch_size, 0, device)
                watch.batch = batch if mine else None
                with autocast(device, precision):
                    if state is None:
                        prediction = model(batch.x, batch.lengths)
                    else:
                        prediction, state = model(batch.x, batch.lengths, state)
                scores = _scores(task, prediction.float(), batch)
                added = torch.stack([_pair(score, device) for score in scores.values()])
                sums = sums + (added if mine else torch.zeros_like(added))
                sequences += len(batch.x) if mine else 0
                if not go_on():
                    break
    finally:
        model.train(was_training)
    seen = torch.tensor([sequences], dtype=torch.float64, device=device)
    together = world.sum(torch.cat((seen, sums.flatten(), watch.sums.flatten()))).cpu()
    seen, own, gates = together.split((1, sums.numel(), watch.sums.numel()))
    pairs = zip(scores.items(), own.view(-1, 2), strict=True)
    wanted = min(size, count * batch_size)
    return {
        **{name: replace(score, total=s[0], count=s[1]).value for (name, score), s in pairs},
        "sequences": int(seen),
        **({"of": wanted} if int(seen) < wanted else {}),
        **watch.told(gates),
    }


def first_state(model: SequenceModel, batch: int) -> StreamState:
    """What a model that goes on from batch to batch begins with; an error if it cannot."""
    for block in model.blocks:
        if isinstance(block, Convolution):
            continue
        mixer: Any = block.mixer
        if not hasattr(mixer, "run"):
            raise ValueError(f"{type(mixer).__name__} cannot go on from a state: use whole windows")
        if getattr(mixer, "window", 0) is None:
            raise ValueError(
                "attention to all steps cannot go on without end: give it a --model.window, or use "
                "--task.no-streams"
            )
    # All begin as zeros. Those of a sharded model would be sharded as its weights are.
    return tree_map(
        lambda v: torch.zeros(v.shape, dtype=v.dtype, device=v.device) if torch.is_tensor(v) else v,
        model.init_state(batch),
    )


def _scores(task: Task, prediction: Tensor, batch: Batch) -> dict[str, Score]:
    """All that is summed over a split."""
    weight = torch.as_tensor(task.weight(batch))
    return {
        task.metric: task.score(prediction, batch),
        "loss": Score(task.loss(prediction, batch) * weight, weight),
        **task.details(prediction, batch),
    }


def _pair(score: Score, device: torch.device) -> Tensor:
    return torch.stack([value.to(device, torch.float64) for value in (score.total, score.count)])


def autocast(device: torch.device, precision: str) -> Any:
    """Half-precision products where the run asks for them and the device has them."""
    half = precision == "bfloat16" and device.type == "cuda"
    return torch.autocast(device.type, torch.bfloat16, enabled=half)


@contextmanager
def float32_products(device: torch.device, tf32: bool) -> Iterator[None]:
    """TF32 in float32 products on a GPU, or not, while in here; in torch's own recurrent layers
    too."""
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
    """Update rates of the last forward pass: one number a layer, both directions together."""
    each = [layer.update_rate.view(layer.num_layers, -1).mean(1) for layer in layers]
    return torch.cat(each)
