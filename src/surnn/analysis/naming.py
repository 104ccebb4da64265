"""Short names for runs."""

from collections.abc import Sequence
from pathlib import Path


def names(paths: Sequence[Path]) -> list[str]:
    """Short names for runs: the shortest ends of their paths that differ."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts))):
        tails = ["/".join(part[-length:]) for part in parts]
        if len(set(tails)) == len(tails):
            return tails
    return [f"{part[-1]} ({number})" for number, part in enumerate(parts, 1)]  # the same run twice
