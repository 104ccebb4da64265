"""What a checkpoint holds, the same however many processes made it and however they shared it.

Weights and optimizer are whole and go by the names of parameters, so that a run can go on with
another number of processes, sharded or not.
"""

from typing import Any

import torch
from torch import Tensor, nn

from .distributed import World


def whole_weights(model: nn.Module) -> dict[str, Any]:
    """On the CPU; of a sharded model, in the first process only. All must call it."""
    from torch.distributed.checkpoint import state_dict as api  # noqa: PLC0415 (slow to import)

    options = api.StateDictOptions(full_state_dict=True, cpu_offload=True)
    return api.get_model_state_dict(model, options=options)


def whole_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The same of its optimizer; nothing before its first step, which torch would make up."""
    if not optimizer.state:
        return {}
    from torch.distributed.checkpoint import state_dict as api  # noqa: PLC0415 (slow to import)

    options = api.StateDictOptions(full_state_dict=True, cpu_offload=True)
    return dict(api.get_optimizer_state_dict(model, optimizer, options=options))


def restore(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    weights: dict[str, Any],
    state: dict[str, Any],
) -> None:
    """Take over what the functions above gave; learning rates and the like stay as they are."""
    from torch.distributed.checkpoint import state_dict as api  # noqa: PLC0415 (slow to import)

    options = api.StateDictOptions(full_state_dict=True)
    chosen = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    api.set_model_state_dict(model, weights, options=options)
    if state:
        api.set_optimizer_state_dict(model, optimizer, state, options=options)
    for group, options_of_this_run in zip(optimizer.param_groups, chosen, strict=True):
        group.update(options_of_this_run)


def random_states(world: World, device: torch.device) -> list[dict[str, Tensor]]:
    """Where the random numbers of every process stand."""
    mine = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        mine["cuda"] = torch.cuda.get_rng_state(device)
    return world.gather(mine)


def restore_random(
    states: list[dict[str, Tensor]], world: World, device: torch.device, seed: int
) -> bool:
    """Draw on where ``states`` stood; or, if they are of other processes, anew from ``seed``."""
    if len(states) != world.size or (device.type == "cuda") != ("cuda" in states[0]):
        torch.manual_seed(seed)
        return False
    mine = states[world.rank]
    torch.set_rng_state(mine["cpu"].cpu())
    if device.type == "cuda":
        torch.cuda.set_rng_state(mine["cuda"].cpu(), device)
    return True
