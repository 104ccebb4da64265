"""Markdown tables of records: a task's rows, further tests, races."""

import re
import statistics
from pathlib import Path

from surnn.analysis import TimedCurve, seconds_to, timed_curve
from surnn.runs.rate_format import format_opening
from surnn.tasks import load_task
from surnn_recipes import RECIPES, Recipe

from .records import Record

NO_TIME = "no GPU time yet"
IN_PERCENT = ("accuracy", "beat F1", "misses")


# ---------------------------------------------------------------------------- tables


def table(
    family: str, recipes: list[Recipe], records: dict[str, Record], reasons: dict[str, str]
) -> list[str]:
    """The table of a task, and the reasons for rows that were not run."""
    task = load_task(family)
    complete = [recipe for recipe in recipes if recipe.name in records]
    lines = []
    if complete:
        unit = " [%]" if task.metric in IN_PERCENT else ""
        lines += [
            *head("recipe", "the paper's", "paper", f"{task.metric}, ours{unit}", "update rate",
                  "parameters", "training", "steps/s", "memory", "on"),
            *(line(recipe, records[recipe.name], task.higher_is_better) for recipe in complete),
        ]  # fmt: skip
    own = [records[recipe.name] for recipe in complete]
    lines += further(task.metric, own)
    lines += withdrawals(own)
    if own:
        commands = (f"- `{short(record['command'])}`" for record in own)
        lines += ["", "<details><summary>commands</summary>", "", *commands, "", "</details>"]
    missing: dict[str, list[str]] = {}
    for recipe in recipes:
        if recipe.name not in records:
            missing.setdefault(reasons.get(recipe.name, NO_TIME), []).append(
                recipe_with_paper(recipe)
            )
    for reason, names in missing.items():
        lines += ["", f"Not run ({reason}): {', '.join(names)}."]
    return lines[1:] if lines and not lines[0] else lines


def line(recipe: Recipe, record: Record, higher_is_better: bool) -> str:
    """A row of a table."""
    metric, values = record["metric"], record["test"]
    ours = spread(metric, values)
    if recipe.paper is not None and values:
        better = statistics.fmean(values) - recipe.paper
        ours = bold_if((better if higher_is_better else -better) >= 0, ours)
    paper = "" if recipe.paper is None else format_metric(metric, recipe.paper)
    paper_row = ", ".join(part for part in (recipe.paper_table, recipe.paper_name) if part)
    training = format_steps(record)
    if max(record["steps"]) < record["full_steps"]:
        training += f" of {record['full_steps']:,}"
    training += f" steps, {statistics.fmean(record['seconds']):.0f} s"
    if record["initial_options"]:
        options = record["initial_options"].items()
        training += f" (first with {', '.join(f'{name} {value}' for name, value in options)})"
    return row_of(
        recipe.name, paper_row, paper, ours, format_rate(record), f"{record['parameters']:,}",
        training, format_speed(record["steps_per_second"], record["other_runs"]),
        format_memory(record["peak_memory"]), record["device"],
    )  # fmt: skip


def further(metric: str, records: list[Record]) -> list[str]:
    """A table of the metric's parts, such as horizons, and of tests with other options of the
    task."""
    tests = [
        (record["recipe"], test)
        for record in records
        for test in ([{"with": {}, **record}] if record["parts"] else []) + record["other_tests"]
    ]
    if not tests:
        return []
    parts = list(dict.fromkeys(part for _, test in tests for part in test["parts"]))
    lines = ["", *head("the same weights", "tested with", metric, *parts)]
    for name, test in tests:
        numbers = (
            format_metric(metric, test["parts"][p]) if p in test["parts"] else "" for p in parts
        )
        lines.append(row_of(name, overrides(test), spread(metric, test["test"]), *numbers))
    return lines


def withdrawals(records: list[Record]) -> list[str]:
    """A line on each reason for which tests of the rows were withdrawn."""
    by_reason: dict[str, list[str]] = {}
    for record in records:
        for test in record.get("withdrawn", []):
            name = f"{record['recipe']} with {overrides(test)}"
            by_reason.setdefault(test["reason"], []).append(name)
    return [
        line
        for reason, names in by_reason.items()
        for line in ("", f"Withdrawn ({reason}): {', '.join(names)}.")
    ]


def race(
    rows: Path, records: dict[str, Record], names: tuple[str, ...], targets: tuple[float, ...]
) -> list[str]:
    """A table of each seed's seconds to targets; empty unless all rows were run alone on the
    GPU."""
    if any(name not in records or records[name]["other_runs"] for name in names):
        return []
    metric = RECIPES[names[0]]().task.metric
    goals = [format_metric(metric, target) for target in targets]
    lines = ["", *head(f"seconds to a validation {metric} of", *goals)]
    for name in names:
        curves = [timed_curve(seed, metric) for seed in sorted((rows / name).glob("seed*"))]
        lines.append(row_of(name, *(format_times(curves, target) for target in targets)))
    return lines


# ---------------------------------------------------------------------------- cells


def head(*names: str) -> list[str]:
    return [row_of(*names), "|---" * len(names) + "|"]


def row_of(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def bold_if(good: bool, text: str) -> str:
    return f"**{text}**" if good else text


def recipe_with_paper(recipe: Recipe) -> str:
    """A recipe that was not run, and the paper's number for it."""
    if recipe.paper is None:
        return recipe.name
    metric = recipe().task.metric
    return f"{recipe.name} (paper {format_metric(metric, recipe.paper)})"


def overrides(test: Record) -> str:
    """The options in which a further test differs from training."""
    return ", ".join(f"{option} {value}" for option, value in test["with"].items())


def short(command: str) -> str:
    """A command without folders, seeds and ``--no-test``."""
    places = r" --(data|out|seeds|train\.seed) \S+"
    return re.sub(places, "", command.replace(" --no-test", ""))


def format_metric(metric: str, value: float) -> str:
    """A value with as many digits as its metric needs."""
    if metric in IN_PERCENT:
        return f"{100 * value:.2f}"
    return f"{value:.4g}" if value < 0.1 else f"{value:.4f}" if value < 10 else f"{value:.2f}"


def spread(metric: str, values: list[float]) -> str:
    """The mean, and the deviation of several values."""
    if not values:
        return "not tested"
    if len(values) == 1:
        return f"{format_metric(metric, values[0])} (one seed)"
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    if metric in IN_PERCENT:
        return f"{100 * mean:.2f} ± {100 * deviation:.2f} ({len(values)} seeds)"
    return f"{format_metric(metric, mean)} ± {deviation:.1g} ({len(values)} seeds)"


def format_rate(record: Record, kinds: bool = True) -> str:
    """The update rate, with ``kinds`` also by kind of token; or the mean opening of soft gates."""
    if record["openness"] is not None:
        return f"every time step, {format_opening(record['openness'])}"
    if record["update_rate"] is None:
        return ""
    by_kind = ", ".join(
        f"{kind} {rate:.1%}" for kind, rate in record["update_rate_by_kind"].items()
    )
    return f"{record['update_rate']:.1%}" + (f" ({by_kind})" if kinds and by_kind else "")


def format_speed(speeds: list[float | None], other_runs: int) -> str:
    """The mean over seeds, and the number of other runs on the device."""
    known = [one for one in speeds if one is not None]
    if not known:
        return ""
    return f"{statistics.fmean(known):.3g}" + (
        f", with {other_runs} other run{'s' * (other_runs > 1)}" if other_runs else ""
    )


def format_steps(record: Record) -> str:
    """The number of optimizer steps, a range if seeds differ."""
    least, most = min(record["steps"]), max(record["steps"])
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def format_memory(peak: int | None) -> str:
    """The largest allocation of all seeds; empty for CPUs, where it is not measured."""
    return "" if peak is None else f"{peak / 1e9:.1f} GB"


def format_times(curves: list[TimedCurve], target: float) -> str:
    """Seconds to the target in rising order; a dash for runs that never reached it."""
    times = [seconds_to(curve, target) for curve in curves]
    reached = sorted(time for time in times if time is not None)
    if not reached:
        return f"not in {max(curve.seconds[-1] for curve in curves):.0f}"
    return ", ".join([f"{time:.0f}" for time in reached] + ["–"] * (len(times) - len(reached)))
