"""The contents of a run's folder as plain data for a page."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from surnn.config import RunConfig
from surnn.models.model import SequenceModel
from surnn.plugins import find_recipes
from surnn.runs.config_json import config_from_dict, config_to_dict, flat
from surnn.runs.folder import RunError, RunFolder
from surnn.runs.loading import Trained, build_model, load
from surnn.runs.rate_format import is_soft
from surnn.runs.status import best_validation, run_status
from surnn.tasks.base import Task, known_chance

from .curves import Line, clock, curves
from .gates import NoGates, gate_pictures, is_available, prepare

Say = Callable[[str], None]
PRIVATE = ("data",)
"""Parts of the environment that the page leaves out: paths of the author's machine."""
BOOKKEEPING = {
    "train.seed", "train.device", "train.log_every", "train.checkpoint_every",
    "train.evaluate_every", "train.tensorboard", "train.loggers", "train.timeout",
}  # fmt: skip
"""Options of training that do not affect the comparison with a recipe."""


def gather(
    path: Path,
    name: str | None = None,
    *,
    gates: bool = True,
    data: Path | None = None,
    say: Say = lambda text: None,
) -> dict[str, Any]:
    """The page's data about the run in ``path``.

    Args:
        path: the run's folder.
        name: its name on the page.
        gates: load the trained model and record its gates.
        data: a folder with data sets, for gates that depend on the input.
        say: called with a line of text about each stage of the work.
    """
    folder = RunFolder.open(path)
    lines = folder.metrics()
    about: dict[str, Any] = {"name": name or path.resolve().name, **records(folder, lines)}
    notes = about["notes"]
    try:
        config = config_from_dict(folder.config())
    except RunError as error:  # written by another version of surnn: show the log alone
        notes.append(str(error))
        missing = {"missing": "the configuration cannot be read"}
        return about | {"curves": curves(lines, soft=False), "gates": missing}
    task = config.task
    about["curves"] = curves(lines, is_soft(config))
    about["soft"] = [is_soft(config, layer) for layer in range(len(about["update_rate"] or ()))]
    about["defaults"] = flat(config_to_dict(RunConfig(type(task)())))
    try:
        about["status"] = run_status(folder, config)._asdict()
    except RunError as error:
        notes.append(str(error))
    trained = _load(path, say) if gates else "left out (--no-gates)"
    if isinstance(trained, Trained):
        task, model = trained.task, trained.model
        try:
            about["gates"] = gate_pictures(trained, data, say)
        except NoGates as error:
            about["gates"] = {"missing": str(error)}
    else:
        model, about["gates"] = _fresh_model(config), {"missing": trained}
    about["parameters"] = sum(p.numel() for p in model.parameters())
    if gates and known_chance(task) is None and is_available(task, data):
        prepare(task, data, say)
    chance = known_chance(task)
    if chance is None:
        notes.append(
            f"chance is unknown: it depends on the data of {task.name}, which were not loaded"
        )
    about["metric"] = metric(task, lines) | {"chance": chance, "paper": paper(config)}
    return about


def records(folder: RunFolder, lines: list[Line]) -> dict[str, Any]:
    """The folder's files, without loading the model."""
    config, notes = folder.config(), []
    try:
        environment = folder.environment()
    except RunError as error:
        environment = {}
        notes.append(str(error))
    return {
        "task": _entry(config, "task", "name"),
        "model": _entry(config, "model", "kind"),
        "config": flat(config),
        "defaults": None,
        "metric": None,
        "parameters": None,
        "environment": _public(environment),
        "sessions": [_public(session) for session in folder.sessions()],
        "evaluations": folder.evaluations(),
        "status": None,
        "step": max((line["step"] for line in lines), default=0),
        "seconds": _last(lines, "seconds"),
        "update_rate": _last(lines, "update_rate"),
        "soft": None,
        "clock": clock(lines),
        "notes": notes,
    }


def metric(task: Task, lines: list[Line]) -> dict[str, Any]:
    """The best and the last validation."""
    valid = [line for line in lines if line["kind"] == "valid"]
    points = {"best": best_validation(lines, task), "last": valid[-1] if valid else None}
    return {
        "name": task.metric,
        "higher_is_better": task.higher_is_better,
        "paper_of_task": task.paper,
        **{
            name: None if line is None else {"step": line["step"], "value": line.get(task.metric)}
            for name, line in points.items()
        },
    }


def paper(config: RunConfig) -> dict[str, Any] | None:
    """The paper's number for this model and task if a recipe has them, and the options of training
    in which this run differs from that recipe."""
    options = flat(config_to_dict(config))
    for recipe in find_recipes().values():
        full = recipe()
        same = (config.task, config.model, config.gate) == (full.task, full.model, full.gate)
        if recipe.paper is not None and same:
            row = flat(config_to_dict(full))
            different = [name for name in options if options[name] != row[name]]
            return {
                "value": recipe.paper,
                "recipe": recipe.name,
                "paper_table": recipe.paper_table,
                "paper_name": recipe.paper_name,
                "differences": [
                    name.removeprefix("train.") for name in different if name not in BOOKKEEPING
                ],
            }
    return None


# ---------------------------------------------------------------------------- parts


def _load(path: Path, say: Say) -> Trained | str:
    """The run's model with its best weights, or its last; or why neither can be loaded."""
    say("loading the model")
    reasons = []
    for checkpoint in ("best", "last"):
        try:
            return load(path, checkpoint)
        except RunError as error:
            reasons.append(str(error))
    return "; ".join(reasons)


def _fresh_model(config: RunConfig) -> SequenceModel:
    """A model with as many parameters as the trained one."""
    task, kind = config.task, config.model
    if kind.backend == "triton":  # may be unavailable here
        kind = replace(kind, backend="auto")
    return build_model(replace(config, model=kind), task)


def _entry(config: dict[str, Any], part: str, name: str) -> str:
    """An option of a configuration that may be damaged."""
    options = config.get(part)
    return str(options.get(name, "unknown")) if isinstance(options, dict) else "unknown"


def _public(environment: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in environment.items() if name not in PRIVATE}


def _last(lines: list[Line], name: str) -> Any:
    return next((line[name] for line in reversed(lines) if name in line), None)
