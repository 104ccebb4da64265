"""Where in a signal gates that see the input open."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from surnn.plotting import COLOURS, line_styles, new_figure, open_axes
from surnn.tasks.base import Batch, Tokens, Values

from ..changes import open_share, rate_by_change
from ..rates import unit_rates
from .subjects import NotApplicable, Subject, length_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEQUENCES = 16
SHOWN = 1200
"""Time steps of the trace."""
ZOOM = 12
"""Time steps before and after the token that is shown large."""


def updates_on_signal(subjects: Sequence[Subject], example: int) -> "Figure":
    """A trace with marked updates, and the update rate against the change of the input.

    Time steps of the task's first kind (a beat, a digit) are shaded.
    """
    (subject,) = subjects
    if not isinstance(subject.trained.task.input, Values):
        raise NotApplicable(
            f"{subject.options['task.name']} reads tokens; this figure shows signals"
        )
    batch = subject.batch_with(example, least=SEQUENCES)
    layers = subject.selective(subject.record(batch))
    end = min(SHOWN, length_of(batch, example))
    figure = new_figure(7.2, 4.6)
    trace, rates, below = figure.subplots(3, 1, height_ratios=(2.2, 1.2, 2))
    rates.sharex(trace)
    shares = [open_share(layer) for layer in layers]
    _trace(trace, batch.x[example, :end], shares[0][example, :end])
    for style, layer, share in zip(line_styles(), layers, shares, strict=False):
        rates.plot(torch.arange(1, end + 1), 100 * share[example, :end], **style,
                   linewidth=0.8, label=layer.name)  # fmt: skip
        curve = rate_by_change(layer, batch.x, batch.lengths)
        mean = 100 * unit_rates(layer, batch.lengths).mean()
        below.plot(curve.change, 100 * curve.rate, **style, marker="o", markersize=4,
                   label=f"{layer.name}, {mean:.1f} % in total")  # fmt: skip
    _shade_kind(subject, batch, example, end, (trace, rates))
    rates.set_ylabel("open [%]")
    rates.set_xlabel("step")
    rates.set_xlim(0.5, end + 0.5)
    rates.set_ylim(0, 180 * max(float(share[example, :end].max()) for share in shares) or 1)
    below.set_xlabel(r"change of the input, $|x_t - x_{t-1}|$ (mean of each tenth of the steps)")
    below.set_ylabel("updates [% of units]")
    below.set_ylim(bottom=0)
    for axes in (trace, rates, below):
        open_axes(axes, grid=axes is below)
    trace.tick_params(labelbottom=False)
    below.legend()
    trace.set_title(f"{subject.label} on {subject.options['task.name']}")
    return figure


def updates_on_stream(subjects: Sequence[Subject], example: int) -> "Figure":
    """Updates of each gate along a stream of tokens, and around one token of the first kind.

    Tokens of the task's first kind (events, data) are marked.
    """
    (subject,) = subjects
    task = subject.trained.task
    if not isinstance(task.input, Tokens) or not task.kinds:
        raise NotApplicable(
            f"{subject.options['task.name']} has no tokens of several kinds; updates-on-signal "
            "shows signals"
        )
    batch = subject.batch_with(example)
    layers = subject.selective(subject.record(batch))
    end = length_of(batch, example)
    assert batch.kinds is not None
    marked = (batch.kinds[example, :end] == 0).nonzero().flatten()
    middle = int(marked[len(marked) // 2])
    figure = new_figure(8.6, 0.9 + 1.5 * len(layers))
    panels = figure.subplots(len(layers), 2, squeeze=False, sharey="row", width_ratios=(3, 1.3))
    for row, layer in zip(panels, layers, strict=True):
        gates = layer.by_gate[example, :end]
        for axes in row:
            for number, gate in enumerate(gates.T, 1):
                axes.vlines(gate.nonzero().flatten() + 1, number - 0.4, number + 0.4,
                            color=COLOURS[0], linewidth=1 if axes is row[0] else 3)  # fmt: skip
            width = 0.8 if axes is row[0] else 6
            axes.vlines(marked + 1, 0.4, gates.shape[1] + 0.6, color=COLOURS[1], alpha=0.35,
                        linewidth=width, zorder=0)  # fmt: skip
            axes.set_ylim(gates.shape[1] + 0.6, 0.4)
            open_axes(axes, grid=False)
        rates = (
            f"{kind} {gates[batch.kinds[example, :end] == k].mean():.1%}"
            for k, kind in enumerate(task.kinds)
        )
        row[0].set_title(f"{layer.name}, updates at {', '.join(rates)}", loc="left")
        row[0].set_ylabel("gates")
        row[0].set_xlim(0.5, end + 0.5)
        row[1].set_xlim(middle + 1 - ZOOM, middle + 1 + ZOOM)
    panels[0, 1].set_title(f"around one {task.kinds[0]}", loc="left")
    for axes in panels[-1]:
        axes.set_xlabel("step")
    figure.suptitle(
        f"{subject.label} on {subject.options['task.name']}: updates (blue), "
        f"{task.kinds[0]} (orange)"
    )
    return figure


def _trace(axes: "Axes", x: Tensor, share: Tensor) -> None:
    steps = torch.arange(1, len(x) + 1)
    if x.shape[-1] > 4:  # a picture of many features, and the updates as ticks above it
        extent = (0.5, len(x) + 0.5, 0, x.shape[-1])
        axes.imshow(x.T.numpy(), aspect="auto", origin="lower", cmap="gray_r", extent=extent,
                    interpolation="nearest")  # fmt: skip
        axes.set_ylabel("features")
        axes.set_yticks([0, x.shape[-1] // 2, x.shape[-1]])
        height, top = x.shape[-1], x.shape[-1]
    else:
        axes.plot(steps, x, color="#999999", linewidth=0.8)
        axes.set_ylabel("input")
        height = float(x.max() - x.min()) or 1.0
        top = float(x.max())
    # Ticks as long as the share of units that update; together they look like a density.
    axes.vlines(steps, top + 0.08 * height, top + (0.08 + 0.25 * share) * height,
                color=COLOURS[0], linewidth=0.8)  # fmt: skip
    axes.annotate("updates of layer 1", (0.005, 0.99), xycoords="axes fraction", va="top",
                  fontsize=7.5, color=COLOURS[0])  # fmt: skip
    axes.set_ylim(top=top + 0.5 * height)


def _shade_kind(
    subject: Subject, batch: Batch, example: int, end: int, panels: Sequence["Axes"]
) -> None:
    """Shade the time steps of the task's first kind."""
    kinds = subject.trained.task.kinds
    if batch.kinds is None or not kinds:
        return
    inside = (batch.kinds[example, :end] == 0).int()
    change = torch.cat((inside[:1], inside.diff(), -inside[-1:]))
    starts, ends = (change > 0).nonzero().flatten(), (change < 0).nonzero().flatten()
    for axes in panels:
        for index, (a, b) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            axes.axvspan(a + 0.5, b + 0.5, color=COLOURS[1], alpha=0.25, linewidth=0,
                         label=kinds[0] if index == 0 else None)  # fmt: skip
    panels[1].legend(loc="upper right", ncols=3)
