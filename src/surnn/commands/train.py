"""Train a model on a task.

    surnn train copying --task.delay 200 --model.heads 32 --train.steps 2000
    surnn train psmnist --help          every option of that task, model, gate and training

Several processes: torchrun --nproc-per-node 2 -m surnn train copying ...
"""

import argparse
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..cli import CommandError
from ..config import RunConfig

if TYPE_CHECKING:
    from ..runs import RunFolder

HELP = "train a model on a task"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn train``."""
    parser.add_argument("task", help="its name; see surnn list tasks")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="see surnn train TASK --help")


def run(arguments: argparse.Namespace) -> None:
    """Train, and say how it ended."""
    from .configure import parse  # noqa: PLC0415 (torch)

    options = parse(arguments.task, arguments.flags)
    config = RunConfig(options.task, options.model, options.gate, options.train)
    start(arguments.task, config, options.out, options.data)


def start(name: str, config: RunConfig, out: Path | None, data: Path | None) -> None:
    """A new run. Its folder is made when all that can be wrong before training has not been."""
    stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    path = out or Path("runs") / name / stamp
    fit(config, lambda: _create(path, config), data)


def _create(path: Path, config: RunConfig) -> "RunFolder":
    from ..runs import RunFolder, config_to_dict  # noqa: PLC0415 (torch)

    return RunFolder.create(path, config_to_dict(config))


def fit(
    config: RunConfig,
    folder: "Callable[[], RunFolder]",
    data: Path | None,
    checkpoint: str | None = None,
) -> None:
    """Train in ``folder``, from its checkpoint if one is named."""
    from ..distributed import join, leave  # noqa: PLC0415 (torch)
    from ..runs import RunError  # noqa: PLC0415
    from ..train import NotFinite, Silent, Trainer  # noqa: PLC0415
    from .show import reporter  # noqa: PLC0415

    try:
        world = join()
        trainer = Trainer(config, data=data, world=world)
        if world.first or checkpoint is not None:
            trainer.keep(folder())
        if checkpoint is not None:
            trainer.resume(checkpoint)
        trainer.reporter = reporter(config.train.steps, trainer.step) if world.first else Silent()
        with trainer.reporter:
            result = trainer.fit()
        if world.first:
            _tell(trainer, result)
        trainer.close()
    except (RunError, NotFinite, ValueError) as error:
        leave(together=False)
        raise CommandError(str(error)) from error
    leave()
    if trainer.interrupted:
        sys.exit(3)


def _tell(trainer, result: dict) -> None:
    metric = trainer.task.metric
    if result:
        print(f"valid {metric} {result[metric]:.4g}, best {trainer.best:.4g}")
    if trainer.folder is not None:
        path = trainer.folder.path
        again = f"surnn resume {path}" if trainer.step < trainer.config.train.steps else ""
        print(f"{path}  " + (again or f"surnn eval {path}"))
