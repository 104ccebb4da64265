"""How training went, and how far forecasts reach."""

import textwrap
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import cycle
from typing import TYPE_CHECKING, Any

import torch

from ...plotting import COLOURS, GREY, line_styles, new_figure, open_axes
from ...rate_words import is_soft
from ...tasks.base import known_chance
from ...tasks.copying import memoryless_loss
from ...tasks.mackey_glass import VARIANCE, MackeyGlass
from ..curves import Curve, band, learning_curve, timed_curve
from ..forecasts import attractor, forecast
from .subjects import Subject, Unfit, groups, name_all, need_task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES = 16
"""Mackey-Glass series that errors are taken over."""
SHOWN = 400
"""Steps of a series in the plane: more are a tangle."""


def learning_curves(subjects: Sequence[Subject], _example: int) -> "Figure":
    """Loss in training, and the metric in validation with chance's line.

    Runs that have not been validated yet are in the first panel only.
    """
    name_all(subjects, seeds_together=True)
    figure = new_figure(7.2, 3.1)
    left, right = figure.subplots(1, 2)
    task = subjects[0].config.task
    for axes, number, kind in ((left, "loss", "train"), (right, task.metric, "valid")):
        for style, (label, same) in zip(line_styles(), groups(subjects).items(), strict=False):
            there = [s for s in same if kind == "train" or s.validated]
            if there:
                curves = [learning_curve(subject.path, number, kind) for subject in there]
                _curve(axes, curves, style, _of_seeds(label, there))
        open_axes(axes)
        axes.set_xlabel("updates")
        axes.margins(x=0.02)
    left.set_ylabel("training loss")
    right.set_ylabel(f"validation {task.metric}")
    right.set_visible(bool(right.lines))
    names = {subject.options["task.name"] for subject in subjects}
    if len(names) == 1 and right.lines and (level := known_chance(task)) is not None:
        right.axhline(level, color=GREY, linestyle=":", linewidth=1, label="chance")
    lines = {line.get_label(): line for axes in (left, right) for line in axes.lines}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3)
    figure.suptitle(", ".join(sorted(names)))
    return figure


def wall_clock(subjects: Sequence[Subject], _example: int) -> "Figure":
    """The metric in validation against the time that training took, a panel for each task."""
    figure, panels = _panels(subjects, 4.0)
    for axes, (name, some) in panels:
        name_all(some, seeds_together=True)
        metric = some[0].config.task.metric
        for style, (label, same) in zip(line_styles(), groups(some).items(), strict=False):
            told = textwrap.fill(_of_seeds(label, same), 60)  # longer ones leave no room for axes
            for number, subject in enumerate(same):
                found = timed_curve(subject.path, metric)
                timed = found.step > 0  # a run may be evaluated before its first update
                axes.plot(found.seconds[timed], found.value[timed], **style, marker="o",
                          markersize=2.5, label=None if number else told)  # fmt: skip
        axes.set_title(name)
        axes.set_xlabel("seconds of training")
        axes.set_ylabel(f"validation {metric}")
        _log_ticks(axes)
        open_axes(axes)
        columns = 2 if max(map(len, groups(some))) <= 40 else 1
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=columns)
    return figure


def metric_by_rate(subjects: Sequence[Subject], _example: int) -> "Figure":
    """The metric on the test set against the share of steps that update, a panel for each task.

    Runs that differ in nothing but the rate they were asked for are joined; seeds are one point,
    with their standard deviation. Soft gates are never closed, and update at every step.
    """
    figure, panels = _panels(subjects, 3.6)
    for axes, (name, some) in panels:
        metric = some[0].config.task.metric
        lines = _by_rate(some)
        for style, marker, (label, points) in zip(
            line_styles(), cycle("osD^v"), lines.items(), strict=False
        ):
            found = sorted(_point(seeds, metric) for seeds in points)
            rate, mean, spread = torch.tensor(found, dtype=torch.float64).T.numpy()
            bars = spread if spread.any() else None
            axes.errorbar(100 * rate, mean, bars, **style, marker=marker, markersize=4, capsize=2,
                          label=_of_seeds(label, *points))  # fmt: skip
        axes.set_title(name)
        axes.set_xlabel("updates [% of steps]")
        axes.set_ylabel(f"test {metric}")
        _log_ticks(axes)
        axes.set_xlim(right=115)
        open_axes(axes)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return figure


def _by_rate(subjects: Sequence[Subject]) -> dict[str, list[list[Subject]]]:
    """The seeds of each point of each line."""
    asked = ("gate.rate", "gate.target_rate", "train.rate_penalty")
    lines: dict[str, dict[str, list[Subject]]] = {}
    for subject in subjects:
        if subject.tested is None:
            raise Unfit(
                f"{subject.path} has not been tested: surnn eval {subject.path} --split test"
            )
        options = dict(sorted(subject.options.items()))
        seed = options.pop("train.seed")
        del options["train.device"]
        line = repr({name: value for name, value in options.items() if name not in asked})
        point = lines.setdefault(line, {}).setdefault(repr(options), [])
        if same := [other for other in point if other.options["train.seed"] == seed]:
            raise Unfit(f"{subject.path} is the same run as {same[0].path}: leave one of them out")
        point.append(subject)
    first = [next(iter(points.values()))[0] for points in lines.values()]
    name_all(first, *asked)
    return {
        subject.label: list(points.values())
        for subject, points in zip(first, lines.values(), strict=True)
    }


def _point(seeds: Sequence[Subject], metric: str) -> tuple[float, ...]:
    """Update rate, mean and deviation."""
    tests = [subject.tested or {} for subject in seeds]
    soft = is_soft(seeds[0].config)
    rates = [sum(t["update_rate"]) / len(t["update_rate"]) if "update_rate" in t and not soft
             else 1.0 for t in tests]  # fmt: skip
    values = torch.tensor([test[metric] for test in tests], dtype=torch.float64)
    spread = values.std().item() if len(values) > 1 else 0.0
    return sum(rates) / len(rates), values.mean().item(), spread


def _panels(
    subjects: Sequence[Subject], height: float
) -> tuple["Figure", Iterable[tuple["Axes", tuple[str, list[Subject]]]]]:
    """A figure with a panel for each task."""
    tasks: dict[str, list[Subject]] = {}
    for subject in subjects:
        tasks.setdefault(subject.options["task.name"], []).append(subject)
    figure = new_figure(1.6 + 4.0 * len(tasks), height)
    axes = figure.subplots(1, len(tasks), squeeze=False)[0]
    return figure, zip(axes, tasks.items(), strict=True)


def _log_ticks(axes: "Axes") -> None:
    """A logarithmic axis in plain numbers."""
    axes.set_xscale("log", subs=())
    axes.xaxis.set_major_locator(import_module("matplotlib.ticker").LogLocator(subs=(1, 2, 3, 5)))
    axes.xaxis.set_major_formatter("{x:g}")


def copying_loss(subjects: Sequence[Subject], _example: int) -> "Figure":
    """Loss of all positions while copying is learned, beside that of one who remembers nothing."""
    need_task(subjects, "copying")
    name_all(subjects, seeds_together=True)
    figure = new_figure(5.6, 3.4)
    axes = figure.add_subplot()
    for style, (label, same) in zip(line_styles(), groups(subjects).items(), strict=False):
        curves = [learning_curve(s.path, "loss of all positions", "valid") for s in same]
        _curve(axes, curves, style, _of_seeds(label, same))
    shapes = {(s.options["task.delay"], s.options["task.symbols"]) for s in subjects}
    for delay, symbols in sorted(shapes):
        level = memoryless_loss(delay, symbols)
        axes.axhline(level, color=GREY, linestyle="--", linewidth=1)
        axes.annotate(f"memoryless, delay {delay}: {level:.4f}", (0.99, level), (0, 3),
                      xycoords=("axes fraction", "data"), textcoords="offset points",
                      ha="right", va="bottom", fontsize=8, color=GREY)  # fmt: skip
    axes.set_yscale("log")
    axes.set_xlabel("updates")
    axes.set_ylabel("validation loss, all positions [nats]")
    axes.set_title("Copying Memory")
    axes.margins(x=0.02)
    open_axes(axes)
    axes.legend(loc="lower left")
    return figure


def forecast_horizon(subjects: Sequence[Subject], _example: int) -> "Figure":
    """Test error against how far ahead, beside that of one who always says the mean."""
    need_task(subjects, "mackey_glass")
    name_all(subjects, "task.horizons", seeds_together=True)
    figure = new_figure(5.6, 3.4)
    axes = figure.add_subplot()
    errors: dict[str, dict[int, list[float]]] = {}
    tested = all(subject.tested is not None for subject in subjects)
    for subject in subjects:
        mine = errors.setdefault(subject.label, {})
        for horizon, error in (_tested_errors if tested else _errors)(subject).items():
            mine.setdefault(horizon, []).append(error)
    for style, (label, by_horizon) in zip(line_styles(), errors.items(), strict=False):
        horizons = sorted(by_horizon)
        values = [torch.tensor(by_horizon[h]) for h in horizons]
        means = torch.stack([v.mean() for v in values])
        spread = torch.stack([v.std(correction=min(1, len(v) - 1)) for v in values])
        axes.plot(horizons, means, **style, marker="o", markersize=4, label=label)
        if max(len(v) for v in values) > 1:
            low, high = means - spread, means + spread
            axes.fill_between(horizons, low, high, color=style["color"], alpha=0.2, linewidth=0)
    axes.axhline(VARIANCE, color=GREY, linestyle=":", linewidth=1, label="always the mean")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("steps ahead")
    axes.set_ylabel("test mean square error")
    axes.set_title("Mackey-Glass, forecast of unseen trajectories")
    open_axes(axes)
    axes.legend()
    return figure


def _tested_errors(subject: Subject) -> dict[int, float]:
    """By horizon, of all test series."""
    tested, horizons = subject.tested or {}, subject.config.task.horizons
    return {h: tested["mse" if len(horizons) == 1 else f"mse at {h}"] for h in horizons}


def _errors(subject: Subject) -> dict[int, float]:
    """By horizon, of some test series."""
    task: MackeyGlass = subject.task  # type: ignore[assignment]
    found = forecast(subject.trained.model, task, subject.batch(SERIES, "test"))
    return dict(zip(found.horizons, found.error.tolist(), strict=True))


def attractors(subjects: Sequence[Subject], example: int) -> "Figure":
    """Forecasts in the plane of x(t) and x(t - 17), over what really came."""
    need_task(subjects, "mackey_glass")
    name_all(subjects, "task.horizons")
    found = []
    for subject in subjects:
        task: MackeyGlass = subject.task  # type: ignore[assignment]
        found.append(forecast(subject.trained.model, task, subject.batch_with(example, "test")))
    columns = max(len(f.horizons) for f in found)
    figure = new_figure(0.6 + 2.1 * columns, 0.5 + 2.0 * len(found))
    grid = figure.subplots(len(found), columns, squeeze=False, sharex=True, sharey=True)
    for row, subject, shown, colour in zip(grid, subjects, found, cycle(COLOURS), strict=False):
        for axes, horizon, k in zip(row, shown.horizons, range(columns), strict=False):
            axes.plot(*attractor(shown.true[example, :SHOWN, k]), color="#bbbbbb", linewidth=0.6,
                      label="true")  # fmt: skip
            axes.plot(*attractor(shown.made[example, :SHOWN, k]), color=colour, linewidth=0.6,
                      label=f"{subject.label}'s forecast")  # fmt: skip
            axes.set_title(f"{horizon} steps ahead")
            open_axes(axes, grid=False)
        for axes in row[len(shown.horizons) :]:
            axes.set_visible(False)
        row[0].set_ylabel("$x(t)$")
    for axes in grid[-1]:
        axes.set_xlabel("$x(t - 17)$")
    shown = {line.get_label(): line for axes in grid[:, 0] for line in axes.lines}
    lines = figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4)
    for line in lines.get_lines():
        line.set_linewidth(2)
    return figure


def _of_seeds(label: str, *points: Sequence[Any]) -> str:
    """What there is, and how many seeds of it, at each point if there are several."""
    least, most = min(map(len, points)), max(map(len, points))
    several = f"{most} seeds" if least == most else f"{least} to {most} seeds"
    return label if most == 1 else f"{label} ({several})"


def _curve(axes: "Axes", curves: Sequence[Curve], style: dict[str, Any], label: str) -> None:
    found = band(curves)
    marker = "o" if len(found.step) < 3 else None
    axes.plot(found.step, found.mean, **style, label=label, marker=marker, markersize=4)
    if len(curves) > 1:
        low, high = found.mean - found.deviation, found.mean + found.deviation
        axes.fill_between(found.step, low, high, color=style["color"], alpha=0.2, linewidth=0)
