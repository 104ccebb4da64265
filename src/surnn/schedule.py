"""How rates change over a run: pure functions of how far it has come.

That is counted in updates, and need not be whole: a run with a time budget is as far as its clock
says, if that is ahead of its updates, so that it ends with the budget, whatever the machine.
"""

import math

from .config import TrainConfig

RESERVE = 0.05
"""Share of a time budget kept for the last evaluation while none has shown how long it takes."""


def learning_rate(config: TrainConfig, at: float) -> float:
    """Share of the full learning rate after ``at`` updates: rise, hold, cosine."""
    if at < config.warmup:
        return min(1.0, (at + 1) / config.warmup)
    begin = max(config.warmup, config.hold * config.steps)
    if at <= begin:
        return 1.0
    done = min(1.0, (at - begin) / max(1.0, config.steps - begin))
    return config.final + (1 - config.final) * 0.5 * (1 + math.cos(math.pi * done))


def gate_noise(config: TrainConfig, at: float) -> float:
    """How random sampled gates are: 1 is fully, 0 is the hard gate."""
    if config.anneal is None:
        return 1.0
    begin, end = (share * config.steps for share in config.anneal)
    if at <= begin:
        return 1.0
    return max(0.0, 1 - (at - begin) / max(1.0, end - begin))


def time_used(
    config: TrainConfig, seconds: float, starting: float, evaluation: float | None
) -> float:
    """Share of the time for updates that is over; 0 without a budget, and 1 or more at its end.

    Args:
        config: with the budget, in minutes.
        seconds: of the run so far, all its sessions together.
        starting: those in which kernels were compiled; they are no progress.
        evaluation: what the longest evaluation took; the last one must fit in too.
    """
    if config.minutes is None:
        return 0.0
    budget = 60 * config.minutes
    kept = RESERVE * budget if evaluation is None else evaluation
    left = budget - kept - starting
    return math.inf if left <= 0 else (seconds - starting) / left
