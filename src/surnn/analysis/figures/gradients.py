"""Gradients over long distances: gradient profiles, and Proposition 1 measured."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from surnn.plotting import COLOURS, GREY, new_figure, open_axes, theme_colour
from surnn.tasks.base import Batch, Task

from ..gradients import fit_decay, gradient_profile
from ..jacobians import Jacobians, jacobians, row_growth
from ..rates import unit_rates
from ..recording import record
from .subjects import NotApplicable, Subject, length_of, one_size, timed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SEQUENCES = 64
AT_ONCE = 16
"""Sequences per batch; all their states are in memory."""
REACH = 200
"""Time steps over which Jacobians are multiplied."""
TRIAL_STEPS = 20
"""Time steps that are run to estimate the time."""
MIN_GRADIENT = 1e-12
"""The lower end of the axis of gradients."""


def gradients(subjects: Sequence[Subject], _example: int) -> "Figure":
    """Norm of the loss's gradient with respect to the first layer's states, before and after
    training.

    Colours mark lengths; lines of gated layers are solid, others dashed; the fit ρ^{pΔ} is dotted.
    """
    one_size(subjects)
    figure = new_figure(7.2, 3.9)
    panels = figure.subplots(1, 2)
    lengths = sorted({subject.trained.task.steps for subject in subjects})
    for axes, title in zip(panels, ("before training", "trained"), strict=True):
        for subject in subjects:
            model = subject.trained.model if title == "trained" else subject.untrained()
            norm = _norm(model, subject.task, subject.batch(SEQUENCES))
            distance = torch.arange(len(norm) - 1, -1, -1)
            seen = record(model, subject.batch(AT_ONCE).x)
            rate = unit_rates(seen.layers[0]).mean().item()
            colour = COLOURS[lengths.index(subject.trained.task.steps) % len(COLOURS)]
            first, last = _fit_window(subject)
            fit = fit_decay(norm, rate, first, last)
            axes.plot(distance, norm, color=colour, linewidth=1.2,
                      linestyle="-" if subject.gated else "--",
                      label=f"{subject.label}: p = {rate:.2f}, ρ = {fit.rho:.2f}")  # fmt: skip
            axes.plot(distance[first:last], fit.at(distance[first:last], rate),
                      color=theme_colour("text"), linestyle=":", linewidth=1)  # fmt: skip
        axes.set_yscale("log")
        _set_lower_end(axes, MIN_GRADIENT)
        axes.set_xlabel(r"time steps from the state to the end, $T - \tau$")
        axes.set_title(title)
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2))
        open_axes(axes)
    panels[0].set_ylabel(r"$\|\partial\ell/\partial h_\tau\|_2$, mean of sequences")
    names = sorted({subject.options["task.name"] for subject in subjects})
    figure.suptitle(f"Gradient by the states of layer 1, {', '.join(names)}")
    return figure


def _norm(model: nn.Module, task: Task, batch: Batch) -> Tensor:
    """Gradient norms of the first layer, the mean over a batch that is run in parts."""
    parts = []
    for begin in range(0, len(batch.x), AT_ONCE):
        rows = slice(begin, begin + AT_ONCE)
        part = Batch(batch.x[rows], batch.target[rows])
        norm = gradient_profile(model, part.x, loss_of(task, part)).norm[0]
        parts.append(norm * len(part.x))
    return torch.stack(parts).sum(0) / len(batch.x)


def _set_lower_end(axes: "Axes", least: float) -> None:
    axes.set_ylim(max(axes.get_ylim()[0], least), 3 * axes.dataLim.y1)


def loss_of(task: Task, batch: Batch) -> Callable[[Tensor], Tensor]:
    """The loss whose gradient is taken: for copying only that of the answer, as in the paper."""

    def loss(prediction: Tensor) -> Tensor:
        recall = task.details(prediction, batch).get("loss of recall")
        return task.loss(prediction, batch) if recall is None else recall.total / recall.count

    return loss


def _fit_window(subject: Subject) -> tuple[int, int]:
    """The time steps of the fit: all but the first and last tenth, or the delay of copying."""
    steps = subject.trained.task.steps
    symbols = subject.options.get("task.symbols", steps // 10)
    return symbols, steps - symbols


def gradient_seconds(subjects: Sequence[Subject]) -> float:
    """Estimated from a few time steps."""
    total = 0.0
    for subject in subjects:
        batch = subject.batch(AT_ONCE)
        sample = batch.x[:, :TRIAL_STEPS]
        seconds = timed(lambda m=subject.trained.model, x=sample: gradient_profile(m, x, _square))
        parts = 2 * SEQUENCES / AT_ONCE  # twice: before and after training
        total += parts * seconds * batch.x.shape[1] / sample.shape[1]
    return total


def _square(y: Tensor) -> Tensor:
    return y.square().mean()


def proposition_1(subjects: Sequence[Subject], example: int) -> "Figure":
    """The constant that Proposition 1 needs, and sensitivities against updates."""
    figure = new_figure(7.2, 0.3 + 2.9 * len(subjects))
    grid = figure.subplots(len(subjects), 2, squeeze=False)
    for (left, right), subject in zip(grid, subjects, strict=True):
        growth = row_growth(_jacobians(subject, example, REACH))
        elapsed = torch.arange(1, len(growth.norm) + 1)
        for share, style in ((1.0, "-"), (0.5, "--"), (0.0, ":")):
            name = {1.0: "largest", 0.5: "median", 0.0: "smallest"}[share]
            left.plot(elapsed, growth.constant.quantile(share, 1), style,
                      color=COLOURS[0], label=f"{name} of all units")  # fmt: skip
        left.set_yscale("log")
        left.set_xlabel(r"elapsed steps $t$")
        left.set_ylabel(r"$C_i(0, t)$")
        left.set_title(f"{subject.label}: constant for ρ = {growth.rho:.2f}")
        left.legend()
        last = growth.count[-1]
        right.scatter(last, growth.norm[-1], 14, color=COLOURS[0], alpha=0.6,
                      label="units")  # fmt: skip
        line = torch.arange(int(last.max()) + 1).double()
        right.plot(
            line, growth.rho**line, color=GREY, linestyle="--", label=r"$\rho^{\,\mathrm{updates}}$"
        )
        right.set_yscale("log")
        right.set_xlabel(f"updates of the unit in {len(elapsed)} steps")
        right.set_ylabel(r"$\|\partial h_{t,i}/\partial h_0\|_2$")
        right.set_title("sensitivity to the first state")
        right.legend()
        for axes in (left, right):
            open_axes(axes)
            _set_lower_end(axes, MIN_GRADIENT)
    return figure


def _jacobians(subject: Subject, example: int, steps: int) -> Jacobians:
    if not subject.gated:
        raise NotApplicable(
            f"{subject.path} is a {subject.kind}; Proposition 1 is about layers with gates"
        )
    batch = subject.batch_with(example)
    x = batch.x[example : example + 1, : length_of(batch, example)]
    return jacobians(subject.trained.model, x, 0, steps)


def proposition_seconds(subjects: Sequence[Subject]) -> float:
    """Estimated from a few time steps."""
    few = 3
    return sum(REACH / few * timed(lambda s=subject: _jacobians(s, 0, few)) for subject in subjects)
