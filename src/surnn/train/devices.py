"""The device of a process, and the options that have no effect on it."""

import torch

from surnn.config import RunConfig
from surnn.errors import ConfigError

from .distributed import World


def unused_options(config: RunConfig, device: torch.device) -> list[str]:
    """A note on options without effect on this device; a later session may use another one."""
    if device.type == "cuda":
        return []
    model, names = config.model, []
    if config.train.precision == "bfloat16":
        names.append("train.precision bfloat16")
    if model.max_rate is not None:
        names.append("model.max_rate")
    if model.recompute:
        names.append("model.recompute")
    here = "the CPU" if device.type == "cpu" else f"the device {device.type}"
    return [f"no effect on {here}: {', '.join(names)}"] if names else []


def pick_device(name: str, world: World | None = None) -> torch.device:
    """The device of this process: auto, cpu, cuda or mps (an Apple GPU).

    auto is cuda if there is a GPU of that kind, else cpu, where the native scan runs. An Apple GPU
    has no kernels of ours: ask for it by its name.
    """
    local_rank = 0 if world is None else world.local_rank
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return torch.device("cpu")
    if name == "mps":
        return _apple_gpu(world)
    if not torch.cuda.is_available():
        raise ConfigError("there is no CUDA device; use device auto or cpu")
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f"there are more processes on this machine than its {torch.cuda.device_count()} GPUs; "
            "start as many processes as GPUs, or use --train.device cpu"
        )
    return torch.device("cuda", local_rank)


def _apple_gpu(world: World | None) -> torch.device:
    if not torch.backends.mps.is_available():
        raise ConfigError("there is no Apple GPU (mps) here; use device auto, cpu or cuda")
    if world is not None and world.size > 1:
        raise ConfigError(
            f"an Apple GPU trains in one process, and there are {world.size}; start one, or use "
            "--train.device cpu"
        )
    return torch.device("mps")
