"""Reproduce one row of the paper's tables.

surnn list recipes                                 the names of all rows
surnn reproduce psmnist --budget 10min             within this time, on a smaller task if needed
surnn reproduce psmnist --seeds 0,1,2              three runs in turn; mean ± standard deviation
surnn reproduce copying-5000 --train.seed 1        with other options; NAME --help shows all
surnn reproduce psmnist --no-test                  train only; later surnn eval RUN --split test

At the end the weights with the best validation metric are tested, and compared with the paper.
"""

import argparse
import math
import os
import re
import statistics
import sys
from typing import TYPE_CHECKING

from surnn.errors import suggestion

from ..main import CommandError

if TYPE_CHECKING:
    from surnn.config import RunConfig
    from surnn_recipes import Recipe

HELP = "reproduce a row of the paper's tables"
FLAGS = ("--",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn reproduce``."""
    parser.add_argument(
        "--budget", metavar="TIME", help="time of each run and its test, for example 10min or 2h"
    )
    parser.add_argument("--seeds", metavar="N,N,...", help="one run for each seed, such as 0,1,2")
    parser.add_argument(
        "--no-test", action="store_false", dest="test", help="train only, without the test"
    )
    parser.add_argument("name", nargs="?", help="name of the recipe; see surnn list recipes")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="flags of surnn train")


def run(arguments: argparse.Namespace) -> None:
    """Configure, train and test the runs."""
    name, flags = arguments.name, arguments.flags
    if name is None or name.startswith("-"):
        raise CommandError(
            "which row? For example: surnn reproduce psmnist; see surnn list recipes"
        )
    from surnn.plugins import find_recipes  # noqa: PLC0415 (torch)
    from surnn.runs.status import partial_note  # noqa: PLC0415
    from surnn.train.evaluate_run import evaluate_run  # noqa: PLC0415
    from surnn.train.flags import value_of  # noqa: PLC0415
    from surnn.train.progress import print_line  # noqa: PLC0415
    from surnn.train.recipe_options import (  # noqa: PLC0415
        TEST_SHARE,
        configure,
        for_cpu,
        in_budget,
        parse_minutes,
        with_seed,
    )
    from surnn.train.session import new_run_path, start_run  # noqa: PLC0415

    from .train import STOPPED  # noqa: PLC0415

    recipes = find_recipes()
    if name not in recipes:
        hint = suggestion(name, recipes, "see surnn list recipes")
        raise CommandError(f"there is no recipe {name!r}; {hint}")
    recipe = recipes[name]
    budget = value_of(flags, "--budget") or arguments.budget
    time = math.inf if budget is None else parse_minutes(budget)
    planned = in_budget(recipe, budget)
    lines = [introduction(recipe), *differences(recipe(), planned)]
    on_cpu = value_of(flags, "--train.device") == "cpu" or not _has_gpu()
    if on_cpu and for_cpu(planned) != planned:
        lines.append("on the CPU: float32, without torch.compile and CUDA graphs")
    config, chosen = configure(recipe, flags, on_cpu, budget, arguments.seeds, arguments.test)
    runs = [(chosen.out, config)]
    if chosen.seeds is not None:
        path = chosen.out or new_run_path(name)
        runs = [
            (path.with_name(f"{path.name}-seed{seed}"), with_seed(config, seed))
            for seed in seeds_of(chosen.seeds, flags)
        ]
    print_line("\n".join(lines))
    values: list[float] = []
    for out, each in runs:
        session = start_run(name, each, out, chosen.data)
        if session.interrupted:
            sys.exit(STOPPED)
        if not session.is_main or not chosen.test:
            continue
        evaluation = evaluate_run(
            session.path, "test", device=each.train.device, data=chosen.data,
            seconds=60 * TEST_SHARE * time,
        )  # fmt: skip
        if evaluation.record_error is not None:
            print(f"the result was not recorded: {evaluation.record_error}", file=sys.stderr)
        metric, metrics = evaluation.config.task.metric, evaluation.metrics
        values.append(metrics[metric])
        references = compared_with(recipe.paper, evaluation.about["chance"])
        print_line(f"test {metric} {metrics[metric]:.4g}{partial_note(metrics)} {references}")
        if len(values) == len(runs) > 1:
            print_line(f"test {metric} {mean_and_deviation(values)} {references}")


def seeds_of(text: str, flags: list[str]) -> list[int]:
    """The seeds in '0,1,2'."""
    from surnn.train.flags import value_of  # noqa: PLC0415 (torch)

    if re.fullmatch(r"\d+(,\d+)*", text) is None or len(set(text.split(","))) < text.count(",") + 1:
        raise CommandError(f"--seeds {text!r} is not a list of seeds; write for example 0,1,2")
    if value_of(flags, "--train.seed") is not None:
        raise CommandError("--seeds and --train.seed both choose seeds: leave one out")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise CommandError(
            "torchrun's processes train one run together: start one for each --train.seed"
        )
    return [int(seed) for seed in text.split(",")]


def compared_with(paper: float | None, chance: float) -> str:
    """The paper's value and the chance level, in brackets."""
    value = "" if paper is None else f"paper {paper:.4g}, "
    return f"({value}chance {chance:.4g})"


def mean_and_deviation(values: list[float]) -> str:
    """Mean and standard deviation over seeds, as text."""
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    return f"{mean:.4g} ± {deviation:.2g} over {len(values)} seeds"


def introduction(recipe: "Recipe") -> str:
    """The recipe, and the paper's row."""
    text = f"{recipe.name}: {recipe.about}"
    if recipe.paper_table:
        number = "no number" if recipe.paper is None else f"{recipe.paper:.4g}"
        text += f" In the paper: {recipe.paper_name}, {recipe.paper_table}, {number}."
    return text


def differences(full: "RunConfig", brief: "RunConfig") -> list[str]:
    """Options of the task that a budget changes."""
    from surnn.runs.config_json import task_options  # noqa: PLC0415 (torch)

    before, now = task_options(full.task), task_options(brief.task)
    changes = [
        f"{name} {now[name]} instead of {before[name]}" for name in now if now[name] != before[name]
    ]
    return [f"smaller, to fit the budget: {', '.join(changes)}"] if changes else []


def _has_gpu() -> bool:
    import torch  # noqa: PLC0415

    return torch.cuda.is_available()
