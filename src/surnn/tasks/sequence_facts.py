"""Numbers about a user's sequences from which a model can be chosen."""

from typing import NamedTuple

import numpy as np

from .sequence_data import SequenceData

SAMPLE = 200
"""Training sequences that are looked at."""
MOST_STEPS = 4096
"""Time steps of each that are looked at."""
LAGS = 512
"""Longest lag of the autocorrelation."""


class SequenceFacts(NamedTuple):
    """Sizes and statistics of the training part."""

    goal: str
    sequences: int
    """Sequences or windows."""
    features: int
    median_length: int
    longest: int
    classes: int
    """0 for numbers."""
    events: bool
    """Whether rare classes are to be found in streams."""
    memory: int
    """Time steps until the autocorrelation of the features has fallen to a half; 1 for noise."""
    still: float
    """Share of time steps at which all features change by less than a tenth of their standard
    deviation."""


def sequence_facts(goal: str, classes: int, events: bool, data: SequenceData) -> SequenceFacts:
    """The facts about the training part of ``data``."""
    train = data.windows["train"]
    rows = np.random.default_rng(0).permutation(len(train.starts))[:SAMPLE]
    mean, std = data.input_scale()
    pieces = [
        (data.series.values[s : s + min(n, MOST_STEPS)] - mean) / std
        for s, n in zip(train.starts[rows].tolist(), train.lengths[rows].tolist(), strict=True)
        if n > 1
    ]
    return SequenceFacts(
        goal,
        len(train.starts),
        data.series.values.shape[1],
        int(np.median(train.lengths)),
        int(max(part.lengths.max(initial=1) for part in data.windows.values())),
        classes,
        events,
        correlation_time(pieces),
        still_share(pieces),
    )


def correlation_time(pieces: list[np.ndarray]) -> int:
    """The first lag at which the autocorrelation within sequences, averaged over features, is
    below a half.

    Example:
        >>> correlation_time([np.random.default_rng(0).normal(size=(100, 1))])
        1
    """
    longest = min(LAGS, max((len(piece) for piece in pieces), default=2) - 1)
    centred = [piece - piece.mean(0) for piece in pieces]
    power = sum(float((piece**2).sum()) for piece in centred) or 1.0
    for lag in range(1, longest):
        if sum(float((p[lag:] * p[:-lag]).sum()) for p in centred if len(p) > lag) < power / 2:
            return lag
    return max(1, longest)


def still_share(pieces: list[np.ndarray]) -> float:
    """The share of time steps at which nothing changes by more than 0.1."""
    changes = [np.abs(np.diff(piece, axis=0)).max(1) for piece in pieces]
    joined = np.concatenate(changes) if changes else np.ones(1)
    return float((joined < 0.1).mean())
