"""Where a process computes, and what is of no use there."""

import torch

from .config import RunConfig
from .distributed import World


def unused_here(config: RunConfig, device: torch.device) -> list[str]:
    """Options that do nothing on this device, though they may on that of another session."""
    if device.type == "cuda":
        return []
    model, chosen = config.model, []
    if config.train.precision == "bfloat16":
        chosen.append("train.precision bfloat16")
    if model.max_rate is not None:
        chosen.append("model.max_rate")
    if model.recompute:
        chosen.append("model.recompute")
    return [f"of no use on the CPU: {', '.join(chosen)}"] if chosen else []


def pick_device(wanted: str, world: World) -> torch.device:
    """The device of this process."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError("no CUDA device is there; leave the device to be chosen, or name cpu")
    if world.local_rank >= torch.cuda.device_count():
        raise ValueError(
            f"there are more processes on this machine than GPUs, {torch.cuda.device_count()}; "
            "start as many, or use --train.device cpu"
        )
    return torch.device("cuda", world.local_rank)
