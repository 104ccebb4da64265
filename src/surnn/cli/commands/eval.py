"""Evaluate a trained model on a whole split, also on a variant of its task.

surnn eval runs/copying/2026-01-31-120000 --split test
surnn eval RUN --task.noise uniform             stress test of a model trained without noise
surnn eval RUN --task.delay 500                 another length than in training
surnn eval RUN --task.control shift             Mackey-Glass with another clock

The result is recorded in RUN/evaluations.jsonl.
"""

import argparse
import json
import sys
from pathlib import Path

from ..main import CommandError

HELP = "evaluate a trained model"
FLAGS = ("--task.",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn eval``."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--split", choices=("valid", "test"), default="valid", help="split to use (default: valid)"
    )
    parser.add_argument(
        "--checkpoint",
        choices=("best", "last", "previous"),
        default="best",
        help="weights to use (default: best)",
    )
    parser.add_argument("--batch", type=int, help="sequences at a time (default: as in validation)")
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda", "mps"),
        default="auto",
        help="auto: a GPU if there is one (default)",
    )
    parser.add_argument("--data", type=Path, help="folder with data sets")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(flags=[])


def more_help(arguments: argparse.Namespace) -> None:
    """Print the options of a run's task."""
    from surnn.train.flags import print_run_flags  # noqa: PLC0415 (torch)

    print_run_flags("surnn eval", arguments.run, "task")


def run(arguments: argparse.Namespace) -> None:
    """Evaluate and print."""
    if arguments.batch is not None and arguments.batch < 1:
        raise CommandError(f"--batch is {arguments.batch}; expected 1 or more sequences at a time")
    from surnn.train.evaluate_run import evaluate_run, evaluation_lines  # noqa: PLC0415 (torch)
    from surnn.train.flags import override  # noqa: PLC0415

    command = f"surnn eval {arguments.run}"
    evaluation = evaluate_run(
        arguments.run,
        arguments.split,
        arguments.checkpoint,
        change_task=lambda task: override(command, "task", arguments.flags, task),
        device=arguments.device,
        data=arguments.data,
        batch=arguments.batch,
    )
    if evaluation.record_error is not None:
        print(f"the result was not recorded: {evaluation.record_error}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(evaluation.about | evaluation.metrics))
    else:
        print("\n".join(evaluation_lines(evaluation)))
