"""The metric of a trained model on a whole split.

surnn eval runs/copying/2026-01-31-120000 --split test
"""

import argparse
import json
from pathlib import Path

from ..cli import CommandError

HELP = "evaluate a trained model"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn eval``."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--split", choices=("valid", "test"), default="valid")
    parser.add_argument("--checkpoint", choices=("best", "last", "previous"), default="best")
    parser.add_argument("--batch", type=int, help="sequences at a time (default: as in training)")
    parser.add_argument("--data", type=Path, help="folder with data sets")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> None:
    """Load, evaluate, print."""
    from ..distributed import World  # noqa: PLC0415 (torch)
    from ..evaluate import evaluate  # noqa: PLC0415
    from ..models import SequenceModel  # noqa: PLC0415
    from ..runs import RunError, RunFolder  # noqa: PLC0415
    from ..train import pick_device  # noqa: PLC0415
    from .configure import from_dict  # noqa: PLC0415

    try:
        folder = RunFolder.open(arguments.run)
        config = from_dict(folder.config())
        device = pick_device(config.train.device, World())
        weights, state = folder.load(arguments.checkpoint, device)
    except (RunError, ValueError) as error:
        raise CommandError(str(error)) from error
    task = config.task
    task.prepare(device, arguments.data)
    model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps).to(device)
    model.load_state_dict(weights)
    batch = arguments.batch or config.train.batch
    found = evaluate(model, task, arguments.split, batch, device, precision=config.train.precision)
    found |= {"split": arguments.split, "step": state["step"], "chance": task.chance}
    if arguments.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:20} {value}")
