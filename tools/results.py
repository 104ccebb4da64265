"""The rows of RESULTS.md: what was run is kept in results/rows/, and the page is made from that.

    surnn reproduce psmnist --seeds 0,1,2 --out runs/psmnist
    python tools/results.py add psmnist runs/psmnist-seed*     # keep the records, not the weights
    python tools/results.py write                              # RESULTS.md
    python tools/results.py check                              # is RESULTS.md what write makes?
    python tools/results.py again                              # all records from what was kept

A row is a recipe. Its folder holds, for each seed, the run's configuration, environment, metrics
and evaluations as they were written (but for the folders of its data, which are nobody's business),
and record.json, a summary of all seeds. The tables of run time and latency are of the benchmarks in
results/gpu_bench and results/engine_bench.
"""

import argparse
import json
import shutil
import statistics
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from surnn.bench.engine import total
from surnn.models import SequenceModel
from surnn.recipes import RECIPES, Recipe
from surnn.runs import RunError, RunFolder, config_from_dict
from surnn.tasks import load_task

ROOT = Path(__file__).resolve().parent.parent
KEPT = ("config.json", "metrics.jsonl", "evaluations.jsonl", "resumed.jsonl")
NOT_RUN = "not run: no GPU time yet"


# ---------------------------------------------------------------------------- records


def add(row: str, runs: list[Path], rows: Path, beside: int = 0) -> None:
    """Keep the records of tested runs of a recipe, in place of those of the same seeds.

    Args:
        row: the recipe's name.
        runs: folders.
        rows: where records are kept.
        beside: how many other runs had the same device at the time.
    """
    if row not in RECIPES:
        raise SystemExit(f"there is no recipe {row!r}; see surnn list recipes")
    for path in runs:
        if path.resolve().is_relative_to(rows.resolve()):
            raise SystemExit(f"{path} is a record already: python tools/results.py again")
        try:
            folder = RunFolder.open(path)
        except RunError as error:
            raise SystemExit(str(error)) from error
        if not any(is_result(line) for line in folder.evaluations()):
            raise SystemExit(f"{path} has not been tested: surnn eval {path} --split test")
        kept = rows / row / f"seed{folder.config()['train']['seed']}"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        for name in KEPT:
            if (path / name).exists():
                shutil.copyfile(path / name, kept / name)
        environment = folder.environment()
        if "data" in environment:  # it is written when data are found
            environment["data"] = {task: Path(at).name for task, at in environment["data"].items()}
        (kept / "environment.json").write_text(json.dumps(environment, indent=2) + "\n")
    summarise(rows / row, beside)


def again(rows: Path) -> None:
    """Make every record from the folders of its seeds once more."""
    for record in sorted(rows.glob("*/record.json")):
        summarise(record.parent, json.loads(record.read_text())["beside"])


def summarise(row: Path, beside: int) -> None:
    """Write a row's record."""
    record = {**summary(RECIPES[row.name], sorted(row.glob("seed*"))), "beside": beside}
    (row / "record.json").write_text(json.dumps(record, indent=1) + "\n")


def is_result(line: dict[str, Any]) -> bool:
    """The best weights on the whole test split of the task they were trained for."""
    return (line["split"], line["checkpoint"], line["overrides"]) == ("test", "best", {})


def summary(recipe: Recipe, seeds: list[Path]) -> dict[str, Any]:
    """A row in numbers. All seeds must be of one configuration."""
    configs = [json.loads((seed / "config.json").read_text()) for seed in seeds]
    numbers = [config["train"].pop("seed") for config in configs]
    if any(config != configs[0] for config in configs):
        raise SystemExit(f"{seeds[0].parent}: these seeds are not of one configuration")
    config = config_from_dict(RunFolder.open(seeds[0]).config())
    task, full = config.task, recipe()
    tested, others, updates, seconds, speeds, memory = [], [], [], [], [], []
    for seed in seeds:
        folder = RunFolder.open(seed)
        evaluations, lines = folder.evaluations(), folder.metrics()
        tested.append(next(line["metrics"] for line in evaluations if is_result(line)))
        others += [
            {"seed": seed.name, **line["overrides"], task.metric: line["metrics"][task.metric]}
            for line in evaluations
            if line["split"] == "test" and line["checkpoint"] == "best" and line["overrides"]
        ]
        trained = [line for line in lines if line["kind"] == "train"]
        if not trained:
            raise SystemExit(f"{seed}: nothing is logged of its training; it was too short")
        updates.append(max(line["step"] for line in lines))
        seconds.append(trained[-1]["seconds"])
        speeds.append(speed(trained))
        memory += [line["peak_memory"] for line in trained if "peak_memory" in line]
    model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps)
    environment = RunFolder.open(seeds[0]).environment()
    rates = [rate for found in tested for rate in found.get("update_rate", [])]
    layers = [layer for found in tested for layer in found.get("update_rate_by_kind", [])]
    by_kind = {
        kind: statistics.fmean(layer[kind] for layer in layers if kind in layer)
        for kind in dict.fromkeys(kind for layer in layers for kind in layer)
    }
    return {
        "recipe": recipe.name, "task": task.name, "metric": task.metric, "paper": recipe.paper,
        "seeds": numbers, "test": [found[task.metric] for found in tested],
        "elsewhere": others, "parameters": sum(p.numel() for p in model.parameters()),
        "update_rate": statistics.fmean(rates) if rates else None, "update_rate_by_kind": by_kind,
        "updates": updates, "updates_of_the_full_recipe": full.train.steps, "seconds": seconds,
        "updates_per_second": speeds, "peak_memory": max(memory, default=None),
        "device": environment["device"], "torch": environment["torch"],
        "commit": environment["commit"], "command": environment["command"],
    }  # fmt: skip


def speed(trained: list[dict[str, Any]]) -> float | None:
    """Updates a second: the median between lines of the log, since some lines have an evaluation
    before them."""
    found = [
        (after["step"] - before["step"]) / (after["seconds"] - before["seconds"])
        for before, after in pairwise(trained)
        if after["seconds"] > before["seconds"]
    ]
    return statistics.median(found) if found else None


# ---------------------------------------------------------------------------- the page


def page(rows: Path) -> str:
    """RESULTS.md."""
    reasons = json.loads((rows / "not_run.json").read_text())
    told = [
        "# Results",
        "",
        "Made by `python tools/results.py write` from the records in `results/rows/`, which hold",
        "each run's configuration, environment, metrics and evaluations. The best weights of",
        "validation, on the test set, once. ± is the standard deviation over seeds. Seconds are of",
        "training with its evaluations, updates/s without them; memory is the most that",
        "torch had allocated on the GPU.",
    ]
    for family in dict.fromkeys(recipe().task.name for recipe in RECIPES.values()):
        recipes = [recipe for recipe in RECIPES.values() if recipe().task.name == family]
        told += ["", f"## {family}", "", *head(load_task(family).metric)]
        told += [line(recipe, rows / recipe.name / "record.json", reasons) for recipe in recipes]
        for recipe in recipes:
            told += notes(rows / recipe.name / "record.json")
    told += [
        "",
        *run_time(ROOT / "results" / "gpu_bench"),
        "",
        *latency(ROOT / "results" / "engine_bench"),
    ]
    return "\n".join(told) + "\n"


def head(metric: str) -> list[str]:
    names = ("recipe", "the paper's", "paper", f"{metric}, ours", "parameters", "updates at",
             "training", "updates/s", "memory", "on", "command")  # fmt: skip
    return [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]


def line(recipe: Recipe, record: Path, reasons: dict[str, str]) -> str:
    """A row of a table."""
    theirs = "" if recipe.paper is None else f"{recipe.paper:.4g}"
    called = ", ".join(part for part in (recipe.where, recipe.called) if part)
    if not record.exists():
        reason = reasons.get(recipe.name, NOT_RUN)
        return f"| {recipe.name} | {called} | {theirs} | {reason} |" + " |" * 7
    found = json.loads(record.read_text())
    least, most = min(found["updates"]), max(found["updates"])
    done = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    if most < found["updates_of_the_full_recipe"]:
        done += f" of {found['updates_of_the_full_recipe']:,}"
    rate = "" if found["update_rate"] is None else f"{found['update_rate']:.1%} of steps"
    if by_kind := found["update_rate_by_kind"]:
        rate += f" ({', '.join(f'{kind} {share:.1%}' for kind, share in by_kind.items())})"
    ours = [
        f"**{spread(found['test'])}**", f"{found['parameters']:,}", rate,
        f"{done} updates, {statistics.fmean(found['seconds']):.0f} s",
        told_speed(found["updates_per_second"], found["beside"]),
        told_memory(found["peak_memory"]), found["device"],
        f"`{found['command']}`",
    ]  # fmt: skip
    return f"| {recipe.name} | {called} | {theirs} | {' | '.join(ours)} |"


def notes(record: Path) -> list[str]:
    """What the same weights do on other versions of the task."""
    if not record.exists():
        return []
    found = json.loads(record.read_text())
    return [
        f"\n{found['recipe']}, {other.pop('seed')}, "
        + f"{found['metric']} {other.pop(found['metric']):.4g} with "
        + ", ".join(f"{name} {value}" for name, value in other.items())
        for other in found["elsewhere"]
    ]


def told_speed(speeds: list[float | None], beside: int) -> str:
    """The mean over seeds, and who else was there."""
    known = [one for one in speeds if one is not None]
    if not known:
        return ""
    return f"{statistics.fmean(known):.3g}" + (f", beside {beside} others" if beside else "")


def told_memory(peak: int | None) -> str:
    """The largest of all seeds, as torch allocates it; only GPUs tell."""
    return "" if peak is None else f"{peak / 1e9:.1f} GB"


def spread(values: list[float]) -> str:
    """Mean, and deviation where there are several."""
    if len(values) == 1:
        return f"{values[0]:.4f} (one seed)"
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    return f"{mean:.4f} ± {deviation:.4f} ({len(values)} seeds)"


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
    told = [
        "## Run time of a training step",
        "",
        f"One layer of {shape['H']} units, {shape['B']} sequences, {shape['dtype']}, "
        f"{about['device']}; milliseconds forward and backward, medians of {min(turns)} to "
        f"{max(turns)}; p is the update rate. `{about['command']}`, all of it in "
        f"`results/{folder.name}/`.",
        "",
        f"| steps | {' | '.join(map(str, steps))} |",
        "|---" * (1 + len(steps)) + "|",
    ]
    for name, mode in names:
        times = [found.get((length, name, mode)) for length in steps]
        cells = ("not run" if time is None else f"{time:.3g}" for time in times)
        told.append(f"| {name}, {mode} | {' | '.join(cells)} |")
    return told


PAPER_LATENCY = {"reset": 0.40, "update": 0.082, "candidate": 0.087, "state": 0.24, "total": 0.19}
"""What is left of a dense GRU's time at 83 % sparsity: the paper's appendix on latency."""
CLOSED = "engine, 83% closed"


def latency(folder: Path) -> list[str]:
    """The parts of a step in C, dense and gated."""
    result = json.loads((folder / "result.json").read_text())
    names = ("part", "dense", "83 % closed", "of dense", "reset before: dense", "83 % closed",
             "of dense", "the paper's")  # fmt: skip
    told = [
        "## Latency in C",
        "",
        f"A sequence of {result['steps']} steps through two layers of 256 units, float32, one "
        f"thread of {result['environment']['processor']}: microseconds of each part, dense and "
        "with 83 % of units closed. Where the reset comes before the recurrent product, as the "
        "paper seems to have it, all of it is needed for any open unit. `surnn bench engine`, all "
        f"of it in `results/{folder.name}/`.",
        "",
        f"| {' | '.join(names)} |",
        "|---" * len(names) + "|",
    ]
    for part, theirs in PAPER_LATENCY.items():
        cells = []
        for form in ("parts", "parts_reset_before"):
            dense, closed = (
                total(found) if part == "total" else 1e6 * found[part]
                for found in (result[form][name] for name in ("engine, dense", CLOSED))
            )
            cells += [f"{dense:,.0f}", f"{closed:,.0f}", f"{closed / dense:.2f}"]
        told.append(f"| {part} | {' | '.join(cells)} | {theirs} |")
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description="The rows of RESULTS.md.")
    parser.add_argument("--rows", type=Path, default=ROOT / "results" / "rows")
    parser.add_argument("--page", type=Path, default=ROOT / "RESULTS.md")
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add", help="keep the records of runs")
    adding.add_argument("row", help="name of the recipe")
    adding.add_argument("runs", type=Path, nargs="+")
    adding.add_argument("--beside", type=int, default=0, help="runs that shared the device")
    commands.add_parser("again", help="make all records from what was kept of their runs")
    commands.add_parser("write", help="make RESULTS.md")
    commands.add_parser("check", help="whether RESULTS.md is what write would make")
    arguments = parser.parse_args()
    if arguments.command == "add":
        add(arguments.row, arguments.runs, arguments.rows, arguments.beside)
    elif arguments.command == "again":
        again(arguments.rows)
    elif arguments.command == "write":
        arguments.page.write_text(page(arguments.rows))
    elif arguments.page.read_text() != page(arguments.rows):
        sys.exit(f"{arguments.page.name} is not up to date: python tools/results.py write")


if __name__ == "__main__":
    main()
