"""Draws docs/figures/event-scan.png: how a scan over events computes what a loop over time does.

python docs/figures/event_scan.py
"""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from PIL import Image

from surnn.plotting import COLOURS, GREY, new_figure, styled, theme_colour

HERE = Path(__file__).resolve().parent
STEPS = 16
EVENTS = {"head 1": (2, 6, 7, 12), "head 2": (1, 5, 9, 13, 16), "head 3": (8,)}
"""The time steps at which each head is open."""
SHADES = (0.0, 0.22, 0.38, 0.54, 0.7, 0.86)
"""Opacity of the states h0, h1, ... in the output."""


def box(axes: Axes, x: float, y: float, text: str, colour: str, opacity: float) -> None:
    """A square of one time step, with an edge in the colour of the text."""
    style = {"linewidth": 0.7, "edgecolor": theme_colour("grid")}
    axes.add_patch(Rectangle((x - 0.46, y - 0.38), 0.92, 0.76, facecolor=colour, alpha=opacity))
    axes.add_patch(Rectangle((x - 0.46, y - 0.38), 0.92, 0.76, fill=False, **style))
    axes.text(x, y, text, ha="center", va="center", fontsize=7.5)


def blank(axes: Axes, title: str, steps: int) -> None:
    """An empty panel with a title and the names of the heads."""
    axes.set_xlim(-1.3, STEPS + 0.6)
    axes.set_ylim(-0.6, 3.1)
    axes.set_axis_off()
    axes.set_title(title, loc="left")
    for row, name in enumerate(EVENTS):
        axes.text(-1.2, 2 - row, name, va="center", fontsize=8)
    for step in range(1, steps + 1):
        axes.text(step, 2.62, str(step), ha="center", va="center", fontsize=7, color=GREY)


def draw(path: Path) -> None:
    """The three stages, one below the other."""
    figure = new_figure(7.2, 5.2)
    gates, walk, output = figure.subplots(3, 1)
    longest = max(map(len, EVENTS.values()))
    blank(gates, "1. All gates first, in parallel over time. Filled: open", STEPS)
    blank(walk, f"2. Walk over the events only: {longest} serial steps instead of {STEPS}", longest)
    blank(output, "3. Outputs: each event's state, copied until the next event", STEPS)
    for row, (colour, events) in enumerate(zip(COLOURS, EVENTS.values(), strict=False)):
        y = 2 - row
        for t in range(1, STEPS + 1):
            box(gates, t, y, "", colour, 0.8 if t in events else 0)
            number = sum(event <= t for event in events)
            box(output, t, y, f"$h_{number}$", colour, SHADES[number])
        for number, event in enumerate(events, 1):
            box(walk, number, y, f"t={event}", colour, 0.6)
    walk.text(longest + 1, 2, "The longest list sets the number of serial steps.", va="center",
              fontsize=8, color=GREY)  # fmt: skip
    walk.text(longest + 1, 1, "Heads do not wait for each other.", va="center", fontsize=8,
              color=GREY)  # fmt: skip
    figure.savefig(path, dpi=120)
    Image.open(path).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    for theme, name in (("light", "event-scan.png"), ("dark", "event-scan-dark.png")):
        with styled(theme):
            draw(HERE / name)


if __name__ == "__main__":
    main()
