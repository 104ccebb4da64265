"""Summaries of runs: everything a folder holds as one dictionary, as lines, or as a table row."""

import math
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from surnn.config import OURS, ModelConfig, RunConfig
from surnn.errors import RunError, SurnnError, printable

from .config_json import config_from_dict
from .folder import RunFolder
from .loading import build_model
from .rate_format import format_layer_rates
from .status import RunStatus, best_validation, format_best, next_commands, run_status
from .time_budget import format_duration

LARGEST_COUNTED = 1 << 28
"""Squared widths, summed over layers, of the largest model that is built to count parameters."""


def find_runs(path: Path) -> list[Path]:
    """The runs below a folder that is no run itself, up to three levels deep (runs/NAME/TIME).

    Exported models have a config.json too, but no environment.json.
    """
    if (path / "config.json").is_file():
        return []
    files = (p for depth in (1, 2, 3) for p in path.glob("*/" * depth + "environment.json"))
    runs = [file.parent for file in files if (file.parent / "config.json").is_file()]
    return [run for run in runs if not run.name.startswith(".")]  # drafts of killed processes


def overview_row(path: Path) -> dict[str, str]:
    """A row of the table of runs; of a damaged run, the damage."""
    folder, row = RunFolder(path), {"run": printable(str(path))}
    row |= dict.fromkeys(("started", "task", "model", "steps", "validation", "status"), "")
    try:
        row["started"] = str(folder.environment().get("time", "unknown"))
        config = config_from_dict(folder.config())
        task, model = config.task, config.model
        row |= {"task": task.name, "model": f"{model.kind} {format_size(model)}"}
        row["validation"] = format_best(best_validation(folder.metrics(), task), task)
        status = run_status(folder, config)
        row |= {"steps": f"{status.step}/{config.train.steps}", "status": status.status}
    except Exception as error:  # whatever a foreign folder holds, the other runs are listed
        reason = str(error) if isinstance(error, SurnnError) else f"{type(error).__name__}: {error}"
        row["status"] = f"damaged: {reason.partition(chr(10))[0]}"
    return row


def run_details(folder: RunFolder, config: RunConfig) -> dict[str, Any]:
    """Everything that a run's folder says, for programs."""
    task, lines = config.task, folder.metrics()
    try:
        status = run_status(folder, config)
    except RunError as error:  # the rest can still be read
        status = RunStatus("damaged", folder.last_step(), str(error))
    return {
        **status._asdict(),
        "parameters": _count_parameters(config),
        "best": best_validation(lines, task),
        "train": next((m for m in reversed(lines) if m["kind"] == "train"), None),
        "valid": next((m for m in reversed(lines) if m["kind"] == "valid"), None),
        "evaluations": folder.evaluations(),
        "config": folder.config(),
        "environment": folder.environment(),
    }


def summary_lines(
    path: Path, config: RunConfig, details: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """:func:`run_details` for people: names, and a line of text for each."""
    task, model, train = config.task, config.model, config.train
    environment, logged = details["environment"], details["train"]
    yield "run", printable(str(path))
    status = f"{details['status']} at step {details['step']}/{train.steps}"
    yield "status", f"{status}: {details['why']}"
    started, device, torch = (environment.get(k, "unknown") for k in ("time", "device", "torch"))
    yield "started", f"{started} on {device}, torch {torch}"
    yield "task", _join(f"{task.name}: {task.steps} time steps", changed_options(task))
    size = f"{model.kind} {format_size(model)}"
    if details["parameters"] is not None:
        size += f": {details['parameters']:,} parameters"
    yield "model", _join(size, changed_options(model, "kind", "layers", "width", "widths"))
    if model.kind in OURS:
        yield "gate", _join(config.gate.kind, changed_options(config.gate, "kind"))
    yield "training", _join(f"batch {train.batch}", changed_options(train, "steps", "batch"))
    if logged is not None:
        time = format_duration(logged.get("seconds", math.inf))
        yield "loss", f"{logged.get('loss', math.nan):.4g} (step {logged['step']}, after {time})"
    yield "validation", format_best(details["best"], task)
    rates = format_layer_rates(details["valid"] or logged or {}, config)
    for layer, rate in enumerate(rates, 1):
        yield f"layer {layer}", str(rate)
    for line in details["evaluations"]:
        if not _is_evaluation(line, task.metric):
            continue
        options = [f"{name} {value}" for name, value in line["overrides"].items()]
        value = f"{task.metric} {line['metrics'][task.metric]:.4g}"
        weights = f"{line['checkpoint']} weights (step {line['step']})"
        yield line["split"], _join(value, [weights, *options])
    commands = next_commands(path, details["status"], details["resume_flags"], details["process"])
    yield from ((name, printable(command)) for name, command in commands)


def _count_parameters(config: RunConfig) -> int | None:
    """The parameters of a model; None if it is too large to build for counting."""
    model = config.model
    widths = model.widths or (model.width,) * model.layers
    if sum((model.expand * width) ** 2 for width in widths) > LARGEST_COUNTED:
        return None
    return sum(p.numel() for p in build_model(config).parameters())


def _is_evaluation(line: dict[str, Any], metric: str) -> bool:
    """Whether a line of evaluations.jsonl has what every such line has."""
    metrics, overrides = line.get("metrics"), line.get("overrides")
    named = isinstance(metrics, dict) and isinstance(metrics.get(metric), int | float)
    texts = all(isinstance(line.get(name), str) for name in ("checkpoint", "split"))
    return named and texts and isinstance(overrides, dict) and "step" in line


def format_size(model: ModelConfig) -> str:
    """Layers and their widths: 2x128, or 32-64-128."""
    return "-".join(map(str, model.widths)) if model.widths else f"{model.layers}x{model.width}"


def changed_options(config: Any, *skip: str) -> list[str]:
    """Options that are not at their defaults."""
    values = [(f, getattr(config, f.name)) for f in fields(config) if f.name not in skip]
    return [f"{f.name} {value}" for f, value in values if value != f.default]


def _join(first: str, rest: list[str]) -> str:
    return ", ".join([first, *rest])
