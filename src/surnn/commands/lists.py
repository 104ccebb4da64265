"""What there is: tasks, gates, cells, models.

surnn list
surnn list tasks
"""

import argparse
from typing import get_args

HELP = "list tasks, gates, models"
THINGS = ("tasks", "gates", "models")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn list``."""
    parser.add_argument("what", nargs="?", choices=THINGS, help="default: all")


def run(arguments: argparse.Namespace) -> None:
    """Print names."""
    from ..config import GateKind, ModelKind  # noqa: PLC0415
    from ..tasks import TASKS  # noqa: PLC0415

    names = {"tasks": sorted(TASKS), "gates": get_args(GateKind), "models": get_args(ModelKind)}
    for what in [arguments.what] if arguments.what else THINGS:
        print(f"{what}:")
        for name in names[what]:
            print(f"  {name}")
