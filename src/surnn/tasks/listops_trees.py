"""Random ListOps expressions, many trees at a time.

Trees grow breadth first: a level is one array over the nodes of all trees, with siblings adjacent
and in their parents' order. Lengths and values are computed from the leaves up, tokens are written
from the roots down, level by level.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from surnn.data.cache import Arrays, Progress

PAD, UNKNOWN, END = 0, 1, 2
MIN, MAX, MED, SM = OPERATORS = (3, 4, 5, 6)
CLOSE = 7
ZERO = 8
"""Token of the digit 0; the others follow."""
VOCABULARY = 18

DEEPEST = 10
MOST_ARGUMENTS = 10
OPERATOR_SHARE = 0.25
TREES = 20_000
"""Trees grown at a time, most of them far too short. The data depend on it: do not change."""


@dataclass
class Level:
    """The nodes at one depth of many trees."""

    operator: np.ndarray
    """[nodes] token of the operator, 0 for digits."""
    arguments: np.ndarray
    """[operators] the number of children of each operator, in order."""
    value: np.ndarray
    """[nodes] 0 to 9; digits have it from the start, operators after evaluation."""

    @property
    def first_child(self) -> np.ndarray:
        """[operators] the index of each operator's first child on the next level."""
        return np.cumsum(self.arguments) - self.arguments


def grow(random: np.random.Generator, trees: int) -> list[Level]:
    """Random trees, from the roots down."""
    levels, nodes = [], trees
    for depth in range(1, DEEPEST + 1):
        share = OPERATOR_SHARE if depth < DEEPEST else 0.0
        inner = random.random(nodes) < share
        operator = np.where(inner, random.choice(OPERATORS, nodes), 0)
        arguments = random.integers(2, MOST_ARGUMENTS + 1, inner.sum())
        levels.append(Level(operator, arguments, random.integers(0, 10, nodes)))
        nodes = int(arguments.sum())
    return levels


def lengths(levels: list[Level]) -> list[np.ndarray]:
    """[nodes] tokens of the expression under each node, for each level."""
    below = np.zeros(0, dtype=np.int64)
    result = []
    for level in reversed(levels):
        length = np.ones(len(level.operator), dtype=np.int64)
        if len(level.arguments):
            length[level.operator > 0] = 2 + np.add.reduceat(below, level.first_child)
        result.append(length)
        below = length
    return result[::-1]


def select_trees(levels: list[Level], mask: np.ndarray) -> list[Level]:
    """The trees whose roots are True in ``mask``."""
    result = []
    for level in levels:
        operators = mask[level.operator > 0]
        result.append(Level(level.operator[mask], level.arguments[operators], level.value[mask]))
        mask = np.repeat(operators, level.arguments)
    return result


def evaluate(levels: list[Level]) -> None:
    """Compute every operator's value, from the leaves up."""
    for level, below in zip(levels[-2::-1], levels[:0:-1], strict=True):
        if not len(level.arguments):
            continue
        first, count, values = level.first_child, level.arguments, below.value
        owner = np.repeat(np.arange(len(count)), count)
        ordered = np.sort(owner * 10 + values) % 10
        middle = ordered[first + (count - 1) // 2] + ordered[first + count // 2]
        inner = level.operator > 0
        by_operator = [
            np.minimum.reduceat(values, first),
            np.maximum.reduceat(values, first),
            middle // 2,
            np.add.reduceat(values, first) % 10,
        ]
        level.value[inner] = np.choose(level.operator[inner] - MIN, by_operator)


def write(levels: list[Level], sizes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All expressions in one array, each with its end token, and their offsets."""
    offsets = np.concatenate([[0], np.cumsum(sizes[0] + 1)])
    tokens = np.full(offsets[-1], END, dtype=np.uint8)
    place = offsets[:-1]
    for depth, level in enumerate(levels):
        inner = level.operator > 0
        tokens[place[~inner]] = ZERO + level.value[~inner]
        tokens[place[inner]] = level.operator[inner]
        tokens[place[inner] + sizes[depth][inner] - 1] = CLOSE
        if not len(level.arguments):
            break
        before = np.cumsum(sizes[depth + 1]) - sizes[depth + 1]
        shift = place[inner] + 1 - before[level.first_child]
        place = before + np.repeat(shift, level.arguments)
    return tokens, offsets


def some_expressions(
    random: np.random.Generator, shortest: int, longest: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, offsets and answers of those of ``TREES`` random trees that have the right length."""
    levels = grow(random, TREES)
    size = lengths(levels)[0]
    levels = select_trees(levels, (size >= shortest) & (size <= longest))
    evaluate(levels)
    tokens, offsets = write(levels, lengths(levels))
    return tokens, offsets, levels[0].value.astype(np.uint8)


def expressions(
    count: int,
    seed: int,
    progress: Progress | None = None,
    *,
    shortest: int = 501,
    longest: int = 1999,
) -> Arrays:
    """``count`` distinct expressions: ``tokens`` in one array, ``offsets`` [count + 1] and
    ``labels`` [count]. The first ones do not depend on ``count``. Lengths do not include the end
    token."""
    random = np.random.default_rng(seed)
    seen: set[bytes] = set()
    pieces: list[np.ndarray] = []
    labels: list[int] = []
    while len(pieces) < count:
        before = len(pieces)
        tokens, offsets, values = some_expressions(random, shortest, longest)
        for piece, label in zip(np.split(tokens, offsets[1:-1]), values, strict=True):
            digest = hashlib.blake2b(piece.tobytes(), digest_size=16).digest()
            if digest not in seen and len(pieces) < count:
                seen.add(digest)
                pieces.append(piece)
                labels.append(int(label))
        if len(pieces) == before:
            raise ValueError(
                f"{TREES:,} trees held no new expression of {shortest} to {longest} tokens after "
                f"the first {before:,}; ask for fewer or for longer ones"
            )
        if progress is not None:
            progress(len(pieces), count)
    offsets = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])])
    return {
        "tokens": np.concatenate(pieces),
        "offsets": offsets.astype(np.int64),
        "labels": np.array(labels, dtype=np.uint8),
    }
