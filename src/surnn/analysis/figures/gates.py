"""Times of updates: rasters, timescales, depth, paths, rates."""

from collections.abc import Sequence
from itertools import pairwise
from math import log10
from typing import TYPE_CHECKING, Any

import torch

from surnn.plotting import COLOURS, GREY, line_styles, new_figure, open_axes, theme_colour
from surnn.runs.rate_format import format_opening

from ..depth import depth_curve, path_counts, update_count
from ..rates import interval_bins, intervals, median_interval, update_rates
from ..recording import record
from .subjects import Subject, length_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEQUENCES = 8
MAX_PATH_STEPS = 600
"""Time steps over which paths are counted; their number has hundreds of digits already."""


def gate_raster(subjects: Sequence[Subject], example: int) -> "Figure":
    """Open gates over time, layer by layer, sorted by rate."""
    (subject,) = subjects
    batch = subject.batch_for_gates(1, example)
    layers = subject.selective(subject.record(batch))
    figure = new_figure(7.2, 0.7 + 1.5 * len(layers))
    panels = figure.subplots(len(layers), 1, sharex=True, squeeze=False)[:, 0]
    end = length_of(batch, example)
    for axes, layer in zip(panels, layers, strict=True):
        shown = layer.by_gate[example, :end].T
        rates = shown.mean(1)
        shown = shown[rates.argsort(descending=True)]
        axes.imshow((1 - shown).numpy(), cmap="gray", vmin=0, vmax=1, aspect="auto",
                    interpolation="nearest",
                    extent=(0.5, end + 0.5, len(shown) + 0.5, 0.5))  # fmt: skip
        shares = {"unit": "a gate for each unit", "layer": "one gate"}
        sharing = shares.get(layer.granularity, f"a gate for {layer.granularity}")
        mean = rates.mean().item()
        how = f"open {format_opening(mean)}" if layer.soft else f"{mean:.1%} open"
        axes.set_title(f"{layer.name}: {sharing}, {how}", loc="left")
        axes.set_ylabel("gates, by rate")
        axes.yaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    panels[-1].set_xlabel("step")
    figure.suptitle(f"{subject.label} on {subject.options['task.name']} (black: the gate is open)")
    return figure


def timescales(subjects: Sequence[Subject], _example: int) -> "Figure":
    """Time steps between successive updates of a unit, layer by layer."""
    figure = new_figure(0.8 + 4.6 * len(subjects), 3.2)
    panels = figure.subplots(1, len(subjects), squeeze=False, sharey=True)[0]
    for axes, subject in zip(panels, subjects, strict=True):
        layers = subject.selective(subject.record(subject.batch_for_gates(SEQUENCES)))
        for style, layer in zip(line_styles(), layers, strict=False):
            counts = intervals(layer)
            edges = interval_bins(counts)
            parts = [counts[a:b].sum() for a, b in pairwise(edges)]
            share = torch.stack(parts) / counts.sum().clamp(min=1)
            share[share == 0] = torch.nan  # a gap: a logarithmic axis has no 0
            axes.stairs(100 * share, edges, baseline=None, **style, linewidth=1.5,
                        label=f"{layer.name}, median {median_interval(counts)}")  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(0.05, 130)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
        axes.set_xlabel("steps from one update to the next")
        axes.set_title(subject.label)
        open_axes(axes)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    panels[0].set_ylabel("intervals [%]")
    return figure


def effective_depth(subjects: Sequence[Subject], _example: int) -> "Figure":
    """Updates against elapsed time steps: mean of the units, and the middle 80 % of them."""
    figure = new_figure(6.8, 3.5)
    axes = figure.add_subplot()
    longest, styles = 1, line_styles()
    for subject in subjects:
        recording = subject.record(subject.batch_for_gates(SEQUENCES))
        for layer in subject.selective(recording):
            curve, style = depth_curve(layer, recording.lengths), next(styles)
            elapsed = torch.arange(len(curve))
            longest = max(longest, len(curve) - 1)
            name = layer.name if len(subjects) == 1 else f"{subject.label}, {layer.name}"
            axes.plot(elapsed, curve.mean(1), **style, label=name)
            low, high = curve.quantile(torch.tensor([0.1, 0.9]).double(), 1)
            axes.fill_between(elapsed, low, high, color=style["color"], alpha=0.2, linewidth=0)
    top = axes.get_ylim()[1]
    axes.plot([0, longest], [0, longest], color=GREY, linestyle=":", label="every step (dense)")
    axes.set_ylim(0, 1.6 * top)
    axes.set_xlim(0, longest)
    axes.set_xlabel("elapsed steps")
    axes.set_ylabel("updates of a unit (effective depth)")
    axes.set_title(subjects[0].label if len(subjects) == 1 else "")
    open_axes(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def paths(subjects: Sequence[Subject], example: int) -> "Figure":
    """Number of paths of each length in the ensemble of sub-RNNs, compared with a dense RNN."""
    (subject,) = subjects
    batch = subject.batch_for_gates(1, example)
    layers = subject.selective(subject.record(batch))
    steps = min(MAX_PATH_STEPS, length_of(batch, example))
    figure = new_figure(5.6, 3.5)
    axes = figure.add_subplot()
    for style, layer in zip(line_styles(), layers, strict=False):
        g = layer.gate[example, :steps]
        median = int(update_count(g).argsort()[g.shape[1] // 2])
        _paths(axes, path_counts(g, median, layer.heads), style, layer.name)
    _paths(axes, path_counts(torch.ones(steps, 1), 0), {"color": GREY}, "dense")
    axes.set_xlabel("updates on the path")
    axes.set_ylabel(r"number of paths, $\log_{10}$")
    axes.set_title(f"{subject.label}: paths to the median unit over {steps} steps")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.02)
    open_axes(axes)
    axes.legend()
    return figure


def _paths(axes: "Axes", counts: list[int], style: dict[str, Any], name: str) -> None:
    lengths = [k for k, count in enumerate(counts) if count]
    total = sum(counts)
    number = f"{total:,}" if total < 10**6 else f"$10^{{{log10(total):.0f}}}$"
    axes.plot(lengths, [log10(counts[k]) for k in lengths], **style,
              label=f"{name}: {number} in total")  # fmt: skip


def update_rate_table(subjects: Sequence[Subject]) -> list[tuple[str, float, float]]:
    """Rows of: run and layer, rate before training, rate after training."""
    rows = []
    for subject in subjects:
        batch = subject.batch_for_gates(SEQUENCES)
        after = subject.record(batch)
        before = update_rates(record(subject.untrained(), batch.x, batch.lengths)).tolist()
        names = [layer.name for layer in subject.selective(after)]
        for name, old, new in zip(names, before, update_rates(after).tolist(), strict=True):
            rows.append((f"{subject.label}, {name}", old, new))
    return rows


def update_rates_figure(subjects: Sequence[Subject], _example: int) -> "Figure":
    """Update rates of every layer before and after training."""
    rows = update_rate_table(subjects)
    figure = new_figure(6.4, 0.9 + 0.3 * len(rows))
    axes = figure.add_subplot()
    places = range(len(rows) - 1, -1, -1)
    for place, (_, before, after) in zip(places, rows, strict=True):
        axes.plot([100 * before, 100 * after], [place, place], color=GREY, linewidth=1, zorder=1)
        axes.annotate(f"{before:.1%} → {after:.1%}", (1.0, place), (4, 0), va="center",
                      xycoords=("axes fraction", "data"), textcoords="offset points",
                      fontsize=8)  # fmt: skip
    faces = {"before training": theme_colour("paper"), "trained": COLOURS[0]}
    for index, (label, face) in enumerate(faces.items()):
        axes.scatter([100 * row[1 + index] for row in rows], list(places), 34, facecolors=face,
                     edgecolors=COLOURS[0], zorder=2, label=label)  # fmt: skip
    axes.set_yticks(list(places), [row[0] for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlim(left=0)
    axes.set_xlabel("update rate [% of steps]")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    open_axes(axes)
    return figure
