"""What all figures share. matplotlib is optional: ``pip install 'surnn[plot]'``."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import cycle, product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's, which the colour-blind can tell apart; what others are compared with is grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
GREY = "#666666"
PALE = "#dddddd"
DASHES = ("-", "--", "-.", ":")
FONTS = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


class NoMatplotlib(Exception):
    """Figures were asked for and matplotlib is not there."""


@contextmanager
def styled() -> Iterator[None]:
    """Fonts and lines of figures that are drawn and written in here."""
    try:
        import_module("matplotlib.figure")
        matplotlib = import_module("matplotlib")
    except ImportError as error:
        raise NoMatplotlib(
            "figures need matplotlib; get it with: pip install 'surnn[plot]'"
        ) from error
    with matplotlib.rc_context({**FONTS, "legend.frameon": False, "lines.linewidth": 1.5}):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of so many inches."""
    figure: type[Figure] = import_module("matplotlib.figure").Figure
    return figure(figsize=(width, height), layout="constrained")


def line_styles() -> Iterator[dict[str, Any]]:
    """Colour and dash of line after line, without end: when colours run out, dashes change."""
    return cycle({"color": colour, "linestyle": dash} for dash, colour in product(DASHES, COLOURS))


def open_axes(axes: "Axes", grid: bool = True) -> None:
    """No frame where there is no axis, and a grid that stays behind."""
    axes.spines[["top", "right"]].set_visible(False)
    if grid:
        axes.grid(True, color=PALE, linewidth=0.6)
        axes.set_axisbelow(True)
