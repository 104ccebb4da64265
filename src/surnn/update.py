"""One update of the weights: device work only, so that it never waits and can be captured.

What goes wrong is noticed on the device: an update whose loss or gradient is not finite does not
happen, and neither does any after it, until the host looks and finds the last good state.
"""

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from .averaging import Average, statistics
from .config import RunConfig
from .distributed import World
from .evaluate import autocast, first_state, layer_rates
from .graphs import MOST_SHAPES, Captured, each
from .models import SequenceModel, StreamState
from .schedule import gate_noise, learning_rate
from .softening import Softened
from .tasks.base import Batch, Task


class Reading(NamedTuple):
    """What the device has to say."""

    done: int
    """Updates that happened."""
    losses: float
    """Sum of their losses, since it was set."""
    loss: float
    norm: float
    """Loss and gradient norm of the last update, or of the one that was not finite."""
    rates: list[float]
    """Update rates of the layers in the last update, over the whole batch."""
    lost: bool
    """Whether there was one that was not finite."""


class Updater:
    """Makes updates, and counts.

    Args:
        model: what is trained, on its device.
        config: of the run.
        world: with whom.
    """

    def __init__(self, model: SequenceModel, config: RunConfig, world: World) -> None:
        self.train, self.world = config.train, world
        self.task: Task = config.task
        self.model = model
        self.device = next(model.parameters()).device
        self._check()
        groups = parameter_groups(model, config)  # of weights that know yet what they are for
        self.wrapped = world.wrap(model, config.train.shard)
        self.optimizer = make_optimizer(model, groups, config.train.cuda_graph)
        if config.train.compile:
            compile_blocks(model, few_shapes=config.train.cuda_graph)
        self.average = Average(model, config.train.average) if config.train.average else None
        soft = config.train.label_smoothing or config.train.mixup
        self.soft = Softened(self.task, config.train, self.device) if soft else None
        self.layers = model.selective_layers()
        self.statistics = [*statistics(model).values()]
        self.noise = torch.ones((), device=self.device)
        if config.train.anneal is not None:
            for gate in (gate for layer in self.layers for gate in layer.gates):
                gate.noise = self.noise  # type: ignore[assignment]
        self.carried: list[StreamState] = []
        """Of tasks that go on from batch to batch, the state after the last, of each part of it."""
        if self.task.carries:
            parts = config.train.accumulate
            share = config.train.batch // (parts * world.size)
            self.carried = [first_state(model, share) for _ in range(parts)]
        self.rate = 0.0
        """The learning rate of the last update."""
        count = sum(layer.num_layers for layer in self.layers)
        self.losses, self.loss, self.norm, self.lost = torch.zeros(4, device=self.device).unbind()
        self.done = torch.zeros((), dtype=torch.int64, device=self.device)
        self.rates = torch.zeros(count, device=self.device)
        self.optimizer.found_inf = self.lost  # type: ignore[attr-defined] (as a GradScaler sets it)
        self._run = Captured(self._on_device) if config.train.cuda_graph else self._on_device

    def _check(self) -> None:
        parts = self.train.accumulate * self.world.size
        if self.train.batch % parts:
            raise ValueError(
                f"a batch of {self.train.batch} cannot be divided among {self.world.size} "
                f"process(es) and {self.train.accumulate} accumulated part(s); use a multiple of "
                f"{parts}"
            )
        if self.train.mixup and self.train.batch < 2 * parts:
            raise ValueError(
                f"train.mixup mixes pairs, and a batch of {self.train.batch} leaves each process "
                f"and part one sequence; use at least {2 * parts}"
            )
        if self.train.shard and self.world.size == 1:
            raise ValueError(
                "train.shard divides weights among processes, and there is one; start several with "
                "torchrun, or use --train.no-shard"
            )
        if self.train.shard and self.train.average:
            raise ValueError("train.average is of whole weights, and train.shard divides them")
        if self.train.cuda_graph and getattr(self.task, "one_length", True) is False:
            raise ValueError(
                "a CUDA graph is of one shape, and batches are as long as their longest sequence; "
                "train with --task.one-length, or without --train.cuda-graph"
            )
        if self.train.cuda_graph and self.device.type != "cuda":
            raise ValueError("a CUDA graph needs a GPU; train without --train.cuda-graph")
        if self.train.cuda_graph and self.world.size > 1:
            raise ValueError(
                "a CUDA graph is of one process, and there are several; train without "
                "--train.cuda-graph"
            )

    def __call__(self, at: float, batch: Batch) -> None:
        """One update with the whole ``batch``, of which this process takes its rows.

        ``at`` says how far the run has come, in updates.
        """
        share = learning_rate(self.train, at)
        self.rate = self.train.learning_rate * share
        for group in self.optimizer.param_groups:
            group["lr"].fill_(group["full"] * share)
        if self.train.anneal is not None:
            self.noise.fill_(gate_noise(self.train, at))
        self._run(batch)

    def begin(self, losses: float = 0.0) -> None:
        """Count from here on, with this sum of losses."""
        for number in (self.done, self.loss, self.norm, self.lost):
            number.zero_()
        self.losses.fill_(losses)

    def read(self) -> Reading:
        """The numbers; waits for the device."""
        own = torch.stack((self.losses, self.loss, self.norm, self.lost)).double()
        rates = self.world.sum(self.rates.double())
        done, losses, loss, norm, lost, *rates = torch.cat(
            (self.done.double()[None], own, rates)
        ).tolist()
        return Reading(int(done), losses, loss, norm, rates, lost > 0)

    def uncompiled(self) -> AbstractContextManager[Any]:
        """For evaluations: batches of other sizes and watched gates would all be compiled anew."""
        return torch.compiler.set_stance("force_eager") if self.train.compile else nullcontext()

    def averaged(self) -> AbstractContextManager[Any]:
        """With the weights that are evaluated, and kept if they are the best."""
        return nullcontext() if self.average is None else self.average.in_place()

    def carried_tensors(self) -> list[Tensor]:
        """All of :attr:`carried`, in one order."""
        return [part for part in tree_leaves(self.carried) if isinstance(part, Tensor)]

    def close(self) -> None:
        """Let go of what ties the model to other processes and to what was compiled."""
        self.wrapped = self.model
        for block in self.model.blocks:
            block._compiled_call_impl = None

    # ------------------------------------------------------------ on the device

    def _on_device(self, whole: Batch) -> None:
        kept = [*self.statistics, *self.carried_tensors()]
        before = [b.clone() for b in kept]
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(whole)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.train.clip)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # type: ignore[operator]
        for mine, new in ((self.loss, loss), (self.norm, norm)):  # the first bad ones stay
            mine.copy_(torch.where(self.lost > 0, mine, new))
        self.lost.copy_(~(self.loss.isfinite() & self.norm.isfinite()))
        self.optimizer.step()  # nothing, if lost
        for buffer, old in zip(kept, before, strict=True):
            buffer.copy_(torch.where(self.lost > 0, old, buffer))
        if self.average is not None:
            self.average.add(self.lost)
        self.losses.add_(torch.where(self.lost > 0, 0.0, loss))
        self.done.add_(self.lost == 0)

    def _backward(self, whole: Batch) -> Tensor:
        """Gradients of the whole batch's loss, in all processes, and that loss."""
        parts = self.train.accumulate
        total = torch.zeros((), device=self.device)
        self.rates.zero_()
        for part in range(parts):
            batch = rows(whole, part, parts, self.world)
            with self.world.accumulating(self.wrapped, part + 1 < parts):
                loss = self._loss(batch, whole, part)
                (loss * self.world.size).backward()  # gradients are averaged over processes
            total = total + loss.detach()
            if self.layers:
                self.rates.add_(layer_rates(self.layers) * share_of_steps(batch, whole))
        return self.world.sum(total)

    def _loss(self, batch: Batch, whole: Batch, part: int) -> Tensor:
        """What ``batch`` adds to the mean loss of the whole batch that it is a part of."""
        if self.soft is not None:
            batch = self.soft(batch)
        with autocast(self.device, self.train.precision):
            if self.carried:
                prediction = self._go_on(batch, self.carried[part])
            else:
                prediction = self.wrapped(batch.x, batch.lengths)
        loss = self.task.loss(prediction.float(), batch)
        if batch is not whole:
            loss = loss * (self.task.weight(batch) / self.task.weight(whole))
        if self.train.rate_penalty:
            loss = loss + self.train.rate_penalty * self._rate_penalty(batch, whole)
        return loss

    def _go_on(self, batch: Batch, state: StreamState) -> Tensor:
        """Predictions from ``state``, which is then the one after them, without its gradient."""
        fresh = batch.fresh
        assert fresh is not None, f"{self.task.name} carries states and does not say from where on"
        begun = tree_map(
            lambda part: torch.where(fresh, 0, part) if isinstance(part, Tensor) else part, state
        )
        prediction, after = self.wrapped(batch.x, batch.lengths, begun)
        for mine, new in zip(tree_leaves(state), tree_leaves(after), strict=True):
            if isinstance(mine, Tensor):
                mine.copy_(new.detach())
        return prediction

    def _rate_penalty(self, batch: Batch, whole: Batch) -> Tensor:
        """What ``batch`` adds to |rate - target| of the whole batch, summed over gates.

        Rates are summed over processes before they are compared with the target: parts on both
        sides of it are no fault of the whole.
        """
        pairs = [
            pair for layer in self.layers for pair in zip(layer.gates, layer._rates, strict=True)
        ]
        mine = torch.stack([rate for _, rate in pairs]) * share_of_steps(batch, whole)
        all_of_them = mine + (self.world.sum(mine.detach()) - mine.detach())  # others' are given
        penalty = torch.stack(
            [gate.rate_penalty(rate) for (gate, _), rate in zip(pairs, all_of_them, strict=True)]  # type: ignore[operator]
        ).sum()
        return penalty - penalty.detach() * (1 - 1 / self.world.size)  # each process adds its share


# ---------------------------------------------------------------------------- parts


def parameter_groups(model: SequenceModel, config: RunConfig) -> list[dict[str, Any]]:
    """Names of weights in four groups: matrices decay; vectors and gates do not, nor do weights
    with a ``learning_rate_limit``, which is kept; gates have a learning rate of their own."""
    train = config.train
    of_gates = {id(p) for p in model.gate_parameters()}
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gates = [name for name, p in trained.items() if id(p) in of_gates]
    rest = {name: p for name, p in trained.items() if id(p) not in of_gates}
    limits = {name: getattr(p, "learning_rate_limit", None) for name, p in rest.items()}
    slow = {name: limit for name, limit in limits.items() if limit is not None}
    matrices = [name for name, p in rest.items() if p.dim() > 1 and name not in slow]
    others = [name for name in rest if name not in {*matrices, *slow}]
    rate = train.learning_rate
    gate_rate = rate if train.gate_learning_rate is None else train.gate_learning_rate
    groups = [
        {"params": matrices, "weight_decay": train.weight_decay, "full": rate},
        {"params": others, "weight_decay": 0.0, "full": rate},
        {"params": gates, "weight_decay": 0.0, "full": gate_rate},
        {"params": [*slow], "weight_decay": 0.0, "full": min((rate, *slow.values()))},
    ]
    return [group for group in groups if group["params"]]


def make_optimizer(
    model: SequenceModel, groups: list[dict[str, Any]], captured: bool = False
) -> torch.optim.AdamW:
    """AdamW of these groups of names. Learning rates are tensors, to be set without a host."""
    named = dict(model.named_parameters())
    device = next(model.parameters()).device
    made = [
        {
            **group,
            "params": [named[name] for name in group["params"]],
            "lr": torch.tensor(group["full"], device=device),
        }
        for group in groups
    ]
    return torch.optim.AdamW(made, fused=True, capturable=captured)


def compile_blocks(model: SequenceModel, few_shapes: bool) -> None:
    """Each by itself, in place. Those that are alike are compiled once, which is much sooner done
    than a whole model; and for each shape, if these are few."""
    from torch._dynamo import config  # noqa: PLC0415 (slow, and seldom wanted)

    config.recompile_limit = max(config.recompile_limit, MOST_SHAPES * len(model.blocks))
    # Dynamo looks at gradients that no one asked for.
    warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
    for block in model.blocks:
        block.compile(dynamic=False if few_shapes else None)


def rows(batch: Batch, part: int, parts: int, world: World) -> Batch:
    """This process's rows of one accumulated part of a batch."""
    if parts * world.size == 1:
        return batch
    begin = part * world.size + world.rank
    share = len(batch.x) // (parts * world.size)
    chosen = slice(begin * share, (begin + 1) * share)
    mine = each(batch._replace(fresh=None), lambda values: values[chosen])
    return mine._replace(fresh=batch.fresh)


def share_of_steps(batch: Batch, whole: Batch) -> Tensor | float:
    """How much of the whole batch's time is in a part of it."""
    if batch.lengths is None or whole.lengths is None:
        return len(batch.x) / len(whole.x)
    return batch.lengths.sum() / whole.lengths.sum()
