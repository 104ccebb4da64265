"""Schedules of the learning rate, gate noise and target rates: pure functions of a run's progress.

Progress is counted in optimizer steps and need not be whole. With a time budget it is the share of
the budget that is used, if that is ahead of the steps, so that schedules end with the budget on any
machine.
"""

import math

from surnn.config import TrainConfig
from surnn.nn.gates import noise_at


def learning_rate_share(config: TrainConfig, progress: float) -> float:
    """The share of the full learning rate: linear warm-up, hold, cosine or linear decay."""
    if progress < config.warmup:
        return min(1.0, (progress + 1) / config.warmup)
    begin = max(config.warmup, config.hold * config.steps)
    if progress <= begin:
        return 1.0
    done = min(1.0, (progress - begin) / max(1.0, config.steps - begin))
    left = 1 - done if config.lr_decay == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return config.final + (1 - config.final) * left


def gate_noise(config: TrainConfig, progress: float) -> float:
    """How far sampled and relaxed gates are from hard ones, from 1 to 0."""
    if config.anneal is None:
        return 1.0
    begin, end = (share * config.steps for share in config.anneal)
    return noise_at(progress, begin, end)


def target_progress(config: TrainConfig, progress: float) -> float:
    """How far the target of the rate penalty has moved from ``gate.rate``, from 0 to 1."""
    if config.rate_ramp is None:
        return 1.0
    begin, end = (share * config.steps for share in config.rate_ramp)
    return 1.0 - noise_at(progress, begin, end)
