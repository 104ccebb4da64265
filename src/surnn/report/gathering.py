"""All that a run's folder tells, as plain data for a page."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..commands.standing import best_of, standing
from ..config import RunConfig
from ..models import SequenceModel
from ..rate_words import is_soft
from ..runs import RunError, RunFolder, config_from_dict, config_to_dict, flat
from ..tasks.base import Task, known_chance
from ..trained import Trained, load
from .curves import Line, clock, curves
from .gates import NoGates, at_hand, pictures, prepare

Say = Callable[[str], None]
UNTOLD = ("data",)
"""Of the environment: folders, which are nobody's business who is given the page."""
IDLE = {
    "train.seed", "train.device", "train.log_every", "train.checkpoint_every",
    "train.evaluate_every", "train.tensorboard",
}  # fmt: skip
"""Options of training that do not make a run another one."""


def gather(
    path: Path,
    name: str | None = None,
    *,
    gates: bool = True,
    data: Path | None = None,
    say: Say = lambda text: None,
) -> dict[str, Any]:
    """What is known of the run in ``path``.

    Args:
        path: its folder.
        name: what it is called on the page.
        gates: load the trained model and look at its gates.
        data: a folder with data sets, for gates that see the input.
        say: told what is being done, and how long it will take.
    """
    folder = RunFolder.open(path)
    lines = folder.metrics()
    found: dict[str, Any] = {"name": name or path.resolve().name, **logged(folder, lines)}
    notes = found["notes"]
    try:
        config = config_from_dict(folder.config())
    except RunError as error:  # of another version of surnn; what was logged can be shown
        notes.append(str(error))
        unread = {"missing": "the configuration cannot be read"}
        return found | {"curves": curves(lines, soft=False), "gates": unread}
    task = config.task
    found["curves"] = curves(lines, is_soft(config))
    found["soft"] = [is_soft(config, layer) for layer in range(len(found["update_rate"] or ()))]
    found["defaults"] = flat(config_to_dict(RunConfig(type(task)())))
    try:
        found["status"] = standing(folder, config)._asdict()
    except RunError as error:
        notes.append(str(error))
    trained = _trained(path, say) if gates else "left out, as was asked for (--no-gates)"
    if isinstance(trained, Trained):
        task, model = trained.task, trained.model
        try:
            found["gates"] = pictures(trained, data, say)
        except NoGates as error:
            found["gates"] = {"missing": str(error)}
    else:
        model, found["gates"] = _untrained(config), {"missing": trained}
    found["parameters"] = sum(p.numel() for p in model.parameters())
    if gates and known_chance(task) is None and at_hand(task, data):
        prepare(task, data, say)
    chance = known_chance(task)
    if chance is None:
        notes.append(
            f"chance is not known: it takes the data of {task.name}, which were not loaded"
        )
    found["metric"] = metric(task, lines) | {"chance": chance, "paper": paper(config)}
    return found


def logged(folder: RunFolder, lines: list[Line]) -> dict[str, Any]:
    """What the folder holds, taken as it is."""
    config, notes = folder.config(), []
    try:
        environment = folder.environment()
    except RunError as error:
        environment = {}
        notes.append(str(error))
    return {
        "task": config["task"]["name"],
        "model": config["model"]["kind"],
        "config": flat(config),
        "defaults": None,
        "metric": None,
        "parameters": None,
        "environment": _told(environment),
        "sessions": [_told(session) for session in folder.sessions()],
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
    """Best and last of validation."""
    valid = [line for line in lines if line["kind"] == "valid"]
    points = {"best": best_of(lines, task), "last": valid[-1] if valid else None}
    return {
        "name": task.metric,
        "higher_is_better": task.higher_is_better,
        "paper_of_task": task.paper,
        **{
            name: None if line is None else {"step": line["step"], "value": line[task.metric]}
            for name, line in points.items()
        },
    }


def paper(config: RunConfig) -> dict[str, Any] | None:
    """The paper's number for this very model and task, if one of its rows is that; and which
    options of training are not that row's."""
    from ..recipes import RECIPES  # noqa: PLC0415 (imports every task)

    mine = flat(config_to_dict(config))
    for recipe in RECIPES.values():
        theirs = recipe()
        same = (config.task, config.model, config.gate) == (theirs.task, theirs.model, theirs.gate)
        if recipe.paper is not None and same:
            row = flat(config_to_dict(theirs))
            other = [name for name in mine if mine[name] != row[name] and name not in IDLE]
            return {
                "value": recipe.paper,
                "recipe": recipe.name,
                "where": recipe.where,
                "called": recipe.called,
                "other": [name.removeprefix("train.") for name in other],
            }
    return None


# ---------------------------------------------------------------------------- parts


def _trained(path: Path, say: Say) -> Trained | str:
    """The run's model, with the best weights there are; or why there is none."""
    say("loading the model")
    why = []
    for checkpoint in ("best", "last"):
        try:
            return load(path, checkpoint)
        except RunError as error:
            why.append(str(error))
    return "; ".join(why)


def _untrained(config: RunConfig) -> SequenceModel:
    """As big as the trained one."""
    task, kind = config.task, config.model
    if kind.backend == "triton":  # which may not be here
        kind = replace(kind, backend="auto")
    return SequenceModel(kind, config.gate, task.input, task.output, task.steps)


def _told(environment: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in environment.items() if name not in UNTOLD}


def _last(lines: list[Line], name: str) -> Any:
    return next((line[name] for line in reversed(lines) if name in line), None)
