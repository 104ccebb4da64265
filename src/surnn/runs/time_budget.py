"""Time: how much of a run's budget is used, and durations as text."""

import math

from surnn.config import TrainConfig

EVALUATION_SHARE = 0.05
"""Share of a time budget reserved for the last evaluation while none has been timed."""


def time_used(
    config: TrainConfig, seconds: float, startup: float, evaluation: float | None
) -> float:
    """The share of the training time that is used; 0 without a budget, 1 or more at its end.

    Args:
        config: with the budget, in minutes.
        seconds: time of the run so far, all sessions together.
        startup: seconds in which kernels were compiled; they are no progress.
        evaluation: seconds of the longest evaluation; the last one must fit into the budget too.
    """
    if config.minutes is None:
        return 0.0
    budget = 60 * config.minutes
    reserve = EVALUATION_SHARE * budget if evaluation is None else evaluation
    available = budget - reserve - startup
    return math.inf if available <= 0 else (seconds - startup) / available


def format_duration(seconds: float) -> str:
    """'45 s', '3 min 20 s', '2 h 5 min'."""
    if seconds == math.inf:
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
