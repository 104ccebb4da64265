"""How rates change over a run: pure functions of the share that is done."""

import math

from .config import TrainConfig


def learning_rate(config: TrainConfig, step: int) -> float:
    """Share of the full learning rate at update ``step`` (from 0): rise, hold, cosine."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    begin = max(config.warmup, config.hold * config.steps)
    if step <= begin:
        return 1.0
    done = min(1.0, (step - begin) / max(1.0, config.steps - begin))
    return config.final + (1 - config.final) * 0.5 * (1 + math.cos(math.pi * done))


def gate_noise(config: TrainConfig, step: int) -> float:
    """How random sampled gates are: 1 is fully, 0 is the hard gate."""
    if config.anneal is None:
        return 1.0
    begin, end = (share * config.steps for share in config.anneal)
    if step <= begin:
        return 1.0
    return max(0.0, 1 - (step - begin) / max(1.0, end - begin))
