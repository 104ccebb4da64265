"""Style and helpers of all figures. matplotlib is optional: ``pip install 'surnn[plot]'``."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import cycle, product
from typing import TYPE_CHECKING, Any

from surnn.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, for colour-blind readers; grey marks references such as chance.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
GREY = "#808080"
DASHES = ("-", "--", "-.", ":")
FONTS = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}
THEMES = {
    "light": {"grid.color": "#dddddd"},
    "dark": {
        "grid.color": "#3a3e4c",
        **dict.fromkeys(("figure.facecolor", "savefig.facecolor", "axes.facecolor"), "#1e2129"),
        **dict.fromkeys(
            ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"),
            "#d7d9e0",
        ),
    },
}
"""Colours of the page below a figure and of its text. Lines have colours for both."""


class NoMatplotlib(MissingExtra):
    """matplotlib is not installed.

    Args:
        then: what to do after installing it.
    """

    def __init__(self, then: str = "") -> None:
        super().__init__("matplotlib", "drawing figures")
        self.args = (self.args[0] + then,)


@contextmanager
def styled(theme: str = "light") -> Iterator[None]:
    """Fonts, line widths and colours for figures that are drawn and saved inside this context."""
    try:
        import_module("matplotlib.figure")
        matplotlib = import_module("matplotlib")
    except ImportError as error:
        raise NoMatplotlib from error
    lines = {"legend.frameon": False, "lines.linewidth": 1.5}
    with matplotlib.rc_context({**FONTS, **THEMES[theme], **lines}):
        yield


def theme_colour(part: str) -> Any:
    """The current colour of a part of figures: ``text``, ``paper`` or ``grid``."""
    key = {"text": "text.color", "paper": "axes.facecolor", "grid": "grid.color"}[part]
    return import_module("matplotlib").rcParams[key]


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure; width and height are in inches."""
    figure: type[Figure] = import_module("matplotlib.figure").Figure
    return figure(figsize=(width, height), layout="constrained")


def line_styles() -> Iterator[dict[str, Any]]:
    """An endless series of line styles: all colours with solid lines, then with dashes, ..."""
    return cycle({"color": colour, "linestyle": dash} for dash, colour in product(DASHES, COLOURS))


def open_axes(axes: "Axes", grid: bool = True) -> None:
    """Remove the top and right frame, and draw a grid behind the lines."""
    axes.spines[["top", "right"]].set_visible(False)
    if grid:
        axes.grid(True, color=theme_colour("grid"), linewidth=0.6)
        axes.set_axisbelow(True)
