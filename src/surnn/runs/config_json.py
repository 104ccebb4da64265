"""A run's configuration as JSON: config.json in its folder."""

from dataclasses import asdict, fields, is_dataclass
from typing import Any, get_type_hints

from surnn.config import GATE_CONFIGS, ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.config.old_keys import upgrade
from surnn.errors import RunError
from surnn.plugins import load_gates
from surnn.tasks import UNLISTED, load_task, task_names
from surnn.tasks.outside import load_source, source_of

from .values import fits

PARTS = ("task", "model", "gate", "train")
SOURCE = "source"
"""Key of a task of the user: the file that it is in. No task has an option of this name."""


def config_to_dict(config: RunConfig) -> dict[str, Any]:
    """The configuration as JSON writes it: the task with its name, the gate with its kind."""
    source = source_of(type(config.task))
    named: dict[str, Any] = {"name": config.task.name} | (
        {} if source is None else {SOURCE: source}
    )
    task = named | task_options(config.task)
    return {"task": task, **{part: asdict(getattr(config, part)) for part in PARTS[1:]}}


def config_from_dict(values: dict[str, Any]) -> RunConfig:
    """The configuration in a run's folder, as this or an earlier version wrote it."""
    for part in PARTS:
        if not isinstance(values, dict) or not isinstance(values.get(part), dict):
            raise RunError(f"the run's configuration is damaged: it has no options of {part!r}")
    task, model, gate, train = (dict(upgrade(values)[part]) for part in PARTS)
    name, kind = task.pop("name", None), gate.get("kind", RhythmConfig.kind)
    source = task.pop(SOURCE, None)
    load_gates()
    names = () if source is not None else (*task_names(), *UNLISTED)
    for what, value, known in (("task", name, names), ("gate", kind, GATE_CONFIGS)):
        if value not in known and not (what == "task" and source is not None):
            raise RunError(
                f"the run's {what} {value!r} is none of this version of surnn: {', '.join(known)}"
            )
    try:
        return RunConfig(
            _from_dict(load_task(name) if source is None else load_source(source), task),
            _from_dict(ModelConfig, model),
            _from_dict(GATE_CONFIGS[kind], gate),
            _from_dict(TrainConfig, train),
        )
    except (ValueError, TypeError, AttributeError, OverflowError) as error:  # damaged, or old
        raise RunError(f"the run's configuration: {error}") from error


def _from_dict(kind: type, values: dict[str, Any]) -> Any:
    unknown = set(values) - {field.name for field in fields(kind)}
    if unknown:
        raise RunError(
            f"the run's configuration has {', '.join(sorted(unknown))}, which {kind.__name__} of "
            "this version of surnn does not know; another version wrote it"
        )
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    types = _types_of(kind)
    for name, value in options.items():
        if not fits(value, types.get(name, Any)):
            raise RunError(
                f"the run's configuration is damaged: {name} of {kind.__name__} is {value!r:.99}"
            )
    return kind(**options)


def _types_of(kind: type) -> dict[str, Any]:
    """The annotated types of options; none where a task of the user names a type that is gone."""
    try:
        return get_type_hints(kind)
    except (NameError, TypeError, AttributeError):
        return {}


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested options by their full names: ``{"train.steps": 100}``."""
    options: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            options |= flat(value, f"{prefix}{name}.")
        else:
            options[prefix + name] = list(value) if isinstance(value, tuple) else value
    return options


def task_options(task: Any) -> dict[str, Any]:
    """The options of a task."""
    return asdict(task) if is_dataclass(task) and not isinstance(task, type) else {}
