"""Training, validation and test parts of a user's sequences, without leaks between them.

A part is a list of spans: stretches of time steps, each inside one sequence. Sequences of one group
(a patient, a speaker) are in one part, and so are identical sequences. Targets of a forecast never
lie in another part than its inputs.
"""

import hashlib
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np

from surnn.data.series import Series

from .base import Split

SPLITS: tuple[Split, ...] = ("train", "valid", "test")
FEWEST = 10
"""Sequences from which on whole ones are distributed; fewer are divided in time. Groups, if there
are any, are never divided."""
How = Literal["auto", "random", "time"]


class Spans(NamedTuple):
    """Stretches of time steps: each row is inside one sequence."""

    starts: np.ndarray
    """[R] first time step, counted over all sequences."""
    lengths: np.ndarray
    """[R] time steps."""
    sequence: np.ndarray
    """[R] number of the sequence."""


def split_series(
    series: Series,
    given: np.ndarray,
    shares: tuple[float, float, float],
    how: How,
    seed: int,
    strata: np.ndarray | None,
    whole: bool,
) -> dict[Split, Spans]:
    """The spans of each part.

    Args:
        series: all sequences.
        given: [N] the part of each sequence if it is known (1: valid, 2: test), otherwise 0.
        shares: of the sequences that are not given, or of their time.
        how: random distributes whole sequences or groups; time divides each sequence; auto does so
            if there are few, one target for each time step, and no groups.
        seed: of the random order.
        strata: [N] class of each sequence; classes have the same shares in all parts.
        whole: sequences cannot be divided, because they have one target.
    """
    free = np.flatnonzero(given == 0)
    fixed = [np.flatnonzero(given == part) for part in (1, 2)]
    shares = _remaining(shares, *(len(rows) > 0 for rows in fixed))
    units = _units(series, free)
    if how == "time" and whole:
        raise ValueError(
            "task.split time divides sequences, and here each has one target: use random"
        )
    few = not whole and series.groups is None and len(set(units)) < FEWEST
    in_time = how == "time" or (how == "auto" and few)
    if in_time and sum(share > 0 for share in shares) > 1:
        parts = _in_time(series, free, shares)
    else:
        grouped = series.groups is not None
        rows = _distribute(free, units, shares, seed, None if grouped else strata, grouped)
        parts = [_whole(series, each) for each in rows]
    parts = [
        parts[0],
        *(_join(part, _whole(series, r)) for part, r in zip(parts[1:], fixed, strict=True)),
    ]
    return dict(zip(SPLITS, parts, strict=True))


def check_different(about: dict[str, Any]) -> None:
    """Raise ValueError if the fingerprints of two files are the same."""
    for one, other in combinations(about, 2):
        if about[one] == about[other]:
            raise ValueError(
                f"task.{one} and task.{other} have the same contents, so that scores would be "
                "those of training: name other data, or leave one out"
            )


def _remaining(
    shares: tuple[float, float, float], has_valid: bool, has_test: bool
) -> tuple[float, float, float]:
    """The shares of the sequences that are not given, where the given parts need none."""
    left = [
        share * (not taken)
        for share, taken in zip(shares, (False, has_valid, has_test), strict=True)
    ]
    total = sum(left) or 1.0
    return (left[0] / total, left[1] / total, left[2] / total)


def _units(series: Series, rows: np.ndarray) -> list[str]:
    """Sequences that must be in the same part: a group, or identical sequences."""
    if series.groups is not None:
        return [str(series.groups[row]) for row in rows]
    starts = series.starts
    return [
        hashlib.blake2b(
            series.values[starts[row] : starts[row] + series.lengths[row]].tobytes(),
            digest_size=12,
        ).hexdigest()
        for row in rows
    ]


def _distribute(
    rows: np.ndarray,
    units: list[str],
    shares: tuple[float, float, float],
    seed: int,
    strata: np.ndarray | None,
    grouped: bool,
) -> list[np.ndarray]:
    """Rows of each part: units in a random order, within each stratum."""
    members: dict[str, list[int]] = {}
    for row, unit in zip(rows.tolist(), units, strict=True):
        members.setdefault(unit, []).append(row)
    by_stratum: dict[object, list[list[int]]] = {}
    for together in members.values():
        stratum = None if strata is None else strata[together[0]].item()
        by_stratum.setdefault(stratum, []).append(together)
    needed = sum(share > 0 for share in shares)
    if len(members) < needed:
        few = f"{len(members)} sequences or groups are too few for {needed} parts"
        if len(members) < len(rows) and not grouped:
            few = f"only {len(members)} of {len(rows)} sequences differ, too few for {needed} parts"
        raise ValueError(
            f"{few}: bring more, name other files with --task.valid-path and --task.test-path, or "
            "use --task.shares 0.5 0.5 0"
        )
    random, parts = np.random.default_rng(seed), ([], [], [])
    for stratum in by_stratum.values():
        order = [stratum[i] for i in random.permutation(len(stratum))]
        for part, chosen in zip(parts, _cut(order, shares), strict=True):
            part.extend(row for together in chosen for row in together)
    return [np.array(sorted(part), np.int64) for part in parts]


def _cut(units: list[list[int]], shares: tuple[float, float, float]) -> list[list[list[int]]]:
    """Units in three parts by their number of rows.

    Each part with a share gets one if there are enough, training first.
    """
    rows = sum(map(len, units))
    used = [number for number in range(3) if shares[number] > 0]
    ends, done, at = np.cumsum(shares) * rows, 0, 0
    parts: list[list[list[int]]] = [[], [], []]
    for index, unit in enumerate(units):
        left = len(units) - index
        while at < 2 and (
            shares[at] == 0
            or (parts[at] and done + len(unit) / 2 > ends[at])
            or (parts[at] and left <= sum(number > at for number in used))
        ):
            at += 1
        parts[at].append(unit)
        done += len(unit)
    return parts


def _whole(series: Series, rows: np.ndarray) -> Spans:
    return Spans(series.starts[rows], series.lengths[rows], rows)


def _join(one: Spans, other: Spans) -> Spans:
    return Spans(*(np.concatenate(pair) for pair in zip(one, other, strict=True)))


def _in_time(series: Series, rows: np.ndarray, shares: tuple[float, float, float]) -> list[Spans]:
    """The first time steps of every sequence for training, the next for validation, then test."""
    cuts = [np.rint(series.lengths[rows] * share).astype(np.int64) for share in np.cumsum(shares)]
    begins = [np.zeros_like(cuts[0]), *cuts[:2]]
    return [
        Spans(series.starts[rows] + begin, end - begin, rows)
        for begin, end in zip(begins, cuts, strict=True)
    ]


def cut_windows(spans: Spans, window: int | None, ahead: int = 0, least: int = 1) -> Spans:
    """Spans cut into windows that lie end to end, the last one shorter.

    Each window is followed by ``ahead`` time steps of its span, for its targets. Windows of fewer
    than ``least`` time steps are dropped.
    """
    usable = np.maximum(spans.lengths - ahead, 0)
    if window is None:
        cut = Spans(spans.starts, usable, spans.sequence)
    else:
        counts = -(-usable // window)
        row = np.repeat(np.arange(len(usable)), counts)
        first = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        lengths = np.minimum(window, usable[row] - first * window)
        cut = Spans(spans.starts[row] + first * window, lengths, spans.sequence[row])
    enough = cut.lengths >= least
    return Spans(*(part[enough] for part in cut))
