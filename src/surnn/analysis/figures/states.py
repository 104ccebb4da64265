"""States as curves in the plane."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from surnn.plotting import new_figure, open_axes, theme_colour

from ..trajectories import path_length, principal_components, regimes
from .subjects import Subject, one_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

SEQUENCES = 10
MARKS = {"first step": "o", "signal": "^", "last step": "s"}


def trajectories(subjects: Sequence[Subject], _example: int) -> "Figure":
    """The last layer's states on ten sequences, along their two principal components.

    Circle: first state; triangle: the signal of copying; square: last state.
    """
    from matplotlib.cm import ScalarMappable  # noqa: PLC0415 (optional)

    one_size(subjects)
    figure = new_figure(0.8 + 3.2 * len(subjects), 3.9)
    panels = figure.subplots(1, len(subjects), squeeze=False)[0]
    for axes, subject in zip(panels, subjects, strict=True):
        states = subject.record(subject.batch(SEQUENCES)).layers[-1].state
        components = principal_components(states)
        _curves(axes, components.project(states), _signal(subject))
        first, second = (f"{share:.0%} of variance" for share in components.share.tolist())
        axes.set_xlabel(f"component 1 ({first})")
        axes.set_ylabel(f"component 2 ({second})")
        axes.set_title(f"{subject.label}\n{_summary(subject, states)}")
        open_axes(axes, grid=False)
    marks = {mark.get_label(): mark for axes in panels for mark in axes.collections}
    known = [label for label in MARKS if label in marks]
    figure.legend([marks[label] for label in known], known, loc="outside lower center", ncols=3)
    colours = ScalarMappable(cmap=time_colours())
    figure.colorbar(colours, ax=panels, label="time, share of the sequence", pad=0.02)
    return figure


def time_colours() -> "ListedColormap":
    """Viridis without the end that is too close to the colour of the page."""
    from matplotlib import colormaps  # noqa: PLC0415 (optional)
    from matplotlib.colors import ListedColormap, to_rgb  # noqa: PLC0415

    dark_page = sum(to_rgb(theme_colour("paper"))) < 1.5
    low, high = (0.3, 1.0) if dark_page else (0.0, 0.9)
    return ListedColormap(colormaps["viridis"](torch.linspace(low, high, 256).numpy()))


def _curves(axes: "Axes", points: Tensor, signal: int | None) -> None:
    from matplotlib.collections import LineCollection  # noqa: PLC0415 (optional)

    steps = points.shape[1]
    for curve in points:
        pieces = torch.stack((curve[:-1], curve[1:]), 1).numpy()
        lines = LineCollection(pieces, cmap=time_colours(), linewidths=0.8, alpha=0.8)  # type: ignore[arg-type]
        lines.set_array(torch.linspace(0, 1, steps - 1).numpy())
        axes.add_collection(lines)
    places = {"first step": 0, "signal": signal, "last step": steps - 1}
    for label, step in places.items():
        if step is None:
            continue
        across, up = points[:, step].T
        colours = {"facecolors": theme_colour("paper"), "edgecolors": theme_colour("text")}
        axes.scatter(across, up, 22, marker=MARKS[label], **colours,
                     linewidths=0.9, zorder=3, label=label)  # fmt: skip
    axes.autoscale_view()


def _signal(subject: Subject) -> int | None:
    """The time step of copying's signal; None for other tasks."""
    if subject.options["task.name"] != "copying":
        return None
    return subject.options["task.symbols"] + subject.options["task.delay"] - 1


def _summary(subject: Subject, states: Tensor) -> str:
    signal = _signal(subject)
    if signal is None:
        return f"path length {path_length(states):.1f}"
    delay, recall = states[:, subject.options["task.symbols"] : signal], states[:, signal:]
    apart = regimes(delay, recall)
    return (
        f"path in the delay {path_length(delay):.1f}\n"
        f"delay's radius / distance to recall {apart.ratio:.2f}"
    )
