"""Go on with a run that was stopped or killed, exactly where its last checkpoint is.

surnn resume runs/copying/2026-01-31-120000
surnn resume RUN --train.steps 5000             longer than was planned
surnn resume RUN --train.learning-rate 1e-4     any option of training; changes are on record
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..cli import CommandError

if TYPE_CHECKING:
    from ..train import Trainer

HELP = "go on with a run"
FLAGS = ("--train.",)
REFUSED = dict.fromkeys(
    ("--model.", "--gate.", "--task."),
    "the model, gate and task of a run cannot change, only --train. options can; start a new run: "
    "surnn train",
) | {"--train.start": "the run has begun already; for other weights start a new one: surnn train"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn resume``."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--checkpoint", choices=("last", "previous"), default="last")
    parser.add_argument("--data", type=Path, help="folder with data sets")
    parser.set_defaults(flags=[])


def more_help(arguments: argparse.Namespace) -> None:
    """The options of a run's training."""
    from .configure import help_of_run  # noqa: PLC0415 (torch)

    help_of_run("surnn resume", arguments.run, "train")


def run(arguments: argparse.Namespace) -> None:
    """Train on."""
    from ..runs import RunError, RunFolder, config_from_dict  # noqa: PLC0415 (torch)
    from ..trained import in_its_tokens  # noqa: PLC0415
    from .configure import override  # noqa: PLC0415
    from .show import say  # noqa: PLC0415
    from .standing import best_of, in_words, standing, what_next  # noqa: PLC0415
    from .train import fit  # noqa: PLC0415

    try:
        folder = RunFolder.open(arguments.run)
        planned = config_from_dict(folder.config())
        train = override(f"surnn resume {arguments.run}", "train", arguments.flags, planned.train)
        task = planned.task
        if getattr(task, "tokenizer", ""):  # the file that it was named may be gone by now
            task = in_its_tokens(task, folder)
        config = replace(planned, task=task, train=train)
    except (RunError, ValueError) as error:
        raise CommandError(str(error)) from error

    def on_its_data(trainer: "Trainer") -> RunFolder:
        trainer.task.check_same(folder.path)
        return folder

    if not folder.has_checkpoint():
        if folder.is_record():
            raise CommandError(
                f"{folder.path} was trained for {folder.reached()} updates and its checkpoints are "
                "gone: there is nothing to go on from, and its log is kept. Train anew in another "
                "folder"
            )

        def begun_again(trainer: "Trainer") -> RunFolder:
            on_its_data(trainer)
            folder.lock()  # before anything is said of it: another process may train here
            say("there is no checkpoint yet: the run begins again")
            return folder

        fit(config, begun_again, arguments.data)
        return
    try:
        now = standing(folder, config, arguments.checkpoint)
    except RunError as error:
        raise CommandError(str(error)) from error
    if now.step > config.train.steps:
        raise CommandError(
            f"update {now.step} is reached already, and --train.steps {config.train.steps} would "
            f"be before it; give more, for example --train.steps {2 * now.step}"
        )
    if now.status == "finished" and train != planned.train:  # a change that would change nothing
        raise CommandError(
            f"the run is finished at update {now.step} ({now.why}), so that no update is left that "
            f"other options could act on; let it go on for longer: add {now.more}"
        )
    if now.status != "finished":
        fit(config, on_its_data, arguments.data, arguments.checkpoint)
    elif os.environ.get("RANK", "0") == "0":  # of torchrun's processes one tells it
        best = in_words(best_of(folder.metrics(), config.task), config.task)
        say(f"finished at update {now.step}, {now.why}; validation: {best}. Nothing was changed")
        for what, command in what_next(folder.path, now.status, now.more):
            say(f"{what + ':':8} {command}")
