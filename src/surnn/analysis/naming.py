"""What runs are called."""

from collections.abc import Sequence
from pathlib import Path


def names(paths: Sequence[Path]) -> list[str]:
    """What runs are called: as much of the end of each path as tells them apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts))):
        tails = ["/".join(part[-length:]) for part in parts]
        if len(set(tails)) == len(tails):
            return tails
    return [f"{part[-1]} ({number})" for number, part in enumerate(parts, 1)]  # one run twice
