"""Go on with a run that was stopped or killed, exactly where its last checkpoint is.

surnn resume runs/copying/2026-01-31-120000
surnn resume RUN --steps 5000          and longer than was planned
"""

import argparse
from dataclasses import replace
from pathlib import Path

from ..cli import CommandError

HELP = "go on with a run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn resume``."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--checkpoint", choices=("last", "previous"), default="last")
    parser.add_argument("--steps", type=int, help="updates in all (default: as planned)")
    parser.add_argument("--minutes", type=float, help="stop after this time (default: as planned)")
    parser.add_argument("--data", type=Path, help="folder with data sets")


def run(arguments: argparse.Namespace) -> None:
    """Train on."""
    from ..runs import RunError, RunFolder, config_to_dict  # noqa: PLC0415 (torch)
    from .configure import from_dict  # noqa: PLC0415
    from .train import fit  # noqa: PLC0415

    try:
        folder = RunFolder.open(arguments.run)
        config = from_dict(folder.config())
    except RunError as error:
        raise CommandError(str(error)) from error
    changes = {k: v for k in ("steps", "minutes") if (v := getattr(arguments, k)) is not None}
    if changes:
        config = replace(config, train=replace(config.train, **changes))
        folder.change(config_to_dict(config))
        print("the run's configuration is changed; its learning rate follows the new length")
    checkpoint = arguments.checkpoint
    if not folder.has_checkpoint():
        print("there is no checkpoint yet: the run begins again")
        checkpoint = None
    fit(config, lambda: folder, arguments.data, checkpoint)
