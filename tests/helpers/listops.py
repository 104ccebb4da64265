"""An independent parser of ListOps expressions."""

import numpy as np

from surnn.tasks.listops_trees import MOST_ARGUMENTS

NAMES = {3: "MIN", 4: "MAX", 5: "MED", 6: "SM"}


def work_out(tokens: list[int], place: int = 0) -> tuple[int, int, int]:
    """Value, end and depth of the expression at ``place``; raises if it is malformed."""
    token = tokens[place]
    if 8 <= token <= 17:
        return token - 8, place + 1, 1
    name, place, values, depth = NAMES[token], place + 1, [], 0
    while tokens[place] != 7:
        value, place, below = work_out(tokens, place)
        values.append(value)
        depth = max(depth, below)
    assert 2 <= len(values) <= MOST_ARGUMENTS
    results = {
        "MIN": min(values),
        "MAX": max(values),
        "MED": int(np.median(values)),
        "SM": sum(values) % 10,
    }
    return results[name], place + 1, depth + 1
