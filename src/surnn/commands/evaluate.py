"""The metric of a trained model on a whole split, if you like of another version of its task.

surnn eval runs/copying/2026-01-31-120000 --split test
surnn eval RUN --task.noise uniform             the stress test of a model trained in silence
surnn eval RUN --task.delay 500                 another length than it was trained for
surnn eval RUN --task.control shift             Mackey-Glass with another clock

What was found is kept in RUN/evaluations.jsonl.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cli import CommandError
from ..rate_words import layers_in_words

if TYPE_CHECKING:
    from ..config import RunConfig
    from ..tasks.base import Split, Task

HELP = "evaluate a trained model"
FLAGS = ("--task.",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn eval``."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument("--split", choices=("valid", "test"), default="valid")
    parser.add_argument("--checkpoint", choices=("best", "last", "previous"), default="best")
    parser.add_argument("--batch", type=int, help="sequences at a time (default: as in validation)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--data", type=Path, help="folder with data sets")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(flags=[])


def more_help(arguments: argparse.Namespace) -> None:
    """The options of a run's task."""
    from .configure import help_of_run  # noqa: PLC0415 (torch)

    help_of_run("surnn eval", arguments.run, "task")


def run(arguments: argparse.Namespace) -> None:
    """Evaluate, print, put on record."""
    from .configure import override  # noqa: PLC0415 (torch)

    if arguments.batch is not None and arguments.batch < 1:
        raise CommandError(f"--batch is {arguments.batch}; expected 1 or more sequences at a time")
    prog = f"surnn eval {arguments.run}"
    about, found, config = judge(
        arguments.run,
        arguments.split,
        arguments.checkpoint,
        change=lambda task: override(prog, "task", arguments.flags, task),
        device=arguments.device,
        data=arguments.data,
        batch=arguments.batch,
    )
    if arguments.json:
        print(json.dumps(about | found))
    else:
        print("\n".join(lines(about, found, config)))


def judge(
    path: Path,
    split: "Split",
    checkpoint: str,
    *,
    change: Callable[[Any], Any] = lambda task: task,
    device: str = "auto",
    data: Path | None = None,
    batch: int | None = None,
    seconds: float = math.inf,
) -> tuple[dict[str, Any], dict[str, Any], "RunConfig"]:
    """A run on a split of its task, or of what ``change`` makes of that; on record in its folder.

    After so many ``seconds`` no other batch is begun, and the numbers are of a part of the split.
    Gives what was evaluated, what was found, and the run's configuration with that task.
    """
    from ..devices import pick_device  # noqa: PLC0415
    from ..distributed import World  # noqa: PLC0415 (torch)
    from ..evaluate import evaluate, float32_products  # noqa: PLC0415
    from ..runs import RunError, RunFolder  # noqa: PLC0415
    from ..trained import load  # noqa: PLC0415

    try:
        place = pick_device(device, World())
        model, trained, config, step = load(path, checkpoint, place)
        config = replace(config, task=change(trained))
        train, task = config.train, config.task
        changed = changes(trained, task)
        # The clock stays the one that was trained, whatever the length is now.
        check_fit(trained, task, changed)
        task.prepare(place, data)
        if not any(name.endswith("path") for name in changed):  # another file is meant to be one
            task.check_same(path)
        end = time.perf_counter() + seconds
        with float32_products(place, train.tf32):
            found = evaluate(
                model, task, split, batch or train.evaluation_batch or train.batch, place,
                precision=train.precision, go_on=lambda: time.perf_counter() < end,
            )  # fmt: skip
    except (RunError, ValueError) as error:
        raise CommandError(str(error)) from error
    what = {"split": split, "checkpoint": checkpoint, "step": step}
    try:
        RunFolder(path).evaluated(**what, overrides=changed, metrics=found)
    except (
        RunError
    ) as error:  # a folder of someone else's, perhaps: the numbers are good all the same
        print(f"not put on record: {error}", file=sys.stderr)
    return {"task": task.name, **changed, **what, "chance": task.chance}, found, config


def changes(trained: Any, task: Any) -> dict[str, Any]:
    """Options of the task that are not those of training."""
    before, now = asdict(trained), asdict(task)
    return {f"task.{name}": value for name, value in now.items() if value != before[name]}


def check_fit(trained: "Task", task: "Task", changed: dict[str, Any]) -> None:
    """What goes into the model and comes out of it must be what it was trained for."""
    for was, is_now in ((trained.input, task.input), (trained.output, task.output)):
        if was != is_now:
            options = ", ".join(f"{name} {value}" for name, value in changed.items())
            raise CommandError(
                f"with {options} the task has {is_now}, and the model was trained for {was}. "
                "Options that keep these can be changed; otherwise train another model"
            )


def lines(about: dict[str, Any], found: dict[str, Any], config: "RunConfig") -> list[str]:
    """For people."""
    options = [f"{name} {value}" for name, value in about.items() if name.startswith("task.")]
    told = [
        f"{', '.join((about['task'], *options))}: {about['split']}, {about['checkpoint']} weights "
        f"(update {about['step']})"
    ]
    for name, value in found.items():
        if isinstance(value, int | float):
            beside = f"  (chance {about['chance']:.4g})" if name == config.task.metric else ""
            told.append(f"  {name:24} {value:.5g}{beside}")
    for layer, (what, how) in enumerate(layers_in_words(found, config), 1):
        told.append(f"  {f'{what} of layer {layer}':24} {how}")
    return told
