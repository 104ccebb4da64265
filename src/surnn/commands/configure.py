"""From flags to a configuration and back: every field is a flag."""

import dataclasses
import difflib
from pathlib import Path
from typing import Any

from ..cli import CommandError
from ..config import GateConfig, ModelConfig, RunConfig, TrainConfig
from ..tasks import TASKS, load_task


def task_class(name: str) -> type:
    """The class of task ``name``; a suggestion if there is none."""
    if name not in TASKS:
        close = difflib.get_close_matches(name, TASKS, 1)
        hint = f"did you mean {close[0]!r}?" if close else "see surnn list tasks"
        raise CommandError(f"there is no task {name!r}; {hint}")
    return load_task(name)


def parse(name: str, flags: list[str], defaults: RunConfig | None = None) -> Any:
    """A run's configuration, output and data folder, from flags."""
    import tyro  # noqa: PLC0415 (slow to import)

    made = defaults or RunConfig(task_class(name)())
    options = dataclasses.make_dataclass(
        "Options",
        [
            ("task", type(made.task), dataclasses.field(default=made.task)),
            ("model", ModelConfig, dataclasses.field(default=made.model)),
            ("gate", GateConfig, dataclasses.field(default=made.gate)),
            ("train", TrainConfig, dataclasses.field(default=made.train)),
            ("out", Path | None, dataclasses.field(default=None)),
            ("data", Path | None, dataclasses.field(default=None)),
        ],
        frozen=True,
    )
    options.__doc__ = f"""Train on {name}.

    Args:
        out: new folder for the run (default runs/{name}/TIME).
        data: folder with data sets, looked in first.
    """
    return tyro.cli(options, prog=f"surnn train {name}", args=flags, config=())


def from_dict(values: dict[str, Any]) -> RunConfig:
    """The configuration that a run's folder holds."""
    task = dict(values["task"])
    kind = task_class(task.pop("name"))
    return RunConfig(
        _make(kind, task), _make(ModelConfig, values["model"]), _make(GateConfig, values["gate"]),
        _make(TrainConfig, values["train"]),
    )  # fmt: skip


def _make(kind: type, values: dict[str, Any]) -> Any:
    known = {f.name for f in dataclasses.fields(kind)}
    unknown = set(values) - known
    if unknown:
        raise CommandError(
            f"the run's configuration has {', '.join(sorted(unknown))}, which this version of "
            f"{kind.__name__} does not know; it was made by another version of surnn"
        )
    tuples = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return kind(**tuples)
