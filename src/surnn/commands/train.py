"""Train a model on a task.

    surnn train copying --task.delay 200 --model.heads 32 --train.steps 2000
    surnn train psmnist --help          every option of that task, model, gate and training

Several processes: torchrun --nproc-per-node 2 -m surnn train copying ...
"""

import argparse
import sys
from datetime import datetime
from pathlib import Path

from ..cli import CommandError

HELP = "train a model on a task"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn train``."""
    parser.add_argument("task", help="its name; see surnn list tasks")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="see surnn train TASK --help")


def run(arguments: argparse.Namespace) -> None:
    """Train, and say how it ended."""
    from ..config import RunConfig  # noqa: PLC0415
    from ..distributed import join  # noqa: PLC0415 (torch)
    from ..runs import RunError, RunFolder, config_to_dict  # noqa: PLC0415
    from .configure import parse  # noqa: PLC0415

    options = parse(arguments.task, arguments.flags)
    config = RunConfig(options.task, options.model, options.gate, options.train)
    world = join()
    folder = None
    if world.first:
        stamp = datetime.now().strftime("%Y-%m-%d-%H%M%S")
        try:
            path = options.out or Path("runs") / arguments.task / stamp
            folder = RunFolder.create(path, config_to_dict(config))
        except RunError as error:
            raise CommandError(str(error)) from error
    fit(config, folder, options.data, world)


def fit(config, folder, data, world, checkpoint: str | None = None) -> None:
    """Train in ``folder``, from its checkpoint if one is named."""
    from ..distributed import leave  # noqa: PLC0415
    from ..runs import RunError  # noqa: PLC0415
    from ..train import NotFinite, Silent, Trainer  # noqa: PLC0415
    from .show import reporter  # noqa: PLC0415

    try:
        trainer = Trainer(config, folder, data=data, world=world)
        if checkpoint is not None:
            trainer.resume(checkpoint)
        show = reporter(config.train.steps, trainer.step) if world.first else None
        trainer.reporter = show or Silent()
        if show is None:
            trainer.fit()
        else:
            with show:
                result = trainer.fit()
            _tell(trainer, result)
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
