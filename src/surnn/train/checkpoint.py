"""The contents of a training checkpoint, independent of the number of processes and of sharding.

Weights and optimizer state are gathered and keyed by parameter names, so that a run can resume with
another number of processes, sharded or not.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from surnn.errors import RunError
from surnn.runs.checkpoints import DAMAGE

from .distributed import World

if TYPE_CHECKING:
    from .trainer import Trainer

PROGRESS = (
    "step", "seconds", "startup_seconds", "best", "evaluations_since_best", "logged_step",
    "evaluated_step", "evaluation_seconds",
)  # fmt: skip
"""Attributes of the trainer that a checkpoint holds, besides weights, optimizer and randomness."""
RANK_SEED = 7919
"""Distance of the seeds of two processes, so that dropout and sampled gates differ."""


# ---------------------------------------------------------------------------- a trainer's state


def capture(trainer: "Trainer", loss_sum: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Weights and state of a trainer. All processes must call it."""
    step, world = trainer.optimizer_step, trainer.world
    weights = full_weights(trainer.model)
    state = {name: getattr(trainer, name) for name in PROGRESS} | {
        "loss_sum": loss_sum,
        "optimizer": full_optimizer(trainer.model, step.optimizer),
        "random_states": random_states(world, trainer.device),
        "stream_states": world.gather([v.cpu() for v in step.stream_tensors()]),
    }
    if step.weight_ema is not None:
        state["weight_ema"] = step.weight_ema.state()
    return weights, state


def load(trainer: "Trainer", checkpoint: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Weights and state of a checkpoint in the trainer's folder, which is locked."""
    weights: dict[str, Any] = {}
    state: dict[str, Any] = {}
    with trainer.world.fail_together():
        assert trainer.folder is not None, "a run without a folder cannot be resumed"
        if trainer.world.is_main:
            trainer.folder.lock()
        weights, state = trainer.folder.load(checkpoint)
        missing = {*PROGRESS, "loss_sum", "optimizer", "random_states"} - set(state)
        if missing:
            raise RunError(
                f"checkpoint {checkpoint!r} of {trainer.folder.path} has weights but no "
                f"{', '.join(sorted(missing))}: training cannot resume from it; use last or "
                "previous"
            )
    return weights, state


def restore(trainer: "Trainer", weights: dict[str, Any], state: dict[str, Any]) -> list[str]:
    """Restore the state of :func:`capture`; return notes on parts that could not be restored."""
    step, world, notes = trainer.optimizer_step, trainer.world, []
    with _state_that_fits(trainer):
        restore_model(trainer.model, step.optimizer, weights, state["optimizer"])
        if step.weight_ema is not None and "weight_ema" in state:  # otherwise the mean starts here
            step.weight_ema.restore(state["weight_ema"])
    for name in PROGRESS:
        setattr(trainer, name, state[name])
    step.reset_counters(state["loss_sum"])
    seed = (trainer.config.train.seed + RANK_SEED * world.rank) * 1_000_003 + trainer.step
    with _state_that_fits(trainer):
        same_random = restore_random(state["random_states"], world, trainer.device, seed)
        same_streams = _restore_streams(
            step.stream_tensors(), state.get("stream_states", []), world
        )
    if not same_random:
        notes.append(
            f"saved by {len(state['random_states'])} process(es), resumed by {world.size} on "
            f"{trainer.device.type}: batches are the same, dropout and sampled gates are drawn "
            "from another seed"
        )
    if not same_streams:
        notes.append("stream states start from zero, at their places in the text")
    return notes


@contextmanager
def _state_that_fits(trainer: "Trainer") -> Iterator[None]:
    """Errors of loading a state that is not of this model and optimizer, as RunError."""
    try:
        yield
    except DAMAGE as error:
        reason = str(error).partition("\n")[0]
        raise RunError(
            f"the checkpoint does not fit the run's model and optimizer ({type(error).__name__}: "
            f"{reason}); was config.json edited? Put the checkpoint's run_config.json in its "
            "place, or begin a new run with these weights: surnn train TASK --train.start RUN"
        ) from error


def _restore_streams(tensors: list[Tensor], saved: list[list[Tensor]], world: World) -> bool:
    """Restore states that pass from batch to batch, unless the batch is divided otherwise now."""
    values = saved[world.rank] if len(saved) == world.size else []
    if [v.shape for v in tensors] != [v.shape for v in values]:
        return False
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
    return True


# ---------------------------------------------------------------------------- its parts


def full_weights(model: nn.Module) -> dict[str, Any]:
    """All weights, on the CPU; those of a sharded model in the first process only.

    All processes must call it.
    """
    from torch.distributed.checkpoint import state_dict as api  # noqa: PLC0415 (slow to import)

    options = api.StateDictOptions(full_state_dict=True, cpu_offload=True)
    return api.get_model_state_dict(model, options=options)


def full_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The same for the optimizer. Empty before its first step, where torch would invent one."""
    if not optimizer.state:
        return {}
    from torch.distributed.checkpoint import state_dict as api  # noqa: PLC0415 (slow to import)

    options = api.StateDictOptions(full_state_dict=True, cpu_offload=True)
    return dict(api.get_optimizer_state_dict(model, optimizer, options=options))


def restore_model(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    weights: dict[str, Any],
    state: dict[str, Any],
) -> None:
    """Load weights and optimizer state; the optimizer keeps its options, such as learning rates."""
    from torch.distributed.checkpoint import state_dict as api  # noqa: PLC0415 (slow to import)

    options = api.StateDictOptions(full_state_dict=True)
    own = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    api.set_model_state_dict(model, weights, options=options)
    if state:
        api.set_optimizer_state_dict(model, optimizer, state, options=options)
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            shaped = isinstance(value, Tensor) and value.shape in ((), parameter.shape)
            if not shaped and name != "step":
                raise ValueError(f"{name} of the optimizer's state does not fit its parameter")
    for group, group_options in zip(optimizer.param_groups, own, strict=True):
        group.update(group_options)


def random_states(world: World, device: torch.device) -> list[dict[str, Tensor]]:
    """The states of the random number generators of every process."""
    own = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        own["cuda"] = torch.cuda.get_rng_state(device)
    return world.gather(own)


def restore_random(
    states: list[dict[str, Tensor]], world: World, device: torch.device, seed: int
) -> bool:
    """Restore random states; if other processes or devices saved them, seed with ``seed``."""
    if len(states) != world.size or (device.type == "cuda") != ("cuda" in states[0]):
        torch.manual_seed(seed)
        return False
    own = states[world.rank]
    torch.set_rng_state(own["cpu"].cpu())
    if device.type == "cuda":
        torch.cuda.set_rng_state(own["cuda"].cpu(), device)
    return True
