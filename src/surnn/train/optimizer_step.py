"""One optimizer step, as device work only: it never waits for the device and can be captured.

Failures are detected on the device. A step whose loss or gradient is not finite changes nothing,
and neither does any step after it, until the host reads the counters and finds the last good
state.
"""

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from surnn.config import RunConfig, TrainConfig
from surnn.errors import ConfigError
from surnn.models.baselines import budget_loss
from surnn.models.model import SequenceModel, StreamState
from surnn.tasks.base import Batch, Task

from .cuda_graphs import MAX_SHAPES, GraphedStep, map_tensors
from .distributed import World
from .evaluate import autocast, first_state, layer_rates, sum_dtype
from .label_mixing import LabelMixer
from .lr_schedule import gate_noise, learning_rate_share, target_progress
from .weight_ema import WeightEma, norm_statistics


class StepReading(NamedTuple):
    """Counters and values read from the device."""

    steps: int
    """Optimizer steps that succeeded."""
    loss_sum: float
    """Sum of their losses, since it was set."""
    loss: float
    norm: float
    """Loss and gradient norm of the last step, or of the first that was not finite."""
    rates: list[float]
    """Update rates of the layers in the last step, over the whole batch."""
    failed: bool
    """Whether a step was not finite."""


class OptimizerStep:
    """Makes optimizer steps and counts them.

    Args:
        model: the model to train, on its device.
        config: the run's options.
        world: the processes that train together.
    """

    def __init__(self, model: SequenceModel, config: RunConfig, world: World) -> None:
        self.train, self.world = config.train, world
        self.task: Task = config.task
        self.model = model
        self.device = next(model.parameters()).device
        self._check()
        groups = parameter_groups(model, config)  # before wrapping hides the gates' parameters
        self.wrapped = world.wrap(model, config.train.shard)
        self.optimizer = make_optimizer(model, groups, config.train)
        if config.train.compile:
            compile_blocks(model, few_shapes=config.train.cuda_graph)
        decay = config.train.weight_ema
        self.weight_ema = WeightEma(model, decay) if decay else None
        mixing = config.train.label_smoothing or config.train.mixup
        self.label_mixer = LabelMixer(self.task, config.train, self.device) if mixing else None
        self.layers = model.selective_layers()
        self.norm_statistics = [*norm_statistics(model).values()]
        self.noise = torch.ones((), device=self.device)
        if config.train.anneal is not None:
            for gate in (gate for layer in self.layers for gate in layer.gates):
                gate.noise = self.noise  # type: ignore[assignment]
        self.target_progress = torch.ones((), device=self.device)
        if config.train.rate_ramp is not None:
            for gate in (gate for layer in self.layers for gate in layer.gates):
                gate.target_progress = self.target_progress  # type: ignore[assignment]
        self.stream_states: list[StreamState] = []
        """For tasks whose batches continue each other: the state after the last batch, for each
        accumulated part."""
        if self.task.is_stateful:
            parts = config.train.accumulate
            share = config.train.batch // (parts * world.size)
            self.stream_states = [first_state(model, share, self.task) for _ in range(parts)]
        self.learning_rate = 0.0
        """The learning rate of the last step."""
        count = sum(layer.num_layers for layer in self.layers)
        zeros = torch.zeros(4, device=self.device)
        self.loss_sum, self.loss, self.norm, self.failed = zeros.unbind()
        self.done = torch.zeros((), dtype=torch.int64, device=self.device)
        self.rates = torch.zeros(count, device=self.device)
        # As a GradScaler sets it: the optimizer skips a step that failed.
        self.optimizer.found_inf = self.failed  # type: ignore[attr-defined]
        self._run = GraphedStep(self._on_device) if config.train.cuda_graph else self._on_device

    def _check(self) -> None:
        parts = self.train.accumulate * self.world.size
        if self.train.batch % parts:
            raise ConfigError(
                f"a batch of {self.train.batch} cannot be divided among {self.world.size} "
                f"process(es) and {self.train.accumulate} accumulated part(s); use a multiple of "
                f"{parts}"
            )
        if self.train.mixup and self.train.batch < 2 * parts:
            raise ConfigError(
                f"train.mixup mixes pairs of sequences, and a batch of {self.train.batch} gives "
                f"each process and part one sequence; use at least {2 * parts}"
            )
        if self.train.shard and self.world.size == 1:
            raise ConfigError(
                "train.shard divides weights among processes, and there is only one; start several "
                "with torchrun, or use --train.no-shard"
            )
        if self.train.shard and self.train.weight_ema:
            raise ConfigError(
                "train.weight_ema needs whole weights, and train.shard divides them: leave one out"
            )
        if self.train.cuda_graph and getattr(self.task, "one_length", True) is False:
            raise ConfigError(
                "a CUDA graph needs batches of one shape, and these are as long as their longest "
                "sequence; use --task.one-length, or leave out --train.cuda-graph"
            )
        if self.train.cuda_graph and self.device.type != "cuda":
            raise ConfigError("a CUDA graph needs a GPU; leave out --train.cuda-graph")
        if self.train.cuda_graph and self.world.size > 1:
            raise ConfigError(
                "a CUDA graph works in one process, and there are several; leave out "
                "--train.cuda-graph"
            )

    def __call__(self, progress: float, batch: Batch) -> None:
        """One step with the whole ``batch``; this process takes its own rows.

        ``progress`` is how far the run has come, in optimizer steps; it need not be whole.
        """
        share = learning_rate_share(self.train, progress)
        self.learning_rate = self.train.learning_rate * share
        for group in self.optimizer.param_groups:
            group["lr"].fill_(group["full"] * share)
        if self.train.anneal is not None:
            self.noise.fill_(gate_noise(self.train, progress))
        if self.train.rate_ramp is not None:
            self.target_progress.fill_(target_progress(self.train, progress))
        self._run(batch)

    def reset_counters(self, loss_sum: float = 0.0) -> None:
        """Count steps from zero, and losses from ``loss_sum``."""
        for number in (self.done, self.loss, self.norm, self.failed):
            number.zero_()
        self.loss_sum.fill_(loss_sum)

    def read(self) -> StepReading:
        """Counters and values; waits for the device."""
        wide = sum_dtype(self.device)
        own = torch.stack((self.loss_sum, self.loss, self.norm, self.failed)).to(wide)
        rates = self.world.sum(self.rates.to(wide))
        steps, loss_sum, loss, norm, failed, *rates = torch.cat(
            (self.done.to(wide)[None], own, rates)
        ).tolist()
        return StepReading(int(steps), loss_sum, loss, norm, rates, failed > 0)

    def eager(self) -> AbstractContextManager[Any]:
        """Run without compiled code: evaluations have other batch sizes and hooks on gates, and
        would compile everything again."""
        return torch.compiler.set_stance("force_eager") if self.train.compile else nullcontext()

    def averaged_weights(self) -> AbstractContextManager[Any]:
        """Give the model the weights that are evaluated, and saved if they are the best."""
        return nullcontext() if self.weight_ema is None else self.weight_ema.in_place()

    def stream_tensors(self) -> list[Tensor]:
        """All tensors of :attr:`stream_states`, in a fixed order."""
        return [part for part in tree_leaves(self.stream_states) if isinstance(part, Tensor)]

    def close(self) -> None:
        """Detach the model from other processes and from compiled code."""
        self.wrapped = self.model
        for block in self.model.blocks:
            block._compiled_call_impl = None

    # ------------------------------------------------------------ on the device

    def _on_device(self, whole: Batch) -> None:
        buffers = [*self.norm_statistics, *self.stream_tensors()]
        before = [b.clone() for b in buffers]
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(whole)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.train.clip)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm  # type: ignore[operator]
        for value, new in ((self.loss, loss), (self.norm, norm)):  # keeps the first bad values
            value.copy_(torch.where(self.failed > 0, value, new))
        self.failed.copy_(~(self.loss.isfinite() & self.norm.isfinite()))
        self.optimizer.step()  # skipped by the optimizer if failed
        for buffer, old in zip(buffers, before, strict=True):
            buffer.copy_(torch.where(self.failed > 0, old, buffer))
        if self.weight_ema is not None:
            self.weight_ema.add(self.failed)
        self.loss_sum.add_(torch.where(self.failed > 0, 0.0, loss))
        self.done.add_(self.failed == 0)

    def _backward(self, whole: Batch) -> Tensor:
        """Compute the gradients of the whole batch's loss, in all processes; returns the loss."""
        parts = self.train.accumulate
        total = torch.zeros((), device=self.device)
        self.rates.zero_()
        for part in range(parts):
            batch = rows(whole, part, parts, self.world)
            with self.world.defer_gradient_sync(self.wrapped, part + 1 < parts):
                loss = self._loss(batch, whole, part)
                (loss * self.world.size).backward()  # gradients are averaged over processes
            total = total + loss.detach()
            if self.layers:
                self.rates.add_(layer_rates(self.layers) * share_of_steps(batch, whole))
        return self.world.sum(total)

    def _loss(self, batch: Batch, whole: Batch, part: int) -> Tensor:
        """The contribution of ``batch`` to the mean loss of the whole batch."""
        if self.label_mixer is not None:
            batch = self.label_mixer(batch)
        with autocast(self.device, self.train.precision):
            if self.stream_states:
                prediction = self._predict_stream(batch, self.stream_states[part])
            else:
                prediction = self.wrapped(batch.x, batch.lengths, **batch.resets)
        loss = self.task.loss(prediction.float(), batch)
        if batch is not whole:
            loss = loss * (self.task.weight(batch) / self.task.weight(whole))
        if self.train.rate_penalty:
            loss = loss + self.train.rate_penalty * self._rate_penalty(batch, whole)
        budget = budget_loss(self.model)
        if budget is not None:
            loss = loss + share_of_steps(batch, whole) * budget
        if self.train.margin_penalty:
            near = torch.stack([layer.margin_penalty() for layer in self.layers]).sum()
            loss = loss + self.train.margin_penalty * share_of_steps(batch, whole) * near
        return loss

    def _predict_stream(self, batch: Batch, state: StreamState) -> Tensor:
        """Predictions that start from ``state``; the state after them replaces it, detached."""
        starts = batch.starts_stream
        assert starts is not None, f"{self.task.name} is stateful; its batches need starts_stream"
        initial = tree_map(
            lambda part: torch.where(starts, 0, part) if isinstance(part, Tensor) else part, state
        )
        prediction, after = self.wrapped(batch.x, batch.lengths, initial, **batch.resets)
        for old, new in zip(tree_leaves(state), tree_leaves(after), strict=True):
            if isinstance(old, Tensor):
                old.copy_(new.detach())
        return prediction

    def _rate_penalty(self, batch: Batch, whole: Batch) -> Tensor:
        """The contribution of ``batch`` to |rate - target| of the whole batch, summed over gates.

        Rates are summed over processes before the comparison with the target: parts above and
        below the target may be right together.
        """
        pairs = [
            pair for layer in self.layers for pair in zip(layer.gates, layer._rates, strict=True)
        ]
        own = torch.stack([rate for _, rate in pairs]) * share_of_steps(batch, whole)
        total = own + (self.world.sum(own.detach()) - own.detach())  # other processes: constants
        penalty = torch.stack(
            [gate.rate_penalty(rate) for (gate, _), rate in zip(pairs, total, strict=True)]  # type: ignore[operator]
        ).sum()
        return penalty - penalty.detach() * (1 - 1 / self.world.size)  # each process adds its share


# ---------------------------------------------------------------------------- parts


def parameter_groups(model: SequenceModel, config: RunConfig) -> list[dict[str, Any]]:
    """Names of weights in four groups: matrices, vectors, gates, and weights with a
    ``learning_rate_limit``. Only matrices have weight decay; gates have their own learning rate."""
    train = config.train
    gate_ids = {id(p) for p in model.gate_parameters()}
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gates = [name for name, p in trainable.items() if id(p) in gate_ids]
    rest = {name: p for name, p in trainable.items() if id(p) not in gate_ids}
    limits = {name: getattr(p, "learning_rate_limit", None) for name, p in rest.items()}
    slow = {name: limit for name, limit in limits.items() if limit is not None}
    matrices = [name for name, p in rest.items() if p.dim() > 1 and name not in slow]
    vectors = [name for name in rest if name not in {*matrices, *slow}]
    rate = train.learning_rate
    gate_rate = rate if train.gate_learning_rate is None else train.gate_learning_rate
    groups = [
        {"params": matrices, "weight_decay": train.weight_decay, "full": rate},
        {"params": vectors, "weight_decay": 0.0, "full": rate},
        {"params": gates, "weight_decay": 0.0, "full": gate_rate},
        {"params": [*slow], "weight_decay": 0.0, "full": min((rate, *slow.values()))},
    ]
    return [group for group in groups if group["params"]]


def make_optimizer(
    model: SequenceModel, groups: list[dict[str, Any]], train: TrainConfig
) -> torch.optim.AdamW:
    """AdamW for these groups of names. Learning rates are tensors, which a CUDA graph can read."""
    named = dict(model.named_parameters())
    device = next(model.parameters()).device
    param_groups = [
        {
            **group,
            "params": [named[name] for name in group["params"]],
            "lr": torch.tensor(group["full"], device=device),
        }
        for group in groups
    ]
    return torch.optim.AdamW(
        param_groups, betas=train.betas, fused=True, capturable=train.cuda_graph
    )


def compile_blocks(model: SequenceModel, few_shapes: bool) -> None:
    """Compile each block in place. Equal blocks are compiled once, which takes much less time than
    a whole model; with ``few_shapes`` once for each shape."""
    from torch._dynamo import config  # noqa: PLC0415 (slow to import, rarely used)

    config.recompile_limit = max(config.recompile_limit, MAX_SHAPES * len(model.blocks))
    # Dynamo reads .grad of tensors that are no leaves.
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
    own = map_tensors(batch._replace(starts_stream=None), lambda values: values[chosen])
    return own._replace(starts_stream=batch.starts_stream)


def share_of_steps(batch: Batch, whole: Batch) -> Tensor | float:
    """The share of the whole batch's time steps that a part of it has."""
    if batch.lengths is None or whole.lengths is None:
        return len(batch.x) / len(whole.x)
    return batch.lengths.sum() / whole.lengths.sum()
