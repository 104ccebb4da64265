"""The metric of a trained model on a whole split, if you like of another version of its task.

surnn eval runs/copying/2026-01-31-120000 --split test
surnn eval RUN --task.noise uniform             the stress test of a model trained in silence
surnn eval RUN --task.delay 500                 another length than it was trained for
surnn eval RUN --task.control shift             Mackey-Glass with another clock
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..cli import CommandError

HELP = "evaluate a trained model"
FLAGS = ("--task.",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn eval``."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--split", choices=("valid", "test"), default="valid")
    parser.add_argument("--checkpoint", choices=("best", "last", "previous"), default="best")
    parser.add_argument("--batch", type=int, help="sequences at a time (default: as in training)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--data", type=Path, help="folder with data sets")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(flags=[])


def run(arguments: argparse.Namespace) -> None:
    """Load, evaluate, print."""
    from ..distributed import World  # noqa: PLC0415 (torch)
    from ..evaluate import evaluate  # noqa: PLC0415
    from ..models import SequenceModel  # noqa: PLC0415
    from ..runs import RunError, RunFolder  # noqa: PLC0415
    from ..train import pick_device  # noqa: PLC0415
    from .configure import from_dict, override  # noqa: PLC0415

    try:
        folder = RunFolder.open(arguments.run)
        config = from_dict(folder.config())
        device = pick_device(arguments.device, World())
        weights, state = folder.load(arguments.checkpoint, device)
    except (RunError, ValueError) as error:
        raise CommandError(str(error)) from error
    trained, kind = config.task, config.model
    if (
        kind.backend == "triton"
    ):  # all exact backends compute the same, and there may be no GPU here
        kind = replace(kind, backend="auto")
    task = override(f"surnn eval {arguments.run}", "task", arguments.flags, trained)
    task.prepare(device, arguments.data)
    # The clock stays the one that was trained, whatever the length is now.
    model = SequenceModel(kind, config.gate, task.input, task.output, trained.steps)
    check_fit(model.state_dict(), weights, changes(trained, task))
    model.load_state_dict(weights)
    batch = arguments.batch or config.train.batch
    precision = config.train.precision
    try:
        found = evaluate(
            model.to(device), task, arguments.split, batch, device, precision=precision
        )
    except ValueError as error:
        raise CommandError(str(error)) from error
    about = {"task": task.name, **changes(trained, task), "split": arguments.split}
    about |= {"checkpoint": arguments.checkpoint, "step": state["step"], "chance": task.chance}
    if arguments.json:
        print(json.dumps(about | found))
    else:
        print("\n".join(lines(about, found, task.metric)))


def changes(trained: Any, task: Any) -> dict[str, Any]:
    """Options of the task that are not those of training."""
    before, now = asdict(trained), asdict(task)
    return {f"task.{name}": value for name, value in now.items() if value != before[name]}


def check_fit(wanted: dict[str, Any], weights: dict[str, Any], changed: dict[str, Any]) -> None:
    """The trained weights must be those of the model that the task asks for."""
    odd = [
        f"{name} is {list(weights[name].shape)}, needed is {list(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in weights and weights[name].shape != tensor.shape
    ]
    if odd and changed:
        options = ", ".join(f"{name} {value}" for name, value in changed.items())
        raise CommandError(
            f"with {options} the task has other inputs or outputs than the model was trained for: "
            f"{odd[0]}. Options that keep these can be changed; otherwise train another model"
        )


def lines(about: dict[str, Any], found: dict[str, Any], metric: str) -> list[str]:
    """For people."""
    options = [f"{name} {value}" for name, value in about.items() if name.startswith("task.")]
    told = [
        f"{', '.join((about['task'], *options))}: {about['split']}, {about['checkpoint']} weights "
        f"(update {about['step']})"
    ]
    rates = found.get("update_rate", [])
    by_kind = found.get("update_rate_by_kind", [{}] * len(rates))
    for name, value in found.items():
        if isinstance(value, int | float):
            beside = f"  (chance {about['chance']:.4g})" if name == metric else ""
            told.append(f"  {name:24} {value:.5g}{beside}")
    for layer, (rate, kinds) in enumerate(zip(rates, by_kind, strict=True), 1):
        split = ", ".join(f"{kind} {share:.1%}" for kind, share in kinds.items())
        told.append(
            f"  {f'updates of layer {layer}':24} {rate:.1%}" + (f"  ({split})" * bool(split))
        )
    return told
