"""Snakes: rows of paddles that do not touch, grown on many images at once."""

from typing import NamedTuple

import numpy as np

from surnn.data.cache import Arrays, Progress

from .pathfinder_draw import (
    ANGLE,
    CANVAS,
    DEGREES,
    LENGTH,
    LINES,
    MARGIN,
    MARKER,
    MASKS,
    TURNING,
    TURNS,
    WINDOW,
    blank,
    direction_offsets,
    draw_patches,
    flat,
    read_patches,
    window,
)

PADDLES = 14
SEED_DISTANCE = 7
CONTINUITY = 1.0
CONTRAST = 2 * 0.75
DISTRACTORS = 5
DISTRACTOR_CONTRAST = 2.0
"""As in the original; its factor of 0.75 does not apply to distractors."""
SNAKE_TRIES, PADDLE_TRIES = 1 + 4, 1 + 2
SEED_DRAWS = 32
"""Random pixels that are tried as the start of a distractor."""
CROWDED = 1.8 * 255
FREE = 0.3 * 255
ATTEMPTS = 4096
"""Pairs of snakes started at a time; few reach full length. The data depend on it."""

ADVANCE = direction_offsets(LENGTH + 2 * MARGIN)
TO_PIVOT = direction_offsets(LENGTH) + direction_offsets(-TURNING)
NEIGHBOURS = np.array([0, -CANVAS, CANVAS, -1, 1])
"""Offsets of a pixel and its neighbours within a margin, in a flattened canvas."""


def _turn_weights() -> np.ndarray:
    """[directions, K] the probability of each turn after each direction."""
    turn = abs(ANGLE[:, None] - ANGLE[DEGREES:])
    turn = np.minimum(turn, 2 * np.pi - turn)
    return np.cos(np.minimum(CONTINUITY * turn, np.pi / 2)) ** 2


TURN_WEIGHTS = _turn_weights()


class Extension(NamedTuple):
    """New paddles for the snakes of N images."""

    fits: np.ndarray
    """[N] whether there was room; the other fields are valid only where there was."""
    heads: np.ndarray
    """[N, 2]."""
    directions: np.ndarray
    """[N]."""
    pivots: np.ndarray
    """[N, 2]."""


class Scene(NamedTuple):
    """The contents of N images. A paddle is a direction and a point (y, x): the tail of a snake's
    first paddle, the heads of the others."""

    points: np.ndarray
    """[N, 2, P, 2] points of the two long snakes."""
    directions: np.ndarray
    """[N, 2, P]."""
    distractor_points: np.ndarray
    """[N, 5, Q, 2]."""
    distractor_directions: np.ndarray
    """[N, 5, Q]."""
    present: np.ndarray
    """[N, 5] whether there was room for the distractor."""
    markers: np.ndarray
    """[N, 2, 2] the origin of one snake, and the end of one."""
    labels: np.ndarray
    """[N] 1 if both are on the same snake."""


def extend(
    occupied: np.ndarray,
    rows: np.ndarray,
    pivots: np.ndarray,
    directions: np.ndarray,
    random: np.random.Generator,
) -> Extension:
    """One more paddle for the snakes in canvases occupied[rows], which were last at ``pivots``."""
    pivots = pivots + ADVANCE[directions]
    heads = pivots[:, None] + TURNS
    where = (rows * occupied.shape[1])[:, None] + flat(heads)
    blocked = occupied.reshape(-1)[where[..., None] + NEIGHBOURS].max(-1)
    likely = (TURN_WEIGHTS[directions] * (1 - blocked / 255)).cumsum(1)
    total = likely[:, -1]
    turns = np.full(len(rows), -1)
    left = np.flatnonzero(total > 1e-4)
    for _ in range(PADDLE_TRIES):
        draw = random.random(len(left)) * total[left]
        turn = (likely[left] <= draw[:, None]).sum(1)
        mask = MASKS[DEGREES + turn].astype(np.int16)
        crowd = read_patches(occupied, rows[left], heads[left, turn]) + mask
        fits = crowd.max(1, initial=0) < CROWDED
        turns[left[fits]] = turn[fits]
        left = left[~fits]
    heads = heads[np.arange(len(rows)), turns]
    return Extension(turns >= 0, heads, DEGREES + turns, pivots)


def two_seeds(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points [ATTEMPTS, 2, 2] and directions [ATTEMPTS, 2] of first paddles, both near the middle
    and SEED_DISTANCE apart."""
    low, high = 2 * SEED_DISTANCE, WINDOW - 2 * SEED_DISTANCE
    first = random.integers(low, high, (ATTEMPTS, 2))
    angle = np.radians(random.integers(0, 360, ATTEMPTS))
    apart = SEED_DISTANCE * np.stack([np.sin(angle), np.cos(angle)], 1)
    second = np.round(first + apart).astype(int)
    return np.stack([first, second], 1), random.integers(0, DEGREES, (ATTEMPTS, 2))


def two_snakes(
    random: np.random.Generator, paddles: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points [N, 2, P, 2] and directions [N, 2, P] of those of ATTEMPTS pairs that found room, and
    canvases [N, CANVAS * CANVAS] of the pixels they occupy.

    The snakes take turns. A snake may touch its own last paddle, but, unlike in the original, no
    paddle of the other snake.
    """
    points = np.zeros((ATTEMPTS, 2, paddles, 2), dtype=int)
    directions = np.zeros((ATTEMPTS, 2, paddles), dtype=int)
    points[:, :, 0], directions[:, :, 0] = two_seeds(random)
    pivots = points[:, :, 0] + TO_PIVOT[directions[:, :, 0]]
    rows = np.arange(ATTEMPTS)
    occupied = [blank(ATTEMPTS), blank(ATTEMPTS)]
    for snake in (0, 1):
        draw_patches(occupied[1 - snake], rows, points[:, snake, 0], MASKS[directions[:, snake, 0]])
    mask = MASKS[directions[:, 1, 0]].astype(np.int16)
    crowd = read_patches(occupied[1], rows, points[:, 1, 0]) + mask
    rows = rows[crowd.max(1) < CROWDED]
    for paddle in range(1, paddles):
        for snake in (0, 1):
            last = directions[rows, snake, paddle - 1]
            extension = extend(occupied[snake], rows, pivots[rows, snake], last, random)
            rows, last = rows[extension.fits], last[extension.fits]
            points[rows, snake, paddle] = heads = extension.heads[extension.fits]
            directions[rows, snake, paddle] = new = extension.directions[extension.fits]
            pivots[rows, snake] = extension.pivots[extension.fits]
            draw_patches(occupied[snake], rows, points[rows, snake, paddle - 1], MASKS[last])
            draw_patches(occupied[1 - snake], rows, heads, MASKS[new])
    return points[rows], directions[rows], np.maximum(occupied[0][rows], occupied[1][rows])


def short_snakes(
    occupied: np.ndarray, random: np.random.Generator, paddles: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A distractor for each canvas of ``occupied``, which marks its pixels there: points [N, Q, 2],
    directions [N, Q], and whether it found room [N]."""
    count = len(occupied)
    points = np.zeros((count, paddles, 2), dtype=int)
    directions = np.zeros((count, paddles), dtype=int)
    directions[:, 0] = random.integers(0, DEGREES, count)
    tails = random.integers(1, WINDOW - 1, (count, SEED_DRAWS, 2))
    every = np.repeat(np.arange(count), SEED_DRAWS)
    blocked = (read_patches(occupied, every, tails.reshape(-1, 2)) > FREE).reshape(
        count, SEED_DRAWS, MASKS.shape[1]
    )
    free = ~(blocked & (MASKS[directions[:, None, 0]] > FREE)).any(-1)
    rows = np.flatnonzero(free.any(-1))
    points[:, 0] = tails[np.arange(count), free.argmax(1)]
    pivots = points[:, 0] + TO_PIVOT[directions[:, 0]]
    for paddle in range(1, paddles):
        last = directions[rows, paddle - 1]
        extension = extend(occupied, rows, pivots[rows], last, random)
        rows, last = rows[extension.fits], last[extension.fits]
        points[rows, paddle] = extension.heads[extension.fits]
        directions[rows, paddle] = extension.directions[extension.fits]
        pivots[rows] = extension.pivots[extension.fits]
        draw_patches(occupied, rows, points[rows, paddle - 1], MASKS[last])
    return points, directions, np.isin(np.arange(count), rows)


def distractors(
    occupied: np.ndarray, random: np.random.Generator, paddles: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points [N, 5, Q, 2], directions [N, 5, Q] and presence [N, 5], written on ``occupied``."""
    shape = (len(occupied), DISTRACTORS, paddles)
    points, directions = np.zeros((*shape, 2), dtype=int), np.zeros(shape, dtype=int)
    present = np.zeros(shape[:2], dtype=bool)
    for snake in range(DISTRACTORS):
        left = np.arange(len(occupied))
        for _ in range(SNAKE_TRIES):
            where, direction, complete = short_snakes(occupied[left], random, paddles)
            done = left[complete]
            points[done, snake], directions[done, snake] = where[complete], direction[complete]
            present[done, snake] = True
            for paddle in range(paddles):
                mask = MASKS[directions[done, snake, paddle]]
                draw_patches(occupied, done, points[done, snake, paddle], mask)
            left = left[~complete]
    return points, directions, present


def scenes(random: np.random.Generator, paddles: int = PADDLES) -> Scene:
    """The complete ones of ATTEMPTS images. Distractors are a third as long as the snakes."""
    points, directions, occupied = two_snakes(random, paddles)
    count = np.arange(len(points))
    distracting = distractors(occupied, random, max(1, paddles // 3))
    labels = random.integers(0, 2, len(points))
    begins = random.integers(0, 2, len(points))
    ends = np.where(labels == 1, begins, 1 - begins)
    markers = np.stack([points[count, begins, 0], points[count, ends, -1]], 1)
    return Scene(points, directions, *distracting, markers, labels)


def render(scene: Scene) -> np.ndarray:
    """Images [N, 32, 32], 8-bit."""
    rows = np.arange(len(scene.labels))
    canvas = np.zeros((len(rows), CANVAS * CANVAS), dtype=np.uint8)
    bright = np.minimum(LINES * CONTRAST, 255).astype(np.uint8)
    for snake in range(2):
        for paddle in range(scene.points.shape[2]):
            patch = bright[scene.directions[:, snake, paddle]]
            draw_patches(canvas, rows, scene.points[:, snake, paddle], patch)
    bright = np.minimum(LINES * DISTRACTOR_CONTRAST, 255).astype(np.uint8)
    for snake in range(DISTRACTORS):
        there = rows[scene.present[:, snake]]
        for paddle in range(scene.distractor_points.shape[2]):
            patch = bright[scene.distractor_directions[there, snake, paddle]]
            draw_patches(canvas, there, scene.distractor_points[there, snake, paddle], patch)
    for marker in range(2):
        draw_patches(canvas, rows, scene.markers[:, marker], MARKER[None])
    return window(canvas)


def images(
    count: int, seed: int, progress: Progress | None = None, paddles: int = PADDLES
) -> Arrays:
    """``images`` [count, 32, 32] and ``labels`` [count], 8-bit. The first ones do not depend on
    ``count``."""
    random = np.random.default_rng(seed)
    pieces, labels, done = [], [], 0
    while done < count:
        scene = scenes(random, paddles)
        pieces.append(render(scene))
        labels.append(scene.labels.astype(np.uint8))
        done += len(scene.labels)
        if progress is not None:
            progress(min(done, count), count)
    return {"images": np.concatenate(pieces)[:count], "labels": np.concatenate(labels)[:count]}
