"""Records of runs in results/rows: per recipe a folder with record.json and a folder per seed."""

import json
import re
import shlex
import shutil
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from surnn.config import RunConfig
from surnn.models.model import SequenceModel
from surnn.report.curves import steps_per_second
from surnn.runs.config_json import config_from_dict
from surnn.runs.folder import RunFolder
from surnn.runs.rate_format import is_soft
from surnn.train.recipe_options import with_seed
from surnn_recipes import RECIPES, Recipe

from . import ResultsError
from .commands import command

Record = dict[str, Any]
FILES = ("config.json", "metrics.jsonl", "evaluations.jsonl", "resumed.jsonl")


OLD_KEYS = {
    "updates": "steps", "updates_of_the_full_recipe": "full_steps",
    "updates_per_second": "steps_per_second", "beside": "other_runs",
    "begun_with": "initial_options", "elsewhere": "other_tests",
}  # fmt: skip
"""Keys of record.json and environment.json before they were renamed."""


def read_records(rows: Path) -> dict[str, Record]:
    """The records of all rows that have one."""
    return {path.parent.name: read_record(path) for path in sorted(rows.glob("*/record.json"))}


def read_record(path: Path) -> Record:
    """A file with the keys of today, whichever it was written with."""
    record: Record = json.loads(path.read_text())
    return {OLD_KEYS.get(name, name): value for name, value in record.items()}


def add(
    row: str, runs: list[Path], rows: Path, other_runs: int = 0, *, untested: bool = False
) -> None:
    """Copy the records of a recipe's runs to its row. Replaces records of the same seeds.

    Args:
        row: the recipe's name.
        runs: their folders.
        rows: the folder of all rows.
        other_runs: the number of other runs on the same device at the time.
        untested: accept runs without a test, for runs whose weights no longer exist.
    """
    if row not in RECIPES:
        raise ResultsError(f"there is no recipe {row!r}; see surnn list recipes")
    for path in runs:
        if path.resolve().is_relative_to(rows.resolve()):
            raise ResultsError(f"{path} is a record already: python -m surnn_recipes.results again")
        folder = RunFolder.open(path)
        if folder.test_metrics() is None and not untested:
            raise ResultsError(
                f"{path} has not been tested: surnn eval {path} --split test "
                "(or --untested, if its weights no longer exist)"
            )
        origin = folder.environment()["command"]
        if shlex.split(origin)[:3] != ["surnn", "reproduce", row]:
            raise ResultsError(f"{path} was made by {origin!r}, expected surnn reproduce {row}")
        command(path)  # fails before the old record is removed
        target = rows / row / f"seed{folder.config()['train']['seed']}"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for name in FILES:
            if (path / name).exists():
                shutil.copyfile(path / name, target / name)
        name_start(target / "config.json")
        environment = without_folders({**folder.environment(), "other_runs": other_runs})
        (target / "environment.json").write_text(json.dumps(environment, indent=2) + "\n")
        if (target / "resumed.jsonl").exists():
            lines = [json.dumps(without_folders(session)) for session in folder.sessions()]
            (target / "resumed.jsonl").write_text("".join(f"{line}\n" for line in lines))
    summarise(rows / row)


def without_folders(environment: dict[str, Any]) -> dict[str, Any]:
    """The environment with the names of data sets, and of a run that gave the first weights,
    instead of their paths."""
    if "data" in environment:  # only tasks with data sets have it
        names = {task: Path(path).name for task, path in environment["data"].items()}
        environment = {**environment, "data": names}
    if "command" in environment:  # no line of resumed.jsonl has it
        command = re.sub(r"(?<=--train\.start )\S*/", "", environment["command"])
        environment = {**environment, "command": command}
    return environment


def name_start(config: Path) -> None:
    """Write a run's configuration with the name of the run that gave its first weights, instead of
    its path."""
    options = json.loads(config.read_text())
    if options["train"].get("start") is not None:
        options["train"]["start"] = Path(options["train"]["start"]).name
        config.write_text(json.dumps(options, indent=2) + "\n")


def rebuild(rows: Path) -> None:
    """Write every record.json again, from the folders of its seeds."""
    for record in sorted(rows.glob("*/record.json")):
        summarise(record.parent)


def summarise(row: Path) -> None:
    """Write a row's record.json."""
    record = summary(RECIPES[row.name], sorted(row.glob("seed*")))
    (row / "record.json").write_text(json.dumps(record, indent=1) + "\n")


def summary(recipe: Recipe, seeds: list[Path]) -> dict[str, Any]:
    """The numbers of a row. All seeds must have one configuration."""
    # Files of different versions differ in their options; the configurations they load as do not.
    configs = [config_from_dict(RunFolder.open(seed).config()) for seed in seeds]
    config, numbers = configs[0], [each.train.seed for each in configs]
    if any(seed_of(config, each.train.seed) != each for each in configs):
        raise ResultsError(f"{seeds[0].parent}: these seeds differ in their configuration")
    task, full = config.task, recipe()
    tests, steps, seconds, speeds, memory = [], [], [], [], []
    other_tests: dict[str, list[dict[str, Any]]] = {}
    withdrawn = withdrawn_tests(seeds[0].parent)
    for seed in seeds:
        folder = RunFolder.open(seed)
        evaluations, lines = folder.evaluations(), folder.metrics()
        if (metrics := folder.test_metrics()) is not None:
            tests.append(metrics)
        for line in evaluations:
            counts = (line["split"], line["checkpoint"]) == ("test", "best")
            if counts and line["overrides"] and not is_withdrawn(line, withdrawn):
                other_tests.setdefault(json.dumps(line["overrides"]), []).append(line["metrics"])
        trained = [line for line in lines if line["kind"] == "train"]
        if not trained:
            raise ResultsError(f"{seed}: its log has no training step; the run was too short")
        steps.append(max(line["step"] for line in lines))
        seconds.append(trained[-1]["seconds"])
        full_size = [line for line in lines if line["step"] > task.easy_batches]
        speeds.append(speed(full_size))
        memory += [line["peak_memory"] for line in trained if "peak_memory" in line]
    if tests and len(tests) < len(seeds):
        raise ResultsError(f"{seeds[0].parent}: some of its seeds have a test, others have none")
    model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps)
    environments = [read_record(seed / "environment.json") for seed in seeds]
    environment = environments[0]
    rates = [rate for metrics in tests for rate in metrics.get("update_rate", [])]
    layers = [layer for metrics in tests for layer in metrics.get("update_rate_by_kind", [])]
    mean = statistics.fmean(rates) if rates else None
    soft = is_soft(config)  # the mean of soft gates is not a rate
    by_kind = {
        kind: statistics.fmean(layer[kind] for layer in layers if kind in layer)
        for kind in dict.fromkeys(kind for layer in layers for kind in layer)
    }
    return {
        "recipe": recipe.name, "task": task.name, "metric": task.metric, "paper": recipe.paper,
        "seeds": numbers, **test_numbers(task.metric, tests),
        "other_tests": [
            {"with": json.loads(changes), **test_numbers(task.metric, metrics)}
            for changes, metrics in other_tests.items()
        ],
        "withdrawn": [{name: test[name] for name in ("with", "reason")} for test in withdrawn],
        "parameters": sum(p.numel() for p in model.parameters()),
        "update_rate": None if soft else mean, "update_rate_by_kind": {} if soft else by_kind,
        "update_rate_by_layer": [] if soft else rates_by_layer(tests),
        "openness": mean if soft else None,
        "steps": steps, "full_steps": full.train.steps, "seconds": seconds,
        "steps_per_second": speeds, "peak_memory": max(memory, default=None),
        "device": environment["device"], "torch": environment["torch"],
        "commits": list(dict.fromkeys(each["commit"] for each in environments)),
        "command": command(seeds[0]), "initial_options": initial_options(seeds),
        "other_runs": max(each["other_runs"] for each in environments),
    }  # fmt: skip


def seed_of(config: RunConfig, seed: int) -> RunConfig:
    """The same run with another seed. If it starts with the weights of a run that is named after
    its seed, the other one starts with those of the run that is named after that one."""
    start, train = config.train.start, config.train
    if start is not None:
        train = replace(train, start=start.replace(f"seed{train.seed}", f"seed{seed}"))
    return with_seed(replace(config, train=train), seed)


def initial_options(seeds: list[Path]) -> dict[str, Any]:
    """The first values of options that were changed when runs were resumed."""
    sessions = [session for seed in seeds for session in RunFolder.open(seed).sessions()]
    changes = [session.get("changes", {}) for session in reversed(sessions)]
    return {name: was for change in changes for name, (was, _) in change.items()}


def test_numbers(metric: str, tests: list[dict[str, Any]]) -> dict[str, Any]:
    """The metric of each seed, and the means of its parts (horizons) and variants (typed beats)."""
    names = tests[0] if tests else ()
    parts = [n for n in names if n.startswith(f"{metric} at ") or n.endswith(f" {metric}")]
    return {
        "test": [metrics[metric] for metrics in tests],
        "parts": {name: statistics.fmean(metrics[name] for metrics in tests) for name in parts},
    }


def rates_by_layer(tests: list[dict[str, Any]]) -> list[dict[str, float]]:
    """The update rate of each layer and its rates by kind of token, means over seeds."""
    layers = [
        [{"rate": rate, **kinds} for rate, kinds in zip(rates, by_kind, strict=True)]
        for metrics in tests
        if (rates := metrics.get("update_rate"))
        for by_kind in [metrics.get("update_rate_by_kind") or [{}] * len(rates)]
    ]
    return [
        {name: statistics.fmean(one[name] for one in same) for name in same[0]}
        for same in zip(*layers, strict=True)
    ]


def withdrawn_tests(row: Path) -> list[dict[str, Any]]:
    """Tests of a row that no longer count, from its withdrawn.json: each with its options
    (``with``), the time ``before`` which it was made, and the ``reason``."""
    path = row / "withdrawn.json"
    return json.loads(path.read_text()) if path.exists() else []


def is_withdrawn(line: dict[str, Any], withdrawn: list[dict[str, Any]]) -> bool:
    """Whether a line of evaluations.jsonl is one of these tests."""
    return any(
        line["overrides"] == test["with"] and line["time"] < test["before"] for test in withdrawn
    )


def speed(lines: list[dict[str, Any]]) -> float | None:
    """The median of optimizer steps per second, without evaluations; None if the log does not
    contain the duration of evaluations and has one between all its lines."""
    _, paces = steps_per_second(lines, with_pauses=False)
    return statistics.median(paces) if paces else None
