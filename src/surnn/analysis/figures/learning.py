"""Learning curves, metrics, and forecasts."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import cycle
from typing import TYPE_CHECKING, Any

import torch

from surnn.models.model import SequenceModel
from surnn.plotting import COLOURS, GREY, line_styles, new_figure, open_axes
from surnn.runs.folder import RunFolder
from surnn.runs.rate_format import is_soft
from surnn.tasks.base import known_chance
from surnn.tasks.copying import memoryless_loss
from surnn.tasks.mackey_glass import VARIANCE, MackeyGlass

from ..curves import Curve, band, learning_curve, timed_curve
from ..forecasts import attractor, forecast
from ..work import step_work
from .subjects import NotApplicable, Subject, groups, name_all, need_task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES = 16
"""Number of Mackey-Glass series for the error."""
SHOWN = 400
"""Time steps of a series in the plane; more would overlap too much."""


def learning_curves(subjects: Sequence[Subject], _example: int) -> "Figure":
    """Training loss, and validation metric with a line for chance.

    Runs without a validation are in the first panel only.
    """
    name_all(subjects, seeds_together=True)
    figure = new_figure(7.2, 3.1)
    left, right = figure.subplots(1, 2)
    task = subjects[0].config.task
    for axes, number, kind in ((left, "loss", "train"), (right, task.metric, "valid")):
        for style, (label, same) in zip(line_styles(), groups(subjects).items(), strict=False):
            shown = [s for s in same if kind == "train" or s.validated]
            if shown:
                curves = [learning_curve(subject.path, number, kind) for subject in shown]
                _curve(axes, curves, style, _with_seeds(label, shown))
        open_axes(axes)
        axes.set_xlabel("optimizer steps")
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
    """The validation metric against training time, a panel for each task."""
    figure, panels = _panels(subjects, 4.0)
    for axes, (name, some) in panels:
        name_all(some, seeds_together=True)
        metric = some[0].config.task.metric
        for style, (label, same) in zip(line_styles(), groups(some).items(), strict=False):
            text = textwrap.fill(
                _with_seeds(label, same), 60
            )  # longer lines leave no room for axes
            for number, subject in enumerate(same):
                curve = timed_curve(subject.path, metric)
                timed = curve.step > 0  # a run may be evaluated before its first optimizer step
                axes.plot(curve.seconds[timed], curve.value[timed], **style, marker="o",
                          markersize=2.5, label=None if number else text)  # fmt: skip
        axes.set_title(name)
        axes.set_xlabel("seconds of training")
        axes.set_ylabel(f"validation {metric}")
        _log_ticks(axes)
        open_axes(axes)
        columns = 2 if max(map(len, groups(some))) <= 40 else 1
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=columns)
    return figure


def metric_by_rate(subjects: Sequence[Subject], _example: int) -> "Figure":
    """The test metric against the update rate, a panel for each task.

    A line joins runs that differ only in their target rate, or in what else trades quality for
    work. Seeds are one point, with their standard deviation. Soft gates are never closed, so they
    count as updates at every time step.
    """
    return _metric_by(subjects, _rate, 100, "update rate [% of time steps]")


def metric_by_work(subjects: Sequence[Subject], _example: int) -> "Figure":
    """The test metric against the multiply-accumulates of a time step, otherwise the same."""
    return _metric_by(subjects, _macs, 1e-3, "thousand multiply-accumulates per time step")


def _metric_by(
    subjects: Sequence[Subject], number: Callable[[Subject], float], scale: float, label_x: str
) -> "Figure":
    figure, panels = _panels(subjects, 3.6)
    for axes, (name, some) in panels:
        metric = some[0].config.task.metric
        lines = _by_rate(some)
        for style, marker, (label, points) in zip(
            line_styles(), cycle("osD^v"), lines.items(), strict=False
        ):
            rows = sorted(_point(seeds, metric, number) for seeds in points)
            rate, mean, spread = torch.tensor(rows, dtype=torch.float64).T.numpy()
            bars = spread if spread.any() else None
            axes.errorbar(scale * rate, mean, bars, **style, marker=marker, markersize=4, capsize=2,
                          label=_with_seeds(label, *points))  # fmt: skip
        axes.set_title(name)
        axes.set_xlabel(label_x)
        axes.set_ylabel(f"test {metric}")
        _log_ticks(axes)
        axes.set_xlim(right=1.15 * axes.dataLim.x1)
        open_axes(axes)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    return figure


def _by_rate(subjects: Sequence[Subject]) -> dict[str, list[list[Subject]]]:
    """The seeds of each point of each line."""
    rates = (
        "gate.rate", "gate.target_rate", "train.rate_penalty", "model.threshold", "model.budget",
    )  # fmt: skip
    lines: dict[str, dict[str, list[Subject]]] = {}
    for subject in subjects:
        if subject.tested is None:
            raise NotApplicable(
                f"{subject.path} has not been tested: surnn eval {subject.path} --split test"
            )
        options = dict(sorted(subject.options.items()))
        seed = options.pop("train.seed")
        del options["train.device"]
        line = repr({name: value for name, value in options.items() if name not in rates})
        point = lines.setdefault(line, {}).setdefault(repr(options), [])
        if same := [other for other in point if other.options["train.seed"] == seed]:
            raise NotApplicable(
                f"{subject.path} is the same run as {same[0].path}: leave one of them out"
            )
        point.append(subject)
    first = [next(iter(points.values()))[0] for points in lines.values()]
    name_all(first, *rates)
    return {
        subject.label: list(points.values())
        for subject, points in zip(first, lines.values(), strict=True)
    }


def _point(
    seeds: Sequence[Subject], metric: str, number: Callable[[Subject], float]
) -> tuple[float, ...]:
    """The mean of the number, and mean and standard deviation of the metric."""
    tests = [subject.tested or {} for subject in seeds]
    numbers = [number(subject) for subject in seeds]
    values = torch.tensor([test[metric] for test in tests], dtype=torch.float64)
    spread = values.std().item() if len(values) > 1 else 0.0
    return sum(numbers) / len(numbers), values.mean().item(), spread


def _rate(subject: Subject) -> float:
    """The update rate in the test; 1 without gates, or with soft ones."""
    rates = (subject.tested or {}).get("update_rate")
    return 1.0 if rates is None or is_soft(subject.config) else sum(rates) / len(rates)


def _macs(subject: Subject) -> float:
    """Multiply-accumulates per time step in the test."""
    rates = (subject.tested or {}).get("update_rate", ())
    if is_soft(subject.config):
        rates = [1.0] * len(rates)
    config, task = subject.config, subject.config.task
    model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps)
    return step_work(model, rates).done


def metric_by_length(subjects: Sequence[Subject], _example: int) -> "Figure":
    """The test metric of the same weights on sequences of several lengths.

    Points are means over seeds. Tests that differ in other options too are hollow.
    """
    need_task(subjects, subjects[0].options["task.name"])
    name_all(subjects, "task.growing", seeds_together=True)
    figure = new_figure(6.4, 3.4)
    axes = figure.add_subplot()
    hollow: dict[str, Any] = {"markerfacecolor": "none", "linestyle": "none"}
    others: list[str] = []
    for style, marker, (label, same) in zip(
        line_styles(), cycle("osD^v"), groups(subjects).items(), strict=False
    ):
        points: dict[str, dict[int, list[float]]] = {"": {}}
        for subject in same:
            for other, length, value in _tests_by_length(subject):
                points.setdefault(other, {}).setdefault(length, []).append(value)
        for other, values in points.items():
            lengths = sorted(values)
            means = [sum(values[length]) / len(values[length]) for length in lengths]
            look = {**style, "marker": marker, **(hollow if other else {})}
            name = None if other else _with_seeds(label, same)
            axes.plot(lengths, means, **look, markersize=5, label=name)
        others += [other for other in points if other and other not in others]
    task = subjects[0].config.task
    for other in others:
        axes.plot([], [], "o", color=GREY, **hollow, label=f"the same weights, {other}")
    if (level := known_chance(task)) is not None:
        axes.axhline(level, color=GREY, linestyle=":", linewidth=1, label="chance")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("time steps of the test")
    axes.set_ylabel(f"test {task.metric}")
    axes.set_title(task.name)
    open_axes(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _tests_by_length(subject: Subject) -> list[tuple[str, int, float]]:
    """Of each test: options that do not change the length, time steps, and the metric."""
    if subject.tested is None:
        raise NotApplicable(
            f"{subject.path} has not been tested: surnn eval {subject.path} --split test"
        )
    task, found = subject.config.task, []
    for line in RunFolder.open(subject.path).evaluations():
        if (line["split"], line["checkpoint"]) != ("test", subject.checkpoint):
            continue
        changes = {name.removeprefix("task."): v for name, v in line["overrides"].items()}
        other = [
            f"{n} {v}" for n, v in changes.items() if replace(task, **{n: v}).steps == task.steps
        ]
        tested = replace(task, **changes)
        found.append((", ".join(other), tested.steps, line["metrics"][task.metric]))
    return found


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
    """A logarithmic x axis with plain numbers."""
    axes.set_xscale("log", subs=())
    axes.xaxis.set_major_locator(import_module("matplotlib.ticker").LogLocator(subs=(1, 2, 3, 5)))
    axes.xaxis.set_major_formatter("{x:g}")


def copying_loss(subjects: Sequence[Subject], _example: int) -> "Figure":
    """Loss of all positions during training, with the loss of a model without memory."""
    need_task(subjects, "copying")
    name_all(subjects, seeds_together=True)
    figure = new_figure(5.6, 3.4)
    axes = figure.add_subplot()
    for style, (label, same) in zip(line_styles(), groups(subjects).items(), strict=False):
        curves = [learning_curve(s.path, "loss of all positions", "valid") for s in same]
        _curve(axes, curves, style, _with_seeds(label, same))
    shapes = {(s.options["task.delay"], s.options["task.symbols"]) for s in subjects}
    for delay, symbols in sorted(shapes):
        level = memoryless_loss(delay, symbols)
        axes.axhline(level, color=GREY, linestyle="--", linewidth=1)
        axes.annotate(f"memoryless, delay {delay}: {level:.4f}", (0.99, level), (0, 3),
                      xycoords=("axes fraction", "data"), textcoords="offset points",
                      ha="right", va="bottom", fontsize=8, color=GREY)  # fmt: skip
    axes.set_yscale("log")
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel("validation loss, all positions [nats]")
    axes.set_title("Copying Memory")
    axes.margins(x=0.02)
    open_axes(axes)
    axes.legend(loc="lower left")
    return figure


def forecast_horizon(subjects: Sequence[Subject], _example: int) -> "Figure":
    """Test error against the forecast horizon, with the error of a constant forecast."""
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
    axes.axhline(VARIANCE, color=GREY, linestyle=":", linewidth=1, label="constant mean")
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
    """Errors by horizon over all test series."""
    tested, horizons = subject.tested or {}, subject.config.task.horizons
    return {h: tested["mse" if len(horizons) == 1 else f"mse at {h}"] for h in horizons}


def _errors(subject: Subject) -> dict[int, float]:
    """Errors by horizon over some test series."""
    task: MackeyGlass = subject.task  # type: ignore[assignment]
    result = forecast(subject.trained.model, task, subject.batch(SERIES, "test"))
    return dict(zip(result.horizons, result.error.tolist(), strict=True))


def attractors(subjects: Sequence[Subject], example: int) -> "Figure":
    """Forecasts in the plane of x(t) and x(t - 17), over the true values."""
    need_task(subjects, "mackey_glass")
    name_all(subjects, "task.horizons")
    forecasts = []
    for subject in subjects:
        task: MackeyGlass = subject.task  # type: ignore[assignment]
        forecasts.append(forecast(subject.trained.model, task, subject.batch_with(example, "test")))
    columns = max(len(f.horizons) for f in forecasts)
    figure = new_figure(0.6 + 2.1 * columns, 0.5 + 2.0 * len(forecasts))
    grid = figure.subplots(len(forecasts), columns, squeeze=False, sharex=True, sharey=True)
    for row, subject, shown, colour in zip(grid, subjects, forecasts, cycle(COLOURS), strict=False):
        for axes, horizon, k in zip(row, shown.horizons, range(columns), strict=False):
            axes.plot(*attractor(shown.true[example, :SHOWN, k]), color="#bbbbbb", linewidth=0.6,
                      label="true")  # fmt: skip
            axes.plot(*attractor(shown.predicted[example, :SHOWN, k]), color=colour, linewidth=0.6,
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


def _with_seeds(label: str, *points: Sequence[Any]) -> str:
    """The label with the number of seeds at each point, if there are several."""
    least, most = min(map(len, points)), max(map(len, points))
    several = f"{most} seeds" if least == most else f"{least} to {most} seeds"
    return label if most == 1 else f"{label} ({several})"


def _curve(axes: "Axes", curves: Sequence[Curve], style: dict[str, Any], label: str) -> None:
    spread = band(curves)
    marker = "o" if len(spread.step) < 3 else None
    axes.plot(spread.step, spread.mean, **style, label=label, marker=marker, markersize=4)
    if len(curves) > 1:
        low, high = spread.mean - spread.deviation, spread.mean + spread.deviation
        axes.fill_between(spread.step, low, high, color=style["color"], alpha=0.2, linewidth=0)
