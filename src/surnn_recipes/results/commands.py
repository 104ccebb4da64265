"""The command that makes a recorded run with the recipes as they are now."""

import shlex
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from surnn.config import RunConfig
from surnn.config.old_keys import current_flag
from surnn.runs.config_json import config_from_dict
from surnn.runs.folder import RunFolder
from surnn.train.flags import expand_abbreviations, value_of
from surnn.train.recipe_options import configure, with_seed
from surnn_recipes import RECIPES

from . import ResultsError


def command(seed: Path) -> str:
    """The command that makes a run with this configuration now: its original command, with flags
    for every option that the recipe or a resumption has changed since."""
    folder = RunFolder.open(seed)
    device, recorded = folder.environment()["device"], config_from_dict(folder.config())
    words = [current_flag(word) for word in shlex.split(folder.environment()["command"])]
    words += new_task_options(words, recorded)
    replayed = replay(words, device, recorded.train.seed)
    if replayed.task.name != recorded.task.name:
        raise ResultsError(
            f"{seed} was trained on {recorded.task.name}, and its recipe now has the task "
            f"{replayed.task.name}"
        )
    for part in ("task", "model", "gate", "train"):
        was, now = getattr(recorded, part), getattr(replayed, part)
        for name in (field.name for field in fields(was)):
            if getattr(was, name) != getattr(now, name):
                option, *values = flag(f"{part}.{name}", getattr(was, name))
                words = [*without(words, option_name(option).__eq__), option, *values]
    if replay(words, device, recorded.train.seed) != recorded:
        raise ResultsError(f"{seed}: {shlex.join(words)} gives another configuration")
    return shlex.join(words)


def new_task_options(words: list[str], recorded: RunConfig) -> list[str]:
    """Flags for options of the task that the recipe has changed since, and the command does not
    have. Without them a new option and an old flag may contradict each other."""
    now, was = RECIPES[words[2]]().task, recorded.task
    if now.name != was.name:
        return []
    given = {option_name(word) for word in words if word.startswith("--")}
    flags = (
        flag(f"task.{field.name}", getattr(was, field.name))
        for field in fields(was)
        if getattr(was, field.name) != getattr(now, field.name)
    )
    return [word for option in flags if option_name(option[0]) not in given for word in option]


def replay(words: list[str], device: str, seed: int) -> RunConfig:
    """The configuration of one seed that ``surnn reproduce ...`` makes on such a device."""
    _, _, name, *flags = words
    config, _ = configure(RECIPES[name], flags, device == "cpu", value_of(flags, "--budget"))
    return with_seed(config, seed)


def flag(name: str, value: Any) -> list[str]:
    """An option and its value as words of a command line."""
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--{name.replace('.', '.no-')}"]
    return [f"--{name}", *map(str, value if isinstance(value, tuple) else (value,))]


def without(words: list[str], is_dropped: Callable[[str], bool]) -> list[str]:
    """A command without some options and their values. ``is_dropped`` gets the
    :func:`option_name`."""
    rest, dropped = [], False
    for word in words:
        if word.startswith("--"):
            dropped = is_dropped(option_name(word))
        if not dropped:
            rest.append(word)
    return rest


def option_name(word: str) -> str:
    """The option's name, without a value and without ``no-``."""
    (word,) = expand_abbreviations([word])
    return word.partition("=")[0].replace("_", "-").replace(".no-", ".")
