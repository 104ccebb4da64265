"""A configuration from flags: every option of a run is a flag."""

import dataclasses
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any, get_args

import torch

from surnn.config import GATE_CONFIGS, GateKind, ModelKind, RunConfig
from surnn.config.gate import check_gate_option, gate_config, gate_option_names
from surnn.config.old_keys import check_renamed
from surnn.config.run import check_gated
from surnn.errors import ConfigError, option_errors, suggestion
from surnn.plugins import load_gates
from surnn.runs.config_json import config_from_dict
from surnn.runs.folder import RunFolder
from surnn.tasks import Task, load_task, task_names
from surnn.tasks.outside import is_outside, load_outside

from .automatic import Choice, choose, with_choices


def task_class(name: str) -> type:
    """The class of the task ``name``, or FILE.py:CLASS; for an unknown one an error with a
    suggestion."""
    if is_outside(name):
        return load_outside(name)
    if name not in task_names():
        hint = suggestion(name, task_names(), "see surnn list tasks; it comes before all flags")
        raise ConfigError(f"there is no task {name!r}; {hint}")
    return load_task(name)


def parse(
    command: str, flags: list[str], defaults: RunConfig, **extra: Any
) -> tuple[RunConfig, Any]:
    """A run's configuration from flags, and the flags that are no part of it: out, data, extra.

    Args:
        command: the words before the flags, for messages.
        flags: the words after it.
        defaults: the configuration without flags.
        extra: further flags, as (type, default, help).
    """
    import tyro  # noqa: PLC0415 (slow to import)

    from . import flag_help  # noqa: PLC0415 (tyro)

    flags = expand_abbreviations(flags)
    with option_errors():
        defaults = with_kinds(defaults, flags)
        check_gate_flags(flags, defaults)
    extra = {
        "out": (Path | None, None, "New folder for the run. None: runs/NAME/TIME."),
        "data": (Path | None, None, "Folder to search for data sets first."),
        **extra,
    }
    parts = {part: getattr(defaults, part) for part in ("task", "model", "gate", "train")}
    options = dataclasses.make_dataclass(
        "Options",
        [
            *(
                (n, flag_help.group(default), dataclasses.field(default=default))
                for n, default in parts.items()
            ),
            *(
                (n, flag_help.flag(kind, text, default), dataclasses.field(default=default))
                for n, (kind, default, text) in extra.items()
            ),
        ],
        frozen=True,
    )
    options.__doc__ = "Every option of a run is a flag."
    rules = flag_help.registry()
    chosen = tyro.cli(options, prog=command, args=flags, config=(), registry=rules)
    task, train = (
        with_absolute_paths(getattr(chosen, part), parts[part]) for part in ("task", "train")
    )
    with option_errors():
        return RunConfig(task, chosen.model, chosen.gate, train), chosen


def with_data_choices(
    command: str, flags: list[str], defaults: RunConfig
) -> tuple[RunConfig, list[Choice]]:
    """Defaults for the data that the flags name, and the choices among them.

    Options of the task that its data determine are completed; options of the model, gates and
    training are chosen from them. Other tasks have the defaults as they are.
    """
    own = _flags_of("--task.", flags)
    if type(defaults.task).facts is Task.facts or not own:
        return defaults, []
    folder = value_of(flags, "--data")
    data = None if folder is None else Path(folder)
    with option_errors():
        task = override(command, "task", own, defaults.task).complete(data)
        task.prepare(torch.device("cpu"), data)
        steps = value_of(flags, "--train.steps")
        choices = choose(task.facts(), int(steps) if steps and steps.isdigit() else None)
        return with_choices(dataclasses.replace(defaults, task=task), choices), choices


def _flags_of(prefix: str, flags: list[str]) -> list[str]:
    """The flags that begin with ``prefix``, with their values."""
    chosen, ours = [], False
    for word in flags:
        if word.startswith("--"):
            ours = word.startswith(prefix)
        if ours:
            chosen.append(word)
    return chosen


def override(command: str, group: str, flags: list[str], default: Any) -> Any:
    """``default`` with the options that flags such as ``--task.delay 500`` set."""
    import tyro  # noqa: PLC0415 (slow to import)

    from . import flag_help  # noqa: PLC0415 (tyro)

    options = dataclasses.make_dataclass(
        "Options",
        [(group, flag_help.group(default), dataclasses.field(default=default))],
        frozen=True,
    )
    options.__doc__ = None
    rules = flag_help.registry()
    flags = expand_abbreviations(flags)
    chosen = tyro.cli(options, prog=command, args=flags, config=(), registry=rules)
    return with_absolute_paths(getattr(chosen, group), default)


def with_absolute_paths(options: Any, default: Any) -> Any:
    """``options`` with absolute paths of files, so that the run can be resumed in another folder.

    Names of files that are not here stay as they are: they may be in a folder of data sets.
    """
    paths = {}
    for name in ("path", "valid_path", "test_path", "tokenizer", "start"):
        file = getattr(options, name, None)
        if file and file != getattr(default, name) and Path(file).expanduser().exists():
            paths[name] = str(Path(file).expanduser().absolute())
    return dataclasses.replace(options, **paths) if paths else options


def print_run_flags(command: str, run: Path | None, group: str) -> None:
    """Print every flag of ``group`` with its value in ``run``; without a run, how to see them."""
    if run is None:
        print(f"\n{command} RUN --help lists every --{group}. option and its value in that run.")
        return
    config = config_from_dict(RunFolder.open(run).config())
    print()
    override(f"{command} {run}", group, ["--help"], getattr(config, group))


def expand_abbreviations(flags: list[str]) -> list[str]:
    """The flags with ``--train.lr``, the only abbreviation, in full. Old names are refused."""
    check_renamed(flags)
    return [re.sub(r"^--train\.lr(?==|$)", "--train.learning-rate", flag) for flag in flags]


def value_of(flags: list[str], name: str) -> str | None:
    """The value in ``--name value`` or ``--name=value``, before the flags are parsed."""
    value = None
    for flag, following in zip_longest(flags, flags[1:]):
        if flag == name:
            value = following
        elif flag.startswith(f"{name}="):
            value = flag.partition("=")[2]
    return value


def with_kinds(config: RunConfig, flags: list[str]) -> RunConfig:
    """``config`` with the kinds of model and gate in the flags, without options they do not have.

    Options in ``config`` are defaults and can be dropped; flags that do not fit are errors.
    """
    load_gates()
    model, gate = value_of(flags, "--model.kind"), value_of(flags, "--gate.kind")
    if model is not None and model != config.model.kind:
        config = config.with_model(_one_of("model", model, get_args(ModelKind)))
    if gate is not None and gate != config.gate.kind:
        config = _with_gate(config, _one_of("gate", gate, tuple(GATE_CONFIGS)))
    return config


def _with_gate(config: RunConfig, kind: GateKind) -> RunConfig:
    """``config`` with another kind of gate, and those of its options that this kind has too."""
    gate = gate_config(kind)
    for name, value in config.gate.changed().items():
        if name in gate_option_names(kind):
            gate = dataclasses.replace(gate, **{name: value})
    train = dataclasses.replace(
        config.train,
        anneal=config.train.anneal if gate.anneals else None,
        rate_penalty=config.train.rate_penalty if gate.has_target else 0.0,
        rate_ramp=config.train.rate_ramp if gate.has_target else None,
        margin_penalty=config.train.margin_penalty if gate.has_margin else 0.0,
        calibrate=config.train.calibrate and gate.sees_input,
        gate_learning_rate=config.train.gate_learning_rate if gate.learned else None,
    )
    model = config.model
    if kind == "open":
        model = dataclasses.replace(model, ungated_layers=0, max_rate=None)
    return dataclasses.replace(config, model=model, gate=gate, train=train)


def check_gate_flags(flags: list[str], config: RunConfig) -> None:
    """Refuse flags of gates that the kind of gate does not have, or the model has no use for."""
    names = [flag.partition("=")[0] for flag in flags if flag.startswith("--gate.")]
    options = [re.sub(r"^--gate\.(no-)?", "", name).replace("-", "_") for name in names]
    check_gated(config.model.kind, [f"gate.{option}" for option in options])
    for option in options:
        if option != "kind":
            check_gate_option(config.gate.kind, option)


def _one_of(what: str, name: str, known: tuple[str, ...]) -> Any:
    if name not in known:
        hint = suggestion(name, known, f"see surnn list {what}s")
        raise ConfigError(f"there is no {what} {name!r}; {hint}")
    return name
