"""From flags to a configuration and back: every field is a flag."""

import dataclasses
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any, get_args

from ..cli import CommandError, suggestion
from ..config import GateConfig, GateKind, ModelConfig, ModelKind, RunConfig, TrainConfig
from ..runs import RunError, RunFolder, config_from_dict
from ..tasks import TASKS, load_task


def task_class(name: str) -> type:
    """The class of task ``name``; a suggestion if there is none."""
    if name not in TASKS:
        hint = suggestion(name, TASKS, "see surnn list tasks; it comes before all flags")
        raise CommandError(f"there is no task {name!r}; {hint}")
    return load_task(name)


def parse(
    command: str, flags: list[str], defaults: RunConfig, **extra: Any
) -> tuple[RunConfig, Any]:
    """A run's configuration from flags, and the flags that are no part of it: out, data, extra.

    Args:
        command: what was typed before the flags, for messages.
        flags: all after it.
        defaults: of the fields.
        extra: further flags, as (type, default, help).
    """
    import tyro  # noqa: PLC0415 (slow to import)

    flags = spelled_out(flags)
    try:
        made = with_kinds(defaults, flags)
    except ValueError as error:
        raise CommandError(str(error)) from error
    extra = {
        "out": (Path | None, None, "new folder for the run (default: runs/NAME/TIME)."),
        "data": (Path | None, None, "folder with data sets, looked in first."),
        **extra,
    }
    options = dataclasses.make_dataclass(
        "Options",
        [
            ("task", type(made.task), dataclasses.field(default=made.task)),
            ("model", ModelConfig, dataclasses.field(default=made.model)),
            ("gate", GateConfig, dataclasses.field(default=made.gate)),
            ("train", TrainConfig, dataclasses.field(default=made.train)),
            *(
                (name, kind, dataclasses.field(default=old))
                for name, (kind, old, _) in extra.items()
            ),
        ],
        frozen=True,
    )
    told = "\n".join(f"    {name}: {text}" for name, (_, _, text) in extra.items())
    options.__doc__ = f"Every field of the configuration is a flag.\n\nArgs:\n{told}\n"
    chosen = tyro.cli(options, prog=command, args=flags, config=())
    task, train = (
        with_whole_paths(getattr(chosen, part), getattr(made, part)) for part in ("task", "train")
    )
    try:
        return RunConfig(task, chosen.model, chosen.gate, train), chosen
    except ValueError as error:
        raise CommandError(str(error)) from error


def override(command: str, group: str, flags: list[str], default: Any) -> Any:
    """``default`` with the fields that flags such as ``--task.delay 500`` name."""
    import tyro  # noqa: PLC0415 (slow to import)

    options = dataclasses.make_dataclass(
        "Options", [(group, type(default), dataclasses.field(default=default))], frozen=True
    )
    options.__doc__ = None
    chosen = tyro.cli(options, prog=command, args=spelled_out(flags), config=())
    return with_whole_paths(getattr(chosen, group), default)


def with_whole_paths(options: Any, default: Any) -> Any:
    """Files that flags name from here, from anywhere: runs go on in other folders too.

    Names of what is not here are left: they may be in a folder of data sets.
    """
    whole = {}
    for name in ("path", "valid_path", "test_path", "tokenizer", "start"):
        file = getattr(options, name, None)
        if file and file != getattr(default, name) and Path(file).expanduser().exists():
            whole[name] = str(Path(file).expanduser().absolute())
    return dataclasses.replace(options, **whole) if whole else options


def help_of_run(command: str, run: Path | None, group: str) -> None:
    """Every flag of ``group`` and what it is in ``run``; without one, where to find them."""
    if run is None:
        print(f"\n{command} RUN --help lists every --{group}. option, and what it is in that run.")
        return
    try:
        config = config_from_dict(RunFolder.open(run).config())
    except RunError as error:
        raise CommandError(str(error)) from error
    print()
    override(f"{command} {run}", group, ["--help"], getattr(config, group))


def spelled_out(flags: list[str]) -> list[str]:
    """With the one abbreviation that everybody types."""
    return [re.sub(r"^--train\.lr(?==|$)", "--train.learning-rate", flag) for flag in flags]


def value_of(flags: list[str], name: str) -> str | None:
    """What ``--name value`` or ``--name=value`` says, before the flags are parsed."""
    found = None
    for flag, following in zip_longest(flags, flags[1:]):
        if flag == name:
            found = following
        elif flag.startswith(f"{name}="):
            found = flag.partition("=")[2]
    return found


def with_kinds(config: RunConfig, flags: list[str]) -> RunConfig:
    """The kinds of model and gate that the flags name, less what they have no use for.

    Defaults of one kind are no mistakes of the one who asks for another; what is typed may be.
    """
    model, gate = value_of(flags, "--model.kind"), value_of(flags, "--gate.kind")
    if model is not None and model != config.model.kind:
        config = config.beside(_one_of("model", model, get_args(ModelKind)))
    if gate is not None and gate != config.gate.kind:
        _one_of("gate", gate, get_args(GateKind))
        config = _with_gate(config, gate)
    return config


def _with_gate(config: RunConfig, kind: Any) -> RunConfig:
    from ..models import make_gate  # noqa: PLC0415 (torch)

    gate = GateConfig(kind)
    for name, value in config.gate.given().items():
        try:
            make_gate(dataclasses.replace(gate, **{name: value}), 1)
        except ValueError:
            continue
        gate = dataclasses.replace(gate, **{name: value})
    train = dataclasses.replace(
        config.train,
        anneal=config.train.anneal if gate.sampled else None,
        rate_penalty=0.0 if gate.target_rate is None else config.train.rate_penalty,
        gate_learning_rate=config.train.gate_learning_rate if gate.learned else None,
    )
    model = config.model
    if kind == "open":
        model = dataclasses.replace(model, open_layers=0, max_rate=None)
    return dataclasses.replace(config, model=model, gate=gate, train=train)


def _one_of(what: str, name: str, known: tuple[str, ...]) -> Any:
    if name not in known:
        hint = suggestion(name, known, f"see surnn list {what}s")
        raise CommandError(f"there is no {what} {name!r}; {hint}")
    return name
