"""Train a model on a task.

    surnn train copying --task.delay 200 --model.heads 32 --train.steps 2000
    surnn train psmnist --help          every option of that task, model, gate and training
    surnn train text_file --task.path book.txt --train.start RUN
                                        from the weights of another run: fine-tuning

Several processes: torchrun --nproc-per-node 2 -m surnn train copying ...
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cli import CommandError

if TYPE_CHECKING:
    from ..config import RunConfig
    from ..runs import RunFolder
    from ..train import Trainer

HELP = "train a model on a task"
FLAGS = ("--",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn train``."""
    parser.add_argument("task", nargs="?", help="its name; see surnn list tasks")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="see surnn train TASK --help")


def run(arguments: argparse.Namespace) -> None:
    """Train, and say how it ended."""
    if arguments.task is None or arguments.task.startswith("-"):
        raise CommandError(
            "which task? For example: surnn train copying. surnn list tasks shows them all, and "
            "surnn train TASK --help every option"
        )
    from ..config import RunConfig  # noqa: PLC0415
    from ..finetune import options_of  # noqa: PLC0415 (torch)
    from ..runs import RunError  # noqa: PLC0415
    from .configure import parse, task_class, value_of  # noqa: PLC0415

    name = arguments.task
    defaults = RunConfig(task_class(name)())
    other = value_of(arguments.flags, "--train.start")
    try:
        defaults = defaults if other is None else options_of(Path(other), defaults)
    except (RunError, ValueError) as error:
        raise CommandError(f"--train.start {other}: {error}") from error
    config, chosen = parse(f"surnn train {name}", arguments.flags, defaults)
    start(name, config, chosen.out, chosen.data)


def start(name: str, config: "RunConfig", out: Path | None, data: Path | None) -> Path | None:
    """A new run. Its folder is made when all that can be wrong before training has not been.

    Gives the folder's path, in the first process.
    """
    path = out or fresh_path(name)
    return path if fit(config, lambda trainer: _create(path, trainer), data) else None


def fresh_path(name: str) -> Path:
    """The folder of a run that was given none."""
    return Path("runs") / name / datetime.now().strftime("%Y-%m-%d-%H%M%S")


def _create(path: Path, trainer: "Trainer") -> "RunFolder":
    from ..runs import RunFolder, config_to_dict, write_atomically  # noqa: PLC0415 (torch)

    folder = RunFolder.create(path, config_to_dict(trainer.config), data=trainer.data)
    for name, text in trainer.task.files().items():
        write_atomically(path / name, text)
    return folder


def fit(
    config: "RunConfig",
    folder: "Callable[[Trainer], RunFolder]",
    data: Path | None,
    checkpoint: str | None = None,
) -> bool:
    """Train in ``folder``, from its checkpoint if one is named; whether this is the process that
    keeps the record."""
    from ..distributed import FailedElsewhere, join, leave  # noqa: PLC0415 (torch)
    from ..runs import RunError  # noqa: PLC0415
    from ..train import NotFinite, Silent, Trainer  # noqa: PLC0415
    from .show import reporter, say  # noqa: PLC0415

    try:
        world = join()
        trainer = Trainer(config, data=data, world=world)
        if checkpoint is None:
            trainer.begin()
        with world.failing_together():
            if world.first or checkpoint is not None:
                trainer.keep(folder(trainer))
        if checkpoint is not None:
            trainer.resume(checkpoint)
        trainer.reporter = Silent()
        if world.first:
            for line in (describe(trainer), *notes(trainer)):
                say(line)
            trainer.reporter = reporter(config, trainer.step, trainer.seconds)
        with trainer.reporter:
            result = trainer.fit()
        if world.first:
            _tell(trainer, result)
        trainer.close()
    except (RunError, NotFinite, ValueError, FailedElsewhere) as error:
        leave(together=False)
        raise CommandError(str(error)) from error
    leave()
    if trainer.interrupted:
        sys.exit(3)
    return world.first


def describe(trainer: "Trainer") -> str:
    """What is trained, in a line."""
    config, task = trainer.config, trainer.task
    weights = sum(p.numel() for p in trainer.model.parameters())
    size = task.size("train")
    sequences = "fresh sequences" if size is None else f"{size:,} sequences"
    told = [
        f"{task.name}: {sequences} of {task.steps} steps",
        f"{config.model.kind}: {weights:,} parameters",
        f"batch {config.train.batch}",
        str(trainer.device),
    ]
    if trainer.world.size > 1:
        told.append(f"{trainer.world.size} processes")
    return ", ".join(told)


def notes(trainer: "Trainer") -> Iterator[str]:
    """What to compare numbers with, and what may surprise later."""
    from ..config import HEAD_SIZE  # noqa: PLC0415
    from ..layers.base import SelectiveLayer  # noqa: PLC0415 (torch)
    from ..tasks.base import known_chance  # noqa: PLC0415

    model, train = trainer.config.model, trainer.config.train
    chance = known_chance(trainer.task)
    if chance is not None:
        yield f"chance level: {trainer.task.metric} {chance:.4g}"
    layers = [each for each in trainer.model.modules() if isinstance(each, SelectiveLayer)]
    odd = {each.state_size for each in layers if each.heads == 1 and each.state_size > HEAD_SIZE}
    if model.heads is None and odd:
        units = ", ".join(map(str, sorted(odd)))
        yield (
            f"a state of {units} units is one dense head, as it is no multiple of {HEAD_SIZE}: "
            "take a --model.width that makes it one, or choose --model.heads"
        )
    if train.steps < train.warmup:
        yield (
            f"the learning rate rises over {train.warmup} updates, and the run ends after "
            f"{train.steps}: take more --train.steps, or a smaller --train.warmup"
        )
    if train.steps <= (easy := trainer.task.easy_batches):
        yield (
            f"the first {easy} updates are of something easier than what is validated, and the run "
            f"ends after {train.steps}: take more --train.steps, or a smaller --task.growing"
        )


def _tell(trainer: "Trainer", result: dict[str, Any]) -> None:
    from .show import part, say  # noqa: PLC0415 (rich)
    from .standing import ending, what_next  # noqa: PLC0415

    metric = trainer.task.metric
    if result:
        say(
            f"valid {metric} {result[metric]:.4g}{part(result)}"
            + (f", best {trainer.best:.4g}" if trainer.best is not None else "")
        )
    train = trainer.config.train
    if train.minutes is not None and trainer.step < train.warmup and not trainer.interrupted:
        say(
            f"only {trainer.step} updates fitted into the time, and the learning rate rises over "
            f"{train.warmup}: take a smaller --train.batch or model, a GPU, or more time"
        )
    easy = trainer.task.easy_batches
    if train.minutes is not None and 0 < trainer.step <= easy and not trainer.interrupted:
        say(
            f"only {trainer.step} updates fitted into the time, and the first {easy} are of "
            "something easier than what is validated: take a smaller --task.growing, a GPU, or "
            "more time"
        )
    if trainer.folder is not None:
        path = trainer.folder.path
        say(f"kept in {path}")
        end = ending(train, vars(trainer))
        status, more = ("stopped", "") if end is None else ("finished", end[1])
        for what, command in what_next(path, status, more):
            say(f"{what + ':':8} {command}")
