"""Train a model on a task.

    surnn train copying --task.delay 200 --model.heads 32 --train.steps 2000
    surnn train psmnist --help          every option of that task, model, gate and training
    surnn train sequences --task.path data.csv        your own data; see docs/own_data.md
    surnn train my_task.py:MyTask                     your own task; see docs/own_task.md
    surnn train text_file --task.path book.txt --train.start RUN
                                        fine-tune the weights of another run

Several processes: torchrun --nproc-per-node 2 -m surnn train copying ...
"""

import argparse
import sys
from pathlib import Path

from ..main import CommandError

HELP = "train a model on a task"
FLAGS = ("--",)
STOPPED = 3
"""Exit status of a run that a signal stopped."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn train``."""
    parser.add_argument(
        "task",
        nargs="?",
        help="name of the task (see surnn list tasks), FILE.py:CLASS, MODULE:CLASS",
    )
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="see surnn train TASK --help")


def run(arguments: argparse.Namespace) -> None:
    """Parse the flags and train."""
    if arguments.task is None or arguments.task.startswith("-"):
        raise CommandError(
            "which task? For example: surnn train copying. surnn list tasks shows them all, and "
            "surnn train TASK --help every option"
        )
    from surnn.config import RunConfig  # noqa: PLC0415
    from surnn.train.automatic import choice_lines, data_line  # noqa: PLC0415
    from surnn.train.finetune import with_options_of  # noqa: PLC0415 (torch)
    from surnn.train.flags import parse, task_class, value_of, with_data_choices  # noqa: PLC0415
    from surnn.train.progress import print_line  # noqa: PLC0415
    from surnn.train.session import start_run  # noqa: PLC0415

    kind = task_class(arguments.task)
    name, defaults = kind.name, RunConfig(kind())
    start = value_of(arguments.flags, "--train.start")
    if start is not None:
        defaults = with_options_of(Path(start), defaults)
    command = f"surnn train {arguments.task}"
    choices = []
    if start is None:
        defaults, choices = with_data_choices(command, arguments.flags, defaults)
    config, flags = parse(command, arguments.flags, defaults)
    if choices:
        print_line(data_line(config.task))
    for line in choice_lines(choices, config):
        print_line(line)
    if start_run(name, config, flags.out, flags.data).interrupted:
        sys.exit(STOPPED)
