"""Go on with a run that was stopped or killed, exactly where its last checkpoint is.

surnn resume runs/copying/2026-01-31-120000
surnn resume RUN --train.steps 5000             longer than was planned
surnn resume RUN --train.learning-rate 1e-4     any option of training; changes are on record
"""

import argparse
from dataclasses import replace
from pathlib import Path

from ..cli import CommandError

HELP = "go on with a run"
FLAGS = ("--train.",)


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
    from .configure import override  # noqa: PLC0415
    from .show import say  # noqa: PLC0415
    from .train import fit  # noqa: PLC0415

    try:
        folder = RunFolder.open(arguments.run)
        config = config_from_dict(folder.config())
        train = override(f"surnn resume {arguments.run}", "train", arguments.flags, config.train)
        config = replace(config, train=train)
    except (RunError, ValueError) as error:
        raise CommandError(str(error)) from error
    checkpoint = arguments.checkpoint
    if not folder.has_checkpoint():
        say("there is no checkpoint yet: the run begins again")
        checkpoint = None
    fit(config, lambda _: folder, arguments.data, checkpoint)
