"""The rows of RESULTS.md: what was run is kept in results/rows/, and the page is made from that.

    surnn reproduce psmnist --seeds 0,1,2 --out runs/psmnist
    python tools/results.py add psmnist runs/psmnist-seed*     # keep the records, not the weights
    python tools/results.py figures                            # its figures, by surnn plot
    python tools/results.py write                              # RESULTS.md, README's headlines
    python tools/results.py check                              # are they what write makes?
    python tools/results.py again                              # all records from what was kept

A row is a recipe. Its folder holds, for each seed, the run's configuration, environment, metrics
and evaluations as they were written (but for the folders of its data, which are nobody's business),
and record.json, a summary of all seeds. The tables of run time and latency are of the benchmarks in
results/gpu_bench and results/engine_bench; what the page says of the paper's claims is in
results/claims.md, with the names of rows for their numbers.
"""

import argparse
import json
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from results_figures import FIGURES, FOLDER
from results_page import ROOT, page, with_headlines

from surnn.commands.configure import spelled_out, value_of
from surnn.commands.reproduce import configure, with_seed
from surnn.config import RunConfig
from surnn.models import SequenceModel
from surnn.rate_words import is_soft
from surnn.recipes import RECIPES, Recipe
from surnn.report.curves import speed as paces
from surnn.runs import RunError, RunFolder, config_from_dict

KEPT = ("config.json", "metrics.jsonl", "evaluations.jsonl", "resumed.jsonl")


# ---------------------------------------------------------------------------- records


def add(row: str, runs: list[Path], rows: Path, beside: int = 0, *, untested: bool = False) -> None:
    """Keep the records of runs of a recipe, in place of those of the same seeds.

    Args:
        row: the recipe's name.
        runs: folders.
        rows: where records are kept.
        beside: how many other runs had the same device at the time.
        untested: also of runs that have not been tested and cannot be, their weights being gone;
            what they say of validation is all there is.
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
        if folder.tested() is None and not untested:
            raise SystemExit(
                f"{path} has not been tested: surnn eval {path} --split test "
                "(or, where its weights are gone, --untested)"
            )
        made_by = folder.environment()["command"]
        if shlex.split(made_by)[:3] != ["surnn", "reproduce", row]:
            raise SystemExit(f"{path} was made by {made_by!r}, not of {row}: surnn reproduce {row}")
        command(path)  # or say now why there is none, with the old record in its place
        kept = rows / row / f"seed{folder.config()['train']['seed']}"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        for name in KEPT:
            if (path / name).exists():
                shutil.copyfile(path / name, kept / name)
        environment = without_folders({**folder.environment(), "beside": beside})
        (kept / "environment.json").write_text(json.dumps(environment, indent=2) + "\n")
        if (kept / "resumed.jsonl").exists():
            lines = [json.dumps(without_folders(session)) for session in folder.sessions()]
            (kept / "resumed.jsonl").write_text("".join(f"{line}\n" for line in lines))
    summarise(rows / row)


def without_folders(told: dict[str, Any]) -> dict[str, Any]:
    """The same with the names of data only, not where they were."""
    if "data" not in told:  # it is written when data are found
        return told
    return {**told, "data": {task: Path(at).name for task, at in told["data"].items()}}


def again(rows: Path) -> None:
    """Make every record from the folders of its seeds once more."""
    for record in sorted(rows.glob("*/record.json")):
        summarise(record.parent)


def summarise(row: Path) -> None:
    """Write a row's record."""
    record = summary(RECIPES[row.name], sorted(row.glob("seed*")))
    (row / "record.json").write_text(json.dumps(record, indent=1) + "\n")


def summary(recipe: Recipe, seeds: list[Path]) -> dict[str, Any]:
    """A row in numbers. All seeds must be of one configuration."""
    # As configurations, not as files: a later version's files have options that earlier ones lack.
    configs = [config_from_dict(RunFolder.open(seed).config()) for seed in seeds]
    config, numbers = configs[0], [each.train.seed for each in configs]
    if any(with_seed(each, config.train.seed) != config for each in configs):
        raise SystemExit(f"{seeds[0].parent}: these seeds are not of one configuration")
    task, full = config.task, recipe()
    tested, updates, seconds, speeds, memory = [], [], [], [], []
    others: dict[str, list[dict[str, Any]]] = {}
    for seed in seeds:
        folder = RunFolder.open(seed)
        evaluations, lines = folder.evaluations(), folder.metrics()
        if (found := folder.tested()) is not None:
            tested.append(found)
        for line in evaluations:
            if (line["split"], line["checkpoint"]) == ("test", "best") and line["overrides"]:
                others.setdefault(json.dumps(line["overrides"]), []).append(line["metrics"])
        trained = [line for line in lines if line["kind"] == "train"]
        if not trained:
            raise SystemExit(f"{seed}: nothing is logged of its training; it was too short")
        updates.append(max(line["step"] for line in lines))
        seconds.append(trained[-1]["seconds"])
        full_size = [line for line in lines if line["step"] > task.easy_batches]
        speeds.append(speed(full_size))
        memory += [line["peak_memory"] for line in trained if "peak_memory" in line]
    if tested and len(tested) < len(seeds):
        raise SystemExit(f"{seeds[0].parent}: some of its seeds have been tested, others have not")
    model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps)
    environments = [RunFolder.open(seed).environment() for seed in seeds]
    environment = environments[0]
    rates = [rate for found in tested for rate in found.get("update_rate", [])]
    layers = [layer for found in tested for layer in found.get("update_rate_by_kind", [])]
    opened = statistics.fmean(rates) if rates else None
    soft = is_soft(config)  # how far such gates open is no rate
    by_kind = {
        kind: statistics.fmean(layer[kind] for layer in layers if kind in layer)
        for kind in dict.fromkeys(kind for layer in layers for kind in layer)
    }
    return {
        "recipe": recipe.name, "task": task.name, "metric": task.metric, "paper": recipe.paper,
        "seeds": numbers, **tests(task.metric, tested),
        "elsewhere": [
            {"with": json.loads(changes), **tests(task.metric, found)}
            for changes, found in others.items()
        ],
        "parameters": sum(p.numel() for p in model.parameters()),
        "update_rate": None if soft else opened, "update_rate_by_kind": {} if soft else by_kind,
        "openness": opened if soft else None,
        "updates": updates, "updates_of_the_full_recipe": full.train.steps, "seconds": seconds,
        "updates_per_second": speeds, "peak_memory": max(memory, default=None),
        "device": environment["device"], "torch": environment["torch"],
        "commits": list(dict.fromkeys(each["commit"] for each in environments)),
        "command": command(seeds[0]), "begun_with": begun_with(seeds),
        "beside": max(each["beside"] for each in environments),
    }  # fmt: skip


def command(seed: Path) -> str:
    """What makes such a run now: the command it was made by and, where the recipe is another since
    then or it was gone on with something else, what that was."""
    folder = RunFolder.open(seed)
    device, wanted = folder.environment()["device"], config_from_dict(folder.config())
    words = shlex.split(folder.environment()["command"])
    made = replay(words, device, wanted.train.seed)
    if made.task.name != wanted.task.name:
        raise SystemExit(f"{seed} is of {wanted.task.name}, its recipe of {made.task.name} by now")
    for part in ("task", "model", "gate", "train"):
        was, now = getattr(wanted, part), getattr(made, part)
        for name in (field.name for field in fields(was)):
            if getattr(was, name) != getattr(now, name):
                option, *values = flag(f"{part}.{name}", getattr(was, name))
                words = [*without(words, called(option).__eq__), option, *values]
    if replay(words, device, wanted.train.seed) != wanted:
        raise SystemExit(f"{seed}: {shlex.join(words)} does not make its configuration")
    return shlex.join(words)


def begun_with(seeds: list[Path]) -> dict[str, Any]:
    """Options that were others until runs were gone on with."""
    sessions = [session for seed in seeds for session in RunFolder.open(seed).sessions()]
    changes = [session.get("changes", {}) for session in reversed(sessions)]
    return {name: was for change in changes for name, (was, _) in change.items()}


def replay(words: list[str], device: str, seed: int) -> RunConfig:
    """The configuration that ``surnn reproduce ...`` makes on such a device, of one of its
    seeds."""
    _, _, name, *flags = words
    made, _ = configure(RECIPES[name], flags, device == "cpu", value_of(flags, "--budget"))
    return with_seed(made, seed)


def flag(name: str, value: Any) -> list[str]:
    """An option and its value as words of a command."""
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--{name.replace('.', '.no-')}"]
    return [f"--{name}", *map(str, value if isinstance(value, tuple) else (value,))]


def without(words: list[str], unwanted: Callable[[str], bool]) -> list[str]:
    """A command less some options, as they are :func:`called`, and their values."""
    kept, dropped = [], False
    for word in words:
        if word.startswith("--"):
            dropped = unwanted(called(word))
        if not dropped:
            kept.append(word)
    return kept


def called(word: str) -> str:
    """What option this is, whatever its value; also if it says no to it."""
    (word,) = spelled_out([word])
    return word.partition("=")[0].replace("_", "-").replace(".no-", ".")


def tests(metric: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    """The metric of each seed, and the means of what it is made of, such as horizons."""
    parts = [name for name in (found[0] if found else ()) if name.startswith(f"{metric} at ")]
    return {
        "test": [metrics[metric] for metrics in found],
        "parts": {name: statistics.fmean(metrics[name] for metrics in found) for name in parts},
    }


def speed(lines: list[dict[str, Any]]) -> float | None:
    """Updates a second, the median between lines of the log without the evaluations between these;
    None if there was one always and nothing tells how long it took."""
    _, found = paces(lines, paused=False)
    return statistics.median(found) if found else None


def figures(rows: Path, folder: Path) -> None:
    """Draw the figures of the page, by surnn plot."""
    for figure in FIGURES:
        runs = figure.runs(rows)
        if not runs:
            print(f"{figure.name}: not all of its rows have been run")
            continue
        words = ["-m", "surnn", "plot", figure.plot, *map(str, runs)]
        subprocess.run([sys.executable, *words, "--out", str(folder / figure.file)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="The rows of RESULTS.md.")
    parser.add_argument("--rows", type=Path, default=ROOT / "results" / "rows")
    parser.add_argument("--page", type=Path, default=ROOT / "RESULTS.md")
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("add", help="keep the records of runs")
    adding.add_argument("row", help="name of the recipe")
    adding.add_argument("runs", type=Path, nargs="+")
    adding.add_argument("--beside", type=int, default=0, help="runs that shared the device")
    adding.add_argument("--untested", action="store_true", help="their weights are gone")
    commands.add_parser("again", help="make all records from what was kept of their runs")
    commands.add_parser("figures", help="draw the figures of the page")
    commands.add_parser("write", help="make RESULTS.md and the headlines of the README")
    commands.add_parser("check", help="whether they are what write would make")
    arguments = parser.parse_args()
    if arguments.command == "add":
        add(arguments.row, arguments.runs, arguments.rows, arguments.beside,
            untested=arguments.untested)  # fmt: skip
    elif arguments.command == "again":
        again(arguments.rows)
    elif arguments.command == "figures":
        figures(arguments.rows, arguments.page.parent / FOLDER)
    else:
        readme = arguments.page.parent / "README.md"
        wanted = {
            arguments.page: page(arguments.rows),
            readme: with_headlines(readme.read_text(), arguments.rows),
        }
        for path, text in wanted.items():
            if arguments.command == "write":
                path.write_text(text)
            elif path.read_text() != text:
                sys.exit(f"{path.name} is not up to date: python tools/results.py write")


if __name__ == "__main__":
    main()
