"""Paddles and markers as small 8-bit pictures, and images composed of them.

All geometry is on whole pixels, so that a paddle has one picture per direction. Every picture is
drawn at twice its size and reduced by a Lanczos filter. Angles go from x to y; points are (y, x).
"""

import math

import numpy as np

WINDOW = 32
SCALE = 2
"""Side of the large drawing."""
LENGTH, MARGIN = 2, 1
RADIUS = 1.5
REACH = LENGTH + MARGIN + 1
"""Patches are [-REACH, REACH] about a paddle's end."""
SIDE = 2 * REACH + 1
TURNING = LENGTH + MARGIN
"""From the pivot between two paddles to the far end of the second."""
DEGREES = 360
"""Directions 0 to 359 are degrees, less 180: a snake's first paddle. The others lead from a pivot
to one of the pixels of ``TURNS``."""


def _turns() -> np.ndarray:
    """[K, 2] whole pixels at about TURNING from a pivot, one for each pixel of arc."""
    angle = np.arange(0, 2 * math.pi, 1 / TURNING)
    points = TURNING * np.stack([np.sin(angle), np.cos(angle)], 1)
    return np.unique(np.floor(points + 1e-9).astype(int), axis=0)


TURNS = _turns()
ANGLE = np.concatenate(
    [np.radians(np.arange(DEGREES) - 180.0), np.arctan2(TURNS[:, 0], TURNS[:, 1])]
)
"""[directions] in radians."""


def direction_offsets(distance: float) -> np.ndarray:
    """[directions, 2] whole pixels that lie ``distance`` ahead, rounded up as the original does."""
    points = distance * np.stack([np.sin(ANGLE), np.cos(ANGLE)], 1)
    return np.ceil(np.round(points, 9)).astype(int)


def lanczos(size: int, small: int) -> np.ndarray:
    """[small, size] weights that reduce a line of ``size`` pixels to ``small``."""
    scale = size / small
    centre = (np.arange(small) + 0.5) * scale
    distance = (np.arange(size) + 0.5 - centre[:, None]) / scale
    weight = np.where(abs(distance) < 3, np.sinc(distance) * np.sinc(distance / 3), 0)
    return weight / weight.sum(1, keepdims=True)


def shrink(large: np.ndarray, small: int) -> np.ndarray:
    """A square drawing of 0 and 1, as 8-bit grey of ``small`` pixels a side.

    8-bit after each pass: along the rows, then along the columns.
    """
    weight = lanczos(len(large), small)
    across = np.clip(np.round(255 * large @ weight.T), 0, 255)
    return np.clip(np.round(weight @ across), 0, 255).astype(np.uint8)


def _paddle(angle: float) -> tuple[np.ndarray, np.ndarray]:
    """A paddle that begins in the middle of the patch, and the pixels it occupies: itself and a
    margin around it. Both [SIDE, SIDE]."""
    middle, size = REACH * SCALE, 2 * REACH * SCALE + 1
    ahead = LENGTH * SCALE * np.array([math.sin(angle), math.cos(angle)])
    end = np.ceil(np.round(ahead, 9))
    points = middle + np.round(np.linspace(0, 1, int(abs(end).max()) + 1)[:, None] * end)
    line = np.zeros((size, size))
    line[points[:, 0].astype(int), points[:, 1].astype(int)] = 1
    y, x = np.mgrid[:size, :size]
    distance = (y[..., None] - points[:, 0]) ** 2 + (x[..., None] - points[:, 1]) ** 2
    near = (distance <= (MARGIN * SCALE) ** 2).any(-1)
    return shrink(line, SIDE), shrink(near.astype(float), SIDE)


def _marker() -> np.ndarray:
    """A filled circle [SIDE, SIDE]; its centre is the large drawing's first pixel of the middle
    one, as in the original."""
    y, x = np.mgrid[: SIDE * SCALE, : SIDE * SCALE] - REACH * SCALE
    return shrink((x**2 + y**2 <= (RADIUS * SCALE) ** 2).astype(float), SIDE)


def _paddles() -> tuple[np.ndarray, np.ndarray]:
    # The first paddle of a snake is drawn from its tail, the others back from their heads.
    forward = [_paddle(angle) for angle in ANGLE[:DEGREES]]
    backward = [_paddle(angle + math.pi) for angle in ANGLE[DEGREES:]]
    lines, masks = zip(*(forward + backward), strict=True)
    shape = (len(ANGLE), SIDE * SIDE)
    return np.stack(lines).reshape(shape), np.stack(masks).reshape(shape)


LINES, MASKS = _paddles()
"""[directions, SIDE * SIDE] 8-bit, with the paddle's end in the middle."""
MARKER = _marker().reshape(-1)

PAD = 12
CANVAS = WINDOW + 2 * PAD
"""Side of the square canvas, wide enough for all patches."""
_reach = np.arange(-REACH, REACH + 1)
PATCH = (_reach[:, None] * CANVAS + _reach).reshape(-1)
"""Offsets of a patch's pixels from its middle, in a flattened canvas."""


def flat(points: np.ndarray) -> np.ndarray:
    """Points [..., 2] in the window as indices of a flattened canvas."""
    return (points[..., 0] + PAD) * CANVAS + points[..., 1] + PAD


def draw_patches(
    canvas: np.ndarray, rows: np.ndarray, points: np.ndarray, patch: np.ndarray
) -> None:
    """Draw ``patch`` [N, SIDE * SIDE] on canvas[rows] [N, CANVAS * CANVAS] at ``points`` [N, 2];
    the brighter pixel wins."""
    where = (rows * canvas.shape[1] + flat(points))[:, None] + PATCH
    pixels = canvas.reshape(-1)
    pixels[where] = np.maximum(pixels[where], patch)


def read_patches(canvas: np.ndarray, rows: np.ndarray, points: np.ndarray) -> np.ndarray:
    """[N, SIDE * SIDE] the pixels of canvas[rows] around ``points``."""
    return canvas.reshape(-1)[(rows * canvas.shape[1] + flat(points))[:, None] + PATCH]


def blank(count: int) -> np.ndarray:
    """Empty canvases [count, CANVAS * CANVAS]; only a border of one pixel is occupied."""
    canvas = np.full((CANVAS, CANVAS), 255, dtype=np.uint8)
    canvas[PAD + 1 : PAD + WINDOW - 1, PAD + 1 : PAD + WINDOW - 1] = 0
    return np.tile(canvas.reshape(-1), (count, 1))


def window(canvas: np.ndarray) -> np.ndarray:
    """The images [N, WINDOW, WINDOW] in the middle of canvases."""
    square = canvas.reshape(-1, CANVAS, CANVAS)
    return square[:, PAD : PAD + WINDOW, PAD : PAD + WINDOW]
