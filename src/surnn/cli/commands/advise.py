"""Advise on your own data: which gate and rate to begin with, and how long training takes here.

surnn advise data.csv
surnn advise FOLDER --task.group patient        the options of surnn train sequences
surnn advise data.npz --no-speed                without the measurement

Each piece of advice names the measured rows behind it; see RESULTS.md and results/rows.
"""

import argparse
import json
import shlex
import textwrap
from pathlib import Path

HELP = "advise on your own data: gate, rate, speed"
FLAGS = ("--task.",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn advise``."""
    parser.add_argument("path", metavar="DATA", help="a file or folder, as for train sequences")
    parser.add_argument("--no-speed", action="store_true", help="do not time training steps")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(flags=[])


def run(arguments: argparse.Namespace) -> None:
    """Read the data and print the advice."""
    import torch  # noqa: PLC0415 (slow to import)

    from surnn.errors import option_errors  # noqa: PLC0415
    from surnn.tasks.sequences import Sequences  # noqa: PLC0415
    from surnn.train.advice import advise  # noqa: PLC0415
    from surnn.train.flags import override  # noqa: PLC0415

    command = f"surnn advise {arguments.path}"
    path = str(Path(arguments.path).expanduser().absolute())
    with option_errors():
        task = override(command, "task", arguments.flags, Sequences(path=path)).complete()
        task.prepare(torch.device("cpu"))
    pieces = list(advise(task, measure=not arguments.no_speed))
    if arguments.json:
        print(
            json.dumps({"facts": task.facts()._asdict(), "advice": [p._asdict() for p in pieces]})
        )
        return
    print(f"goal: {task.goal}, judged by {task.metric} (chance {task.chance:.4g})")
    for text, rows in pieces:
        measured = f" [measured: {', '.join(rows)}]" if rows else ""
        print(textwrap.fill(text + measured, 100, initial_indent="- ", subsequent_indent="  "))
    words = ["surnn", "train", "sequences", "--task.path", arguments.path, *arguments.flags]
    print(f"train: {shlex.join(words)}")
