"""Training sessions in run folders: start a run, resume one, and the lines printed around it."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from surnn.config import HEAD_SIZE, RunConfig, TrainConfig
from surnn.errors import ConfigError, RunError, option_errors
from surnn.nn.layers import SelectiveLayer
from surnn.runs.config_json import config_from_dict, config_to_dict
from surnn.runs.folder import FolderExists, RunFolder
from surnn.runs.loading import with_run_tokenizer
from surnn.runs.status import (
    RunStatus,
    best_validation,
    format_best,
    next_commands,
    partial_note,
    run_status,
    training_end,
)
from surnn.tasks.base import known_chance
from surnn.tasks.outside import trust

from .distributed import world_context
from .progress import print_line, progress_reporter
from .trainer import Trainer


class Session(NamedTuple):
    """How a session ended."""

    path: Path
    """The run's folder."""
    is_main: bool
    """Whether this process writes the record."""
    interrupted: bool
    """Whether a signal ended training."""


def start_run(
    name: str,
    config: RunConfig,
    out: Path | None = None,
    data: Path | None = None,
    *,
    weights: dict[str, Any] | None = None,
) -> Session:
    """Train a new run. Its folder is made after all options have been checked.

    Args:
        name: the task or recipe, for the name of the folder.
        config: every option.
        out: the new folder; by default ``runs/NAME/TIME``.
        data: a folder with data sets.
        weights: the weights to start with; None starts with random ones.
    """
    path = out or new_run_path(name)
    paths = [path] if out is not None else other_names(path)

    def open_folder(trainer: Trainer) -> RunFolder:
        if weights is not None:
            trainer.model.load_state_dict(weights)
        return _create_folder(paths, trainer)

    return _train(config, path, open_folder, data)


def resume_run(
    path: Path,
    checkpoint: str = "last",
    data: Path | None = None,
    *,
    change_train: Callable[[TrainConfig], TrainConfig] = lambda train: train,
    attach_data: Callable[[Any], Any] = lambda task: task,
) -> Session:
    """Resume a run from a checkpoint; without one it starts again.

    Args:
        path: the run's folder.
        checkpoint: last or previous.
        data: a folder with data sets.
        change_train: returns the training options, given those of the run.
        attach_data: returns the task with its data, if these are Python objects.
    """
    folder = RunFolder.open(path)
    original = _without_loggers(config_from_dict(folder.config()))
    with option_errors():
        train, task = change_train(original.train), attach_data(original.task)
        if getattr(task, "tokenizer", ""):  # the file that it names may have been deleted
            task = with_run_tokenizer(task, folder)
        config = replace(original, task=task, train=train)
    if not folder.has_checkpoint():
        return _restart(folder, config, data)
    status = run_status(folder, config, checkpoint)
    if status.step > train.steps:
        raise ConfigError(
            f"the run is already at step {status.step}, past --train.steps {train.steps}; use more "
            f"steps, for example --train.steps {2 * status.step}"
        )
    if status.status != "finished":
        return _train(config, path, lambda trainer: _same_data(folder, trainer), data, checkpoint)
    if train != original.train:
        raise ConfigError(
            f"the run is finished at step {status.step} ({status.why}): the new options would have "
            f"no effect. To train longer, add {status.resume_flags}"
        )
    first = os.environ.get("RANK", "0") == "0"  # of torchrun's processes one prints
    if first:
        _print_lines(_finished_lines(folder, config, status))
    return Session(path, first, interrupted=False)


def _without_loggers(config: RunConfig) -> RunConfig:
    """A folder may come from somebody else, and may not name code that is imported."""
    if config.train.loggers and os.environ.get("RANK", "0") == "0":
        names = " ".join(config.train.loggers)
        _print_lines([f"loggers are not stored with a run; to continue: --train.loggers {names}"])
    return replace(config, train=replace(config.train, loggers=()))


def new_run_path(name: str) -> Path:
    """The default folder of a new run: runs/NAME/TIME."""
    return Path("runs") / name / datetime.now().strftime("%Y-%m-%d-%H%M%S")


def other_names(path: Path) -> Iterator[Path]:
    """``path``, and names to take if it exists: two runs may start in the same second."""
    yield path
    for number in itertools.count(2):
        yield path.with_name(f"{path.name}-{number}")


# ---------------------------------------------------------------------------- a session


def _train(
    config: RunConfig,
    path: Path,
    open_folder: Callable[[Trainer], RunFolder],
    data: Path | None,
    checkpoint: str | None = None,
) -> Session:
    """Train in the folder that ``open_folder`` gives, from its checkpoint if one is named."""
    trust(type(config.task))
    with world_context(config.train.timeout) as world:
        trainer = Trainer(config, data=data, world=world)
        if checkpoint is None:
            trainer.load_start_weights()
        with world.fail_together():
            if world.is_main or checkpoint is not None:
                trainer.use_folder(open_folder(trainer))
        if checkpoint is not None:
            trainer.resume(checkpoint)
        if world.is_main:
            _print_lines((describe_training(trainer), *training_notes(trainer)))
            trainer.reporter = progress_reporter(config, trainer.step, trainer.seconds)
        with trainer.reporter:
            metrics = trainer.fit()
        if world.is_main:
            _print_lines(result_lines(trainer, metrics))
        trainer.close()
        if trainer.folder is not None:
            path = trainer.folder.path
        return Session(path, world.is_main, trainer.interrupted)


def _create_folder(paths: Iterable[Path], trainer: Trainer) -> RunFolder:
    """A new folder of the first name that is free."""
    config, files = config_to_dict(trainer.config), trainer.task.files()
    last: FolderExists | None = None
    for path in paths:
        try:
            return RunFolder.create(path, config, files, data=trainer.data)
        except FolderExists as error:
            last = error
    assert last is not None
    raise last


def _same_data(folder: RunFolder, trainer: Trainer) -> RunFolder:
    with option_errors():
        trainer.task.check_data_unchanged(folder.path)
    return folder


def _restart(folder: RunFolder, config: RunConfig, data: Path | None) -> Session:
    if folder.is_record():
        raise RunError(
            f"{folder.path} was trained for {folder.last_step()} steps and its checkpoints were "
            "deleted: it cannot be resumed, and its log is left as it is. Train again in another "
            "folder"
        )

    def open_folder(trainer: Trainer) -> RunFolder:
        _same_data(folder, trainer)
        folder.lock()  # before the message: another process may be training here
        print_line("there is no checkpoint yet: the run starts again")
        return folder

    return _train(config, folder.path, open_folder, data)


# ---------------------------------------------------------------------------- its text


def describe_training(trainer: Trainer) -> str:
    """Task, model, batch and device in a line."""
    config, task = trainer.config, trainer.task
    weights = sum(p.numel() for p in trainer.model.parameters())
    size = task.size("train")
    sequences = "fresh sequences" if size is None else f"{size:,} sequences"
    parts = [
        f"{task.name}: {sequences} of {task.steps} time steps",
        f"{config.model.kind}: {weights:,} parameters",
        f"batch {config.train.batch}",
        str(trainer.device),
    ]
    if trainer.world.size > 1:
        parts.append(f"{trainer.world.size} processes")
    return ", ".join(parts)


def training_notes(trainer: Trainer) -> Iterator[str]:
    """The chance level of the metric, and options that may surprise."""
    model, train = trainer.config.model, trainer.config.train
    chance = known_chance(trainer.task)
    if chance is not None:
        yield f"chance level: {trainer.task.metric} {chance:.4g}"
    yield from trainer.task.data_notes()
    layers = [each for each in trainer.model.modules() if isinstance(each, SelectiveLayer)]
    dense = {each.state_size for each in layers if each.heads == 1 and each.state_size > HEAD_SIZE}
    if model.heads is None and dense:
        units = ", ".join(map(str, sorted(dense)))
        yield (
            f"a state of {units} units is one dense head, because it is not a multiple of "
            f"{HEAD_SIZE}: choose a --model.width that makes it one, or --model.heads"
        )
    if train.steps < train.warmup:
        yield (
            f"the learning rate rises over {train.warmup} steps, and the run ends after "
            f"{train.steps}: use more --train.steps, or a smaller --train.warmup"
        )
    if train.steps <= (easy := trainer.task.easy_batches):
        yield (
            f"the first {easy} steps train on an easier task than is validated, and the run ends "
            f"after {train.steps}: use more --train.steps, or a smaller --task.growing"
        )


def result_lines(trainer: Trainer, metrics: dict[str, Any]) -> Iterator[str]:
    """The last and best metric, notes on a short time budget, and the commands that can follow."""
    metric, train = trainer.task.metric, trainer.config.train
    if metrics:
        best = f", best {trainer.best:.4g}" if trainer.best is not None else ""
        yield f"valid {metric} {metrics[metric]:.4g}{partial_note(metrics)}{best}"
    timed = train.minutes is not None and not trainer.interrupted
    if timed and trainer.step < train.warmup:
        yield (
            f"only {trainer.step} steps fitted into the time, and the learning rate rises over "
            f"{train.warmup}: use a smaller --train.batch or model, a GPU, or more time"
        )
    easy = trainer.task.easy_batches
    if timed and 0 < trainer.step <= easy:
        yield (
            f"only {trainer.step} steps fitted into the time, and the first {easy} train on an "
            "easier task than is validated: use a smaller --task.growing, a GPU, or more time"
        )
    if trainer.folder is not None:
        yield f"saved in {trainer.folder.path}"
        end = training_end(train, vars(trainer))
        status, flags = ("stopped", "") if end is None else ("finished", end.resume_flags)
        yield from _command_lines(trainer.folder.path, status, flags)


def _finished_lines(folder: RunFolder, config: RunConfig, status: RunStatus) -> Iterator[str]:
    best = format_best(best_validation(folder.metrics(), config.task), config.task)
    yield f"finished at step {status.step}, {status.why}; validation: {best}. Nothing was changed"
    yield from _command_lines(folder.path, status.status, status.resume_flags)


def _command_lines(path: Path, status: str, resume_flags: str) -> Iterator[str]:
    for name, command in next_commands(path, status, resume_flags):
        yield f"{name + ':':8} {command}"


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print_line(line)
