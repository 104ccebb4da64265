"""Run one row of the paper's tables.

surnn list recipes                                 the names
surnn reproduce psmnist --budget 10min             in so much time, if need be smaller
surnn reproduce psmnist --seeds 0,1,2              three runs, one after another; mean ± deviation
surnn reproduce copying-5000 --train.seed 1        with other options; NAME --help shows all
surnn reproduce psmnist --no-test                  train only; later surnn eval RUN --split test

The weights that were best in validation are tested at the end, beside the paper's number.
"""

import argparse
import math
import os
import re
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..cli import CommandError, suggestion

if TYPE_CHECKING:
    from ..config import RunConfig
    from ..recipes import Recipe

FOR_TEST = 0.1
"""Share of a budget that the test has; when it is over, the numbers are of a part of the set."""
HELP = "run a row of the paper's tables"
FLAGS = ("--",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn reproduce``."""
    parser.add_argument(
        "--budget", metavar="TIME", help="for each run and its test, for example 10min or 2h"
    )
    parser.add_argument("--seeds", metavar="N,N,...", help="a run for each, for example 0,1,2")
    parser.add_argument(
        "--no-test", action="store_false", dest="test", help="leave that to surnn eval"
    )
    parser.add_argument("name", nargs="?", help="the recipe; see surnn list recipes")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="as of surnn train")


def run(arguments: argparse.Namespace) -> None:
    """Make the configuration, train, test."""
    name, flags = arguments.name, arguments.flags
    if name is None or name.startswith("-"):
        raise CommandError(
            "which row? For example: surnn reproduce psmnist; see surnn list recipes"
        )
    from ..recipes import RECIPES  # noqa: PLC0415 (torch)
    from .configure import value_of  # noqa: PLC0415
    from .evaluate import judge  # noqa: PLC0415
    from .show import part, say  # noqa: PLC0415
    from .train import fresh_path, start  # noqa: PLC0415

    if name not in RECIPES:
        hint = suggestion(name, RECIPES, "see surnn list recipes")
        raise CommandError(f"there is no recipe {name!r}; {hint}")
    recipe = RECIPES[name]
    budget = value_of(flags, "--budget") or arguments.budget
    time = math.inf if budget is None else minutes(budget)
    planned = in_budget(recipe, budget)
    told = [introduction(recipe), *differences(recipe(), planned)]
    on_cpu = value_of(flags, "--train.device") == "cpu" or not _has_gpu()
    if on_cpu and on_a_cpu(planned) != planned:
        told.append("on the CPU: in float32, neither compiled nor captured")
    config, chosen = configure(recipe, flags, on_cpu, budget, arguments.seeds, arguments.test)
    runs = [(chosen.out, config)]
    if chosen.seeds is not None:
        path = chosen.out or fresh_path(name)
        runs = [
            (path.with_name(f"{path.name}-seed{seed}"), with_seed(config, seed))
            for seed in seeds_of(chosen.seeds, flags)
        ]
    say("\n".join(told))
    tested: list[float] = []
    for out, each in runs:
        path = start(name, each, out, chosen.data)
        if path is not None and chosen.test:
            about, found, judged = judge(
                path, "test", "best", device=each.train.device, data=chosen.data,
                seconds=60 * FOR_TEST * time,
            )  # fmt: skip
            metric = judged.task.metric
            tested.append(found[metric])
            told = f"test {metric} {found[metric]:.4g}{part(found)}"
            say(beside(told, recipe.paper, about["chance"]))
            if len(tested) == len(runs) > 1:
                say(beside(f"test {metric} {spread(tested)}", recipe.paper, about["chance"]))


def in_budget(recipe: "Recipe", budget: str | None) -> "RunConfig":
    """The recipe at full size, or in so much time, of which its test has a part."""
    return recipe() if budget is None else recipe.in_budget((1 - FOR_TEST) * minutes(budget))


def configure(
    recipe: "Recipe",
    flags: list[str],
    on_cpu: bool,
    budget: str | None = None,
    seeds: str | None = None,
    test: bool = True,
) -> tuple["RunConfig", Any]:
    """The configuration of a row with these flags, and the flags that are no part of it."""
    from .configure import parse  # noqa: PLC0415 (torch)

    config = in_budget(recipe, budget)
    return parse(
        f"surnn reproduce {recipe.name}", flags, on_a_cpu(config) if on_cpu else config,
        budget=(str | None, budget, "time for each run and its test, for example 10min or 2h."),
        seeds=(str | None, seeds, "a run for each of these, for example 0,1,2."),
        test=(bool, test, "test the best weights at the end, or leave it to surnn eval."),
    )  # fmt: skip


def seeds_of(text: str, flags: list[str]) -> list[int]:
    """'0,1,2' as numbers."""
    from .configure import value_of  # noqa: PLC0415 (torch)

    if re.fullmatch(r"\d+(,\d+)*", text) is None or len(set(text.split(","))) < text.count(",") + 1:
        raise CommandError(f"--seeds {text!r} is no list of seeds; write for example 0,1,2")
    if value_of(flags, "--train.seed") is not None:
        raise CommandError("--seeds and --train.seed say the same: leave one out")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise CommandError(
            "torchrun's processes make one run together: start one for each --train.seed"
        )
    return [int(seed) for seed in text.split(",")]


def with_seed(config: "RunConfig", seed: int) -> "RunConfig":
    """The same run from another seed."""
    return replace(config, train=replace(config.train, seed=seed))


def beside(told: str, paper: float | None, chance: float) -> str:
    """A number next to those that it is to be compared with."""
    theirs = "" if paper is None else f"paper {paper:.4g}, "
    return f"{told} ({theirs}chance {chance:.4g})"


def spread(values: list[float]) -> str:
    """Mean and standard deviation."""
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    return f"{mean:.4g} ± {deviation:.2g} over {len(values)} seeds"


def introduction(recipe: "Recipe") -> str:
    """What is run, and what the paper has."""
    told = f"{recipe.name}: {recipe.about}"
    if recipe.where:
        number = "no number" if recipe.paper is None else f"{recipe.paper:.4g}"
        told += f" In the paper: {recipe.called}, {recipe.where}, {number}."
    return told


def differences(full: "RunConfig", brief: "RunConfig") -> list[str]:
    """What a budget makes smaller."""
    from ..runs import task_options  # noqa: PLC0415 (torch)

    was, now = task_options(full.task), task_options(brief.task)
    changed = [
        f"{name} {now[name]} instead of {was[name]}" for name in now if now[name] != was[name]
    ]
    return [f"smaller, to fit the budget: {', '.join(changed)}"] if changed else []


def minutes(text: str) -> float:
    """'10min', '90s' or '2h' in minutes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h)", text)
    if match is None or not float(match[1]):
        raise CommandError(f"{text!r} is no time; write for example 90s, 10min or 2h")
    return float(match[1]) * {"s": 1 / 60, "min": 1, "h": 60}[match[2]]


def _has_gpu() -> bool:
    import torch  # noqa: PLC0415

    return torch.cuda.is_available()


def on_a_cpu(config: "RunConfig") -> "RunConfig":
    """The same less what a CPU has no use for."""
    train = replace(config.train, precision="float32", cuda_graph=False, compile=False)
    return replace(config, train=train, model=replace(config.model, half_state=False))
