"""Fine-tuning: a run that starts with the weights of another one, ``--train.start RUN``.

The weights are taken over; optimizer, schedules and time start from zero. A task with other answers
gets a new readout.
"""

from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from surnn.config import OURS, HorizonOptions, RunConfig
from surnn.data.text_files import read_text
from surnn.errors import ConfigError, RunError, option_errors
from surnn.runs.folder import RunFolder
from surnn.runs.loading import portable_config
from surnn.tasks.base import Task
from surnn.tasks.language import Language
from surnn.tasks.tokenized import Tokenized

MAX_NAMES = 4
"""Most names of misfitting weights in a message; usually all have one reason."""
READOUT = "head."
"""How the names of the readout's weights begin."""


class StartWeights(NamedTuple):
    """The weights that a run starts with."""

    weights: dict[str, Tensor]
    step: int
    """The optimizer step of the other run at which they were saved."""
    new_readout: bool
    """Whether the readout is not the other run's, because the answers differ."""


def with_options_of(run: Path, config: RunConfig) -> RunConfig:
    """``config`` with the model and gates of ``run``, the options that these require, and the
    tokens and windows of the run if both tasks are texts."""
    folder = RunFolder.open(run.expanduser())
    source = portable_config(folder)
    train = replace(config.train, rate_penalty=source.train.rate_penalty)
    if source.model.half_state:
        train = replace(train, precision=source.train.precision)
    gate = source.gate
    if gate_horizon(source) is not None:  # gates keep their clock, whatever the length is now
        gate = replace(gate, horizon=gate_horizon(source))
    with option_errors():
        task = _with_text_options(folder, source.task, config.task)
        return RunConfig(task, source.model, gate, train)


def load_weights(model: nn.Module, config: RunConfig) -> StartWeights:
    """The best weights of the run that ``config`` starts from.

    The readout stays ``model``'s own if the two tasks differ in their answers. Raises if other
    weights do not fit, or were trained with other tokens or another clock.
    """
    folder = RunFolder.open(Path(config.train.start or "").expanduser())
    source = portable_config(folder)
    _check_tokens(folder, source.task, config.task)
    _check_clock(folder, source, config)
    if folder.checkpoints.find("best") is None:
        raise RunError(
            f"{folder.path} has no best weights, because none of its validations has finished: "
            f"resume it first, surnn resume {folder.path}"
        )
    weights, state = folder.load("best")
    own = model.state_dict()
    new_readout = source.task.output != config.task.output
    if new_readout:
        weights = {n: value for n, value in weights.items() if not n.startswith(READOUT)}
        weights |= {n: value for n, value in own.items() if n.startswith(READOUT)}
    here = {name: list(value.shape) for name, value in own.items()}
    there = {name: list(value.shape) for name, value in weights.items()}
    if misfits := [name for name in here | there if here.get(name) != there.get(name)]:
        texts = [f"{n} ({there.get(n, 'not')} there, {here.get(n, 'not')} here)" for n in misfits]
        more = f" and {len(misfits) - MAX_NAMES} more" if len(misfits) > MAX_NAMES else ""
        raise ConfigError(
            f"weights of {folder.path} do not fit this run: {', '.join(texts[:MAX_NAMES])}{more}. "
            + _differences(source, config)
        )
    return StartWeights(weights, state["step"], new_readout)


def gate_horizon(config: RunConfig) -> int | None:
    """The number of time steps that the gates are made for; None for gates without a clock."""
    if config.model.kind not in OURS or not isinstance(config.gate, HorizonOptions):
        return None
    return config.gate.horizon or config.task.steps


def _with_text_options(folder: RunFolder, source: Task, task: Any) -> Any:
    """A text task with the tokens of the run, and with windows of the same length."""
    if not isinstance(source, Language) or not isinstance(task, Language):
        return task
    task = replace(task, context=source.context, streams=source.streams)
    if not isinstance(task, Tokenized):
        return task
    if not isinstance(source, Tokenized) or source.tokens == "bytes":
        return replace(task, tokens="bytes", vocabulary=type(task).vocabulary, tokenizer="")
    file = str(_tokenizer(folder).absolute())
    return replace(task, tokens="bpe", vocabulary=source.vocabulary_size, tokenizer=file)


def _tokenizer(folder: RunFolder) -> Path:
    file = folder.path / "tokenizer.json"
    if not file.exists():
        raise RunError(f"{file} is missing; it defines the tokens of this run: restore it")
    return file


def _check_tokens(folder: RunFolder, source: Task, task: Task) -> None:
    """Two tokenizers of the same size need not have the same tokens."""
    if not isinstance(source, Tokenized) or source.tokens == "bytes":
        return
    if not isinstance(task, Tokenized):
        return
    file = _tokenizer(folder)
    if task.files().get("tokenizer.json") != read_text(file):
        raise ConfigError(
            f"the weights of {folder.path} were trained with other tokens than this run's: use "
            f"--task.tokens bpe --task.vocabulary {source.vocabulary} --task.tokenizer {file}"
        )


def _check_clock(folder: RunFolder, source: RunConfig, config: RunConfig) -> None:
    """The horizon is no weight: it would silently change with the length of the sequences."""
    there, here = gate_horizon(source), gate_horizon(config)
    gate = config.gate
    implicit = isinstance(gate, HorizonOptions) and gate.horizon is None
    if implicit and gate.kind == source.gate.kind and there is not None and there != here:
        raise ConfigError(
            f"the gates of {folder.path} have a clock for {there} time steps, and here it would be "
            f"{here}: keep theirs with --gate.horizon {there}"
        )


def _differences(source: RunConfig, config: RunConfig) -> str:
    """Why weights do not fit, and how to fix it."""
    there, here = (each.task.input for each in (source, config))
    if there != here:
        return (
            f"That run reads {there}, and {config.task.name} has {here}: use a task with the same "
            "input, or leave out train.start"
        )
    flags = []
    for part in ("model", "gate"):
        theirs, own = asdict(getattr(source, part)), asdict(getattr(config, part))
        if part == "gate":  # the horizon may be the task's; another kind has other options
            theirs["horizon"], own["horizon"] = gate_horizon(source), gate_horizon(config)
            own = {f.name: f.default for f in fields(source.gate)} | own
        flags += [
            f"--{part}.{name.replace('_', '-')} {theirs[name]} instead of {own[name]}"
            for name in theirs
            if theirs[name] != own[name]
        ]
    return f"Use its options, {', '.join(flags)}; or leave out train.start"
