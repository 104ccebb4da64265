"""Resume a run that was stopped or killed, exactly at its last checkpoint.

surnn resume runs/copying/2026-01-31-120000
surnn resume RUN --train.steps 5000             train longer than planned
surnn resume RUN --train.learning-rate 1e-4     any option of training; changes are recorded
"""

import argparse
import sys
from pathlib import Path

from .train import STOPPED

HELP = "resume a run"
FLAGS = ("--train.",)
REFUSED = dict.fromkeys(
    ("--model.", "--gate.", "--task."),
    "the model, gate and task of a run cannot change, only --train. options can; start a new run: "
    "surnn train",
) | {"--train.start": "the run has its weights already; for others start a new run: surnn train"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn resume``."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--checkpoint",
        choices=("last", "previous"),
        default="last",
        help="where to continue (default: last)",
    )
    parser.add_argument("--data", type=Path, help="folder with data sets")
    parser.set_defaults(flags=[])


def more_help(arguments: argparse.Namespace) -> None:
    """Print the options of a run's training."""
    from surnn.train.flags import print_run_flags  # noqa: PLC0415 (torch)

    print_run_flags("surnn resume", arguments.run, "train")


def run(arguments: argparse.Namespace) -> None:
    """Resume training."""
    from surnn.train.flags import override  # noqa: PLC0415
    from surnn.train.session import resume_run  # noqa: PLC0415 (torch)

    command = f"surnn resume {arguments.run}"
    session = resume_run(
        arguments.run,
        arguments.checkpoint,
        arguments.data,
        change_train=lambda train: override(command, "train", arguments.flags, train),
    )
    if session.interrupted:
        sys.exit(STOPPED)
