"""What this installation can do, or what a run is.

surnn info
surnn info runs/copying/2026-01-31-120000
"""

import argparse
import json
from pathlib import Path

from ..cli import CommandError

HELP = "about this installation, or a run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn info``."""
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN", help="a run's folder")


def run(arguments: argparse.Namespace) -> None:
    """Print it."""
    from ..runs import RunError, RunFolder, environment  # noqa: PLC0415 (torch)

    if arguments.run is None:
        from ..eager import has_triton  # noqa: PLC0415

        for name, value in (environment() | {"triton": has_triton()}).items():
            if name not in ("time", "command"):
                print(f"{name:10} {value}")
        return
    try:
        folder = RunFolder.open(arguments.run)
        print(json.dumps(folder.config(), indent=2))
    except RunError as error:
        raise CommandError(str(error)) from error
    for line in [m for m in folder.metrics() if m["kind"] == "valid"][-5:]:
        print(json.dumps(line))
