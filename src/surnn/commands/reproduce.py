"""Run one row of the paper's tables.

surnn reproduce                      the names
surnn reproduce psmnist --budget 10min
surnn reproduce copying-5000 --train.seed 1 --out runs/copying-5000-1
"""

import argparse
import difflib
import re

from ..cli import CommandError
from ..config import RunConfig

HELP = "run a row of the paper's tables"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn reproduce``."""
    parser.add_argument("--budget", metavar="TIME", help="stop after this, for example 10min or 2h")
    parser.add_argument("name", nargs="?", help="the recipe; without it they are listed")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="as of surnn train")


def run(arguments: argparse.Namespace) -> None:
    """Make the configuration, and train."""
    from ..recipes import RECIPES, in_budget  # noqa: PLC0415 (torch)

    if arguments.name is None:
        for name, make in RECIPES.items():
            print(f"{name:24} {(make.__doc__ or '').strip().splitlines()[0]}")
        return
    if arguments.name not in RECIPES:
        close = difflib.get_close_matches(arguments.name, RECIPES, 1)
        hint = f"did you mean {close[0]!r}?" if close else "see surnn reproduce"
        raise CommandError(f"there is no recipe {arguments.name!r}; {hint}")
    flags, budget = _take_budget(arguments.flags, arguments.budget)
    config = RECIPES[arguments.name]()
    if budget is not None:
        config = in_budget(config, minutes(budget))
    _train(arguments.name, config, flags)


def _train(name: str, config: RunConfig, flags: list[str]) -> None:
    from .configure import parse  # noqa: PLC0415
    from .train import start  # noqa: PLC0415

    options = parse(config.task.name, flags, config)
    config = RunConfig(options.task, options.model, options.gate, options.train)
    start(name, config, options.out, options.data)


def _take_budget(flags: list[str], budget: str | None) -> tuple[list[str], str | None]:
    """``--budget`` may come after the name too."""
    if "--budget" not in flags:
        return flags, budget
    at = flags.index("--budget")
    if at + 1 == len(flags):
        raise CommandError("--budget needs a time, for example 10min")
    return flags[:at] + flags[at + 2 :], flags[at + 1]


def minutes(text: str) -> float:
    """'10min', '90s' or '2h' in minutes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h)", text)
    if match is None:
        raise CommandError(f"{text!r} is no time; write for example 90s, 10min or 2h")
    return float(match[1]) * {"s": 1 / 60, "min": 1, "h": 60}[match[2]]
