"""A run that begins with the weights of another one, ``--train.start RUN``.

What was learned goes on; the optimizer, the schedule and the time begin anew.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from .config import OURS, RunConfig
from .gates import GATES
from .models import gate_options
from .runs import RunError, RunFolder
from .tasks.base import Task
from .tasks.language import Language
from .tasks.tokenized import Tokenized
from .trained import portable_config

SHOWN = 4
"""Weights that do not fit, by name; most often they all have one reason."""


def options_of(run: Path, config: RunConfig) -> RunConfig:
    """``config`` with the model and gates of ``run``, its tokens and windows if both are of texts,
    and what cannot be without these."""
    folder = RunFolder.open(run.expanduser())
    was = portable_config(folder)
    train = replace(config.train, rate_penalty=was.train.rate_penalty)
    if was.model.half_state:
        train = replace(train, precision=was.train.precision)
    gate = was.gate
    if clock_of(was) is not None:  # it stays the one that was trained, whatever the length is now
        gate = replace(gate, horizon=clock_of(was))
    return RunConfig(_read_alike(folder, was.task, config.task), was.model, gate, train)


def weights_for(model: nn.Module, config: RunConfig) -> tuple[dict[str, Tensor], int]:
    """The best weights of the run that ``config`` starts from, and their update.

    Refused if they are not of a model like this one, or of other tokens or another clock.
    """
    folder = RunFolder.open(Path(config.train.start or "").expanduser())
    was = portable_config(folder)
    _check_tokens(folder, was.task, config.task)
    _check_clock(folder, was, config)
    if not any((folder.path / name).exists() for name in ("best", "best.old")):
        raise RunError(
            f"{folder.path} has no best weights yet, as no validation of it came to an end: let it "
            f"go on first, surnn resume {folder.path}"
        )
    weights, state = folder.load("best")
    here = {name: list(value.shape) for name, value in model.state_dict().items()}
    there = {name: list(value.shape) for name, value in weights.items()}
    if odd := [name for name in here | there if here.get(name) != there.get(name)]:
        told = [f"{n} ({there.get(n, 'not')} there, {here.get(n, 'not')} here)" for n in odd]
        more = f" and {len(odd) - SHOWN} more" if len(odd) > SHOWN else ""
        raise ValueError(
            f"weights of {folder.path} do not fit this run: {', '.join(told[:SHOWN])}{more}. "
            + _differences(was, config)
        )
    return weights, state["step"]


def clock_of(config: RunConfig) -> int | None:
    """How many steps its gates are made for; None where that is of no meaning."""
    if config.model.kind not in OURS or "horizon" not in gate_options(GATES[config.gate.kind]):
        return None
    return config.gate.horizon or config.task.steps


def _read_alike(folder: RunFolder, was: Task, task: Any) -> Any:
    """A text in the tokens that were learned, and in windows of the same length."""
    if not isinstance(was, Language) or not isinstance(task, Language):
        return task
    task = replace(task, context=was.context, streams=was.streams)
    if not isinstance(task, Tokenized):
        return task
    if not isinstance(was, Tokenized) or was.tokens == "bytes":
        return replace(task, tokens="bytes", vocabulary=type(task).vocabulary, tokenizer="")
    file = str(_tokenizer(folder).absolute())
    return replace(task, tokens="bpe", vocabulary=was.vocabulary_size, tokenizer=file)


def _tokenizer(folder: RunFolder) -> Path:
    file = folder.path / "tokenizer.json"
    if not file.exists():
        raise RunError(f"{file} is gone, which says what the tokens of this run are: bring it back")
    return file


def _check_tokens(folder: RunFolder, was: Task, task: Task) -> None:
    """The same number of them may mean others."""
    if not isinstance(was, Tokenized) or not isinstance(task, Tokenized) or was.tokens == "bytes":
        return
    file = _tokenizer(folder)
    if task.files().get("tokenizer.json") != file.read_text(encoding="utf-8"):
        raise ValueError(
            f"the weights of {folder.path} are of its own tokens, and this run has others: use "
            f"--task.tokens bpe --task.vocabulary {was.vocabulary} --task.tokenizer {file}"
        )


def _check_clock(folder: RunFolder, was: RunConfig, config: RunConfig) -> None:
    """Its length is no weight, and would change unseen with that of the sequences."""
    there, here = clock_of(was), clock_of(config)
    unseen = config.gate.horizon is None and config.gate.kind == was.gate.kind
    if unseen and there is not None and there != here:
        raise ValueError(
            f"the gates of {folder.path} go by a clock made for {there} steps, and would go by one "
            f"for {here} here: keep theirs with --gate.horizon {there}"
        )


def _differences(was: RunConfig, config: RunConfig) -> str:
    """Why weights do not fit, and what to do."""
    there, here = ((each.task.input, each.task.output) for each in (was, config))
    if there != here:
        return (
            f"That run was trained for {there[0]} and {there[1]}, and {config.task.name} has "
            f"{here[0]} and {here[1]}: use a task like its own, or leave out train.start"
        )
    found = []
    for part in ("model", "gate"):
        theirs, mine = asdict(getattr(was, part)), asdict(getattr(config, part))
        if part == "gate":  # which may be left to the task; of kinds without a clock, None
            theirs["horizon"], mine["horizon"] = clock_of(was), clock_of(config)
        found += [
            f"--{part}.{name.replace('_', '-')} {theirs[name]} instead of {mine[name]}"
            for name in theirs
            if theirs[name] != mine[name]
        ]
    return f"Take its options, {', '.join(found)}; or leave out train.start"
