"""RESULTS.md: tables of records, what they say of the paper's claims, and figures."""

import json
import re
import statistics
from pathlib import Path
from typing import Any

from results_figures import FIGURES, RACES

from surnn.analysis import TimedCurve, seconds_to, timed_curve
from surnn.bench.engine import total
from surnn.rate_words import opened_by
from surnn.recipes import RECIPES, Recipe
from surnn.tasks import load_task

ROOT = Path(__file__).resolve().parent.parent
NO_TIME = "no GPU time yet"
IN_PERCENT = ("accuracy", "beat F1")
Record = dict[str, Any]


def race(
    rows: Path, records: dict[str, Record], names: tuple[str, ...], targets: tuple[float, ...]
) -> list[str]:
    """Seconds of training until a target was reached, by each seed; nothing until all rows have
    been run with the GPU to themselves."""
    if any(name not in records or records[name]["beside"] for name in names):
        return []
    metric = RECIPES[names[0]]().task.metric
    reach = [told(metric, target) for target in targets]
    lines = ["", *head(f"seconds to a validation {metric} of", *reach)]
    for name in names:
        curves = [timed_curve(seed, metric) for seed in sorted((rows / name).glob("seed*"))]
        lines.append(row_of(name, *(told_times(curves, target) for target in targets)))
    return lines


def told_times(curves: list[TimedCurve], target: float) -> str:
    """When each of them was there, the first one first; never is a dash."""
    found = [seconds_to(curve, target) for curve in curves]
    times = sorted(time for time in found if time is not None)
    if not times:
        return f"not in {max(curve.seconds[-1] for curve in curves):.0f}"
    return ", ".join([f"{time:.0f}" for time in times] + ["–"] * (len(found) - len(times)))


HEADLINES = (
    ("psMNIST step by step, 2 x 256", "psmnist-stepwise", "psmnist-stepwise-gru"),
    ("... with Elman RNNs", "psmnist-stepwise-surnn", "psmnist-stepwise-rnn"),
    ("... with LSTMs", "psmnist-stepwise-sulstm", "psmnist-stepwise-lstm"),
    ("Copying Memory, delay 100", "copying-100", "copying-100-gru"),
    ("... delay 5000, Elman RNNs", "copying-5000-surnn", "copying-5000-rnn"),
    ("psMNIST in one pass, images shifted", "psmnist-shifted", None),
    ("sMNIST, the same", "smnist-shifted", None),
    ("sequential CIFAR-10, crops and flips", "scifar", None),
    ("Long Range Arena: Image, grey", "lra-image", None),
    ("... Text, with one layer that updates at every step", "lra-text-open", None),
    ("... ListOps, the same, short expressions first", "lra-listops-open", None),
    ("... Pathfinder, short lines first", "lra-pathfinder", None),
    ("psMNIST, spiking neurons", "spiking-psmnist", None),
    ("spoken digits in noise, gates that hear them", "spoken-digits-rate-0.03",
     "spoken-digits-gru"),
)  # fmt: skip
"""Of the README: a row, and what it is beside, which has no gates, if that was trained as long."""
PAPERS = {
    "lra-text-open": "lra-text", "lra-listops-open": "lra-listops", "psmnist-shifted": "psmnist",
    "smnist-shifted": "smnist",
}  # fmt: skip
"""The row that has the paper's number where a headline's own has none."""
MARKS = ("<!-- results: python tools/results.py write -->", "<!-- /results -->")


def with_headlines(readme: str, rows: Path) -> str:
    """The README with these rows between its two marks."""
    before, begin, rest = readme.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not begin or not end:
        raise SystemExit(f"README.md must have the lines {MARKS[0]} and {MARKS[1]}")
    lines = head("test accuracy [%]", "selective updates", "updates at", "parameters",
                 "without gates", "parameters", "paper's selective")  # fmt: skip
    records = records_of(rows)
    for about, *names in HEADLINES:
        shown = [row for row in names if row is not None]
        if missing := [row for row in shown if not records.get(row, {}).get("test")]:
            raise SystemExit(f"the README shows {missing[0]}, which has not been run and tested")
        found = [records[row] for row in shown]
        best = max(statistics.fmean(each["test"]) for each in found)
        cells = []
        for each in found:
            better = len(found) > 1 and statistics.fmean(each["test"]) == best
            test = bold_if(better, spread("accuracy", each["test"]))
            cells.append((test, f"{each['parameters']:,}"))
        (mine, size), other = cells[0], cells[1] if cells[1:] else ("", "")
        paper = RECIPES[PAPERS.get(shown[0], shown[0])].paper
        lines.append(row_of(
            about, mine, told_rate(found[0], kinds=False), size, *other,
            "" if paper is None else told("accuracy", paper),
        ))  # fmt: skip
    return "\n".join((before + begin, *lines, end + after))


def records_of(rows: Path) -> dict[str, Record]:
    """Every row that was run."""
    found = sorted(rows.glob("*/record.json"))
    return {path.parent.name: json.loads(path.read_text()) for path in found}


def page(rows: Path) -> str:
    """All of it."""
    records = records_of(rows)
    claims = rows.parent / "claims.md"
    lines = [
        "# Results",
        "",
        "Made by `python tools/results.py write` from the records in `results/rows/`, which hold",
        "each run's configuration, environment, metrics and evaluations. The best weights of",
        "validation, on the test set, once. ± is the standard deviation over seeds; **bold** is at",
        "least as good as the paper's number for that row, also where the row is there to be worse",
        "(ablations, layers without gates). Seconds are of training with its evaluations,",
        "updates/s without them, of full size where sequences grow; memory is the most that torch",
        "had allocated on the GPU. Commands, below each table, are without the folders of data and",
        "runs, and of the first seed; the whole of each is in its record, with the commit; a +",
        "after that says that there were changes which were committed later.",
    ]
    if claims.exists():
        lines += ["", filled(claims.read_text(), records).rstrip()]
    reasons = json.loads((rows / "not_run.json").read_text())
    for family in dict.fromkeys(recipe().task.name for recipe in RECIPES.values()):
        recipes = [recipe for recipe in RECIPES.values() if recipe().task.name == family]
        lines += ["", f"## {family}", "", *table(family, recipes, records, reasons)]
        for names, targets in RACES:
            if RECIPES[names[0]]().task.name == family:
                lines += race(rows, records, names, targets)
        for figure in FIGURES:
            if figure.task == family and figure.runs(rows):
                lines += figure.shown()
    lines += [
        "",
        *run_time(ROOT / "results" / "gpu_bench"),
        "",
        *latency(ROOT / "results" / "engine_bench"),
    ]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------------------- claims

_PLACE = re.compile(r"\{([a-z0-9.-]+)(?::([a-z0-9._ ]+))?\}")


def filled(text: str, records: dict[str, Record]) -> str:
    """A text with ``{row}`` replaced by what was measured, ``{row:task.body 4096}`` by what the
    weights have on that version of the task, ``{row:rate}`` by its update rate, ``{row:KIND}`` by
    that on one kind of step, ``{row:speed}`` by its updates a second and ``{row:updates}`` by all
    of them: what is measured is not typed by hand."""

    def number(place: re.Match[str]) -> str:
        row, what = place.group(1), place.group(2)
        if row not in records:
            raise SystemExit(f"results/claims.md speaks of {row}, which has not been run")
        found = records[row]
        elsewhere = {changed(test): test["test"] for test in found["elsewhere"]}
        if what is None or what in elsewhere:
            values = found["test"] if what is None else elsewhere[what]
            if not values:
                raise SystemExit(f"results/claims.md speaks of {row}, which has not been tested")
            unit = " %" if found["metric"] in IN_PERCENT else ""
            return told(found["metric"], statistics.fmean(values)) + unit
        if what == "speed" and None not in found["updates_per_second"]:
            return f"{statistics.fmean(found['updates_per_second']):.3g}"
        if what == "updates":
            return told_updates(found)
        shares = {"rate": found["update_rate"], **found["update_rate_by_kind"]}
        if shares.get(what) is None:
            raise SystemExit(f"results/claims.md asks for {what!r} of {row}, which has no such")
        return f"{100 * shares[what]:.1f} %"

    return _PLACE.sub(number, text)


# ---------------------------------------------------------------------------- tables


def table(
    family: str, recipes: list[Recipe], records: dict[str, Record], reasons: dict[str, str]
) -> list[str]:
    """A task's rows, and why there are not more of them."""
    task = load_task(family)
    shown = [recipe for recipe in recipes if recipe.name in records]
    lines = []
    if shown:
        unit = " [%]" if task.metric in IN_PERCENT else ""
        lines += [
            *head("recipe", "the paper's", "paper", f"{task.metric}, ours{unit}", "updates at",
                  "parameters", "training", "updates/s", "memory", "on"),
            *(line(recipe, records[recipe.name], task.higher_is_better) for recipe in shown),
        ]  # fmt: skip
    found = [records[recipe.name] for recipe in shown]
    lines += further(task.metric, found)
    if found:
        commands = (f"- `{short(record['command'])}`" for record in found)
        lines += ["", "<details><summary>commands</summary>", "", *commands, "", "</details>"]
    missing: dict[str, list[str]] = {}
    for recipe in recipes:
        if recipe.name not in records:
            missing.setdefault(reasons.get(recipe.name, NO_TIME), []).append(named(recipe))
    for reason, names in missing.items():
        lines += ["", f"Not run ({reason}): {', '.join(names)}."]
    return lines[1:] if lines and not lines[0] else lines


def head(*names: str) -> list[str]:
    return [row_of(*names), "|---" * len(names) + "|"]


def bold_if(good: bool, text: str) -> str:
    return f"**{text}**" if good else text


def row_of(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def named(recipe: Recipe) -> str:
    """A recipe that was not run, with what it would have been compared to."""
    if recipe.paper is None:
        return recipe.name
    metric = recipe().task.metric
    return f"{recipe.name} (paper {told(metric, recipe.paper)})"


def line(recipe: Recipe, found: Record, higher_is_better: bool) -> str:
    """A row of a table."""
    metric, values = found["metric"], found["test"]
    ours = spread(metric, values)
    if recipe.paper is not None and values:
        better = statistics.fmean(values) - recipe.paper
        ours = bold_if((better if higher_is_better else -better) >= 0, ours)
    theirs = "" if recipe.paper is None else told(metric, recipe.paper)
    called = ", ".join(part for part in (recipe.where, recipe.called) if part)
    done = told_updates(found)
    if max(found["updates"]) < found["updates_of_the_full_recipe"]:
        done += f" of {found['updates_of_the_full_recipe']:,}"
    done += f" updates, {statistics.fmean(found['seconds']):.0f} s"
    if found["begun_with"]:
        told_first = ", ".join(f"{name} {value}" for name, value in found["begun_with"].items())
        done += f" (begun with {told_first})"
    return row_of(
        recipe.name, called, theirs, ours, told_rate(found), f"{found['parameters']:,}", done,
        told_speed(found["updates_per_second"], found["beside"]),
        told_memory(found["peak_memory"]), found["device"],
    )  # fmt: skip


def further(metric: str, found: list[Record]) -> list[str]:
    """What the metric is the mean of, such as horizons, and what the same weights do on other
    versions of the task."""
    tests = [
        (record["recipe"], test)
        for record in found
        for test in ([{"with": {}, **record}] if record["parts"] else []) + record["elsewhere"]
    ]
    if not tests:
        return []
    parts = list(dict.fromkeys(part for _, test in tests for part in test["parts"]))
    lines = ["", *head("the same weights", "tested with", metric, *parts)]
    for name, test in tests:
        numbers = (told(metric, test["parts"][p]) if p in test["parts"] else "" for p in parts)
        lines.append(row_of(name, changed(test), spread(metric, test["test"]), *numbers))
    return lines


def changed(test: Record) -> str:
    """What a further test has that is not as in training."""
    return ", ".join(f"{option} {value}" for option, value in test["with"].items())


def short(command: str) -> str:
    """A command without folders and seeds, whenever its run was tested."""
    places = r" --(data|out|seeds|train\.seed) \S+"
    return re.sub(places, "", command.replace(" --no-test", ""))


def told(metric: str, value: float) -> str:
    """A number of a metric."""
    if metric in IN_PERCENT:
        return f"{100 * value:.2f}"
    return f"{value:.4g}" if value < 0.1 else f"{value:.4f}" if value < 10 else f"{value:.2f}"


def spread(metric: str, values: list[float]) -> str:
    """Mean, and deviation where there are several."""
    if not values:
        return "not tested"
    if len(values) == 1:
        return f"{told(metric, values[0])} (one seed)"
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    if metric in IN_PERCENT:
        return f"{100 * mean:.2f} ± {100 * deviation:.2f} ({len(values)} seeds)"
    return f"{told(metric, mean)} ± {deviation:.1g} ({len(values)} seeds)"


def told_rate(found: Record, kinds: bool = True) -> str:
    """How often units update, on which kinds of steps if need be; or how far sigmoids open."""
    if found["openness"] is not None:
        return f"every step, {opened_by(found['openness'])}"
    if found["update_rate"] is None:
        return ""
    by_kind = ", ".join(f"{kind} {rate:.1%}" for kind, rate in found["update_rate_by_kind"].items())
    return f"{found['update_rate']:.1%} of steps" + (f" ({by_kind})" if kinds and by_kind else "")


def told_speed(speeds: list[float | None], beside: int) -> str:
    """The mean over seeds, and who else was there."""
    known = [one for one in speeds if one is not None]
    if not known:
        return ""
    return f"{statistics.fmean(known):.3g}" + (
        f", beside {beside} other{'s' * (beside > 1)}" if beside else ""
    )


def told_updates(found: Record) -> str:
    """How many were made, by all seeds."""
    least, most = min(found["updates"]), max(found["updates"])
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def told_memory(peak: int | None) -> str:
    """The largest of all seeds, as torch allocates it; only GPUs tell."""
    return "" if peak is None else f"{peak / 1e9:.1f} GB"


# ---------------------------------------------------------------------------- benchmarks


def run_time(folder: Path) -> list[str]:
    """A training step against its length: the paper's figure of run time, and ours."""
    result = json.loads((folder / "result.json").read_text())
    records = [r for r in result["records"] if r["group"] == "length" and not r["error"]]
    about, shape = result["environment"], records[0]
    names = list(dict.fromkeys((r["contestant"], r["mode"]) for r in records))
    found = {(r["T"], r["contestant"], r["mode"]): r["fwd_bwd_ms"] for r in records}
    steps = sorted({r["T"] for r in records})
    turns = [len(r["fwd_bwd_turns_ms"]) for r in records]
    lines = [
        "## Run time of a training step",
        "",
        f"One layer of {shape['H']} units, {shape['B']} sequences, {shape['dtype']}, "
        f"{about['device']}; milliseconds forward and backward, medians of {min(turns)} to "
        f"{max(turns)}; p is the update rate. `{about['command']}`, all of it in "
        f"`results/{folder.name}/`.",
        "",
        *head("steps", *map(str, steps)),
    ]
    for name, mode in names:
        times = [found.get((length, name, mode)) for length in steps]
        cells = ("not run" if time is None else f"{time:.3g}" for time in times)
        lines.append(row_of(f"{name}, {mode}", *cells))
    return lines


PAPER_LATENCY = {"reset": 0.40, "update": 0.082, "candidate": 0.087, "state": 0.24, "total": 0.19}
"""What is left of a dense GRU's time at 83 % sparsity: the paper's appendix on latency."""
CLOSED = "engine, 83% closed"


def latency(folder: Path) -> list[str]:
    """The parts of a step in C, dense and gated."""
    result = json.loads((folder / "result.json").read_text())
    names = ("part", "dense", "83 % closed", "of dense", "reset before: dense", "83 % closed",
             "of dense", "the paper's")  # fmt: skip
    lines = [
        "## Latency in C",
        "",
        f"A sequence of {result['steps']} steps through two layers of 256 units, float32, one "
        f"thread of {result['environment']['processor']}: microseconds of each part, dense and "
        "with 83 % of units closed. Where the reset comes before the recurrent product, as the "
        "paper seems to have it, all of it is needed for any open unit. `surnn bench engine`, all "
        f"of it in `results/{folder.name}/`.",
        "",
        *head(*names),
    ]
    for part, theirs in PAPER_LATENCY.items():
        cells = []
        for form in ("parts", "parts_reset_before"):
            dense, closed = (
                total(found) if part == "total" else 1e6 * found[part]
                for found in (result[form][name] for name in ("engine, dense", CLOSED))
            )
            cells += [f"{dense:,.0f}", f"{closed:,.0f}", f"{closed / dense:.2f}"]
        lines.append(row_of(part, *cells, str(theirs)))
    return lines
