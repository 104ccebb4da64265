"""The options of a recipe: within a time budget, for a device, with flags."""

import re
from dataclasses import replace
from typing import Any, Protocol

from surnn.config import RunConfig
from surnn.errors import ConfigError

from .flags import parse

TEST_SHARE = 0.1
"""Share of a budget for the test; when it is used up, the metrics cover a part of the set."""


class Recipe(Protocol):
    """A named run, such as one of ``surnn_recipes``."""

    @property
    def name(self) -> str: ...
    def __call__(self) -> RunConfig: ...
    def in_budget(self, minutes: float) -> RunConfig: ...


def in_budget(recipe: Recipe, budget: str | None) -> RunConfig:
    """The recipe at full size, or for a budget that includes the test."""
    if budget is None:
        return recipe()
    return recipe.in_budget((1 - TEST_SHARE) * parse_minutes(budget))


def configure(
    recipe: Recipe,
    flags: list[str],
    on_cpu: bool,
    budget: str | None = None,
    seeds: str | None = None,
    test: bool = True,
) -> tuple[RunConfig, Any]:
    """The configuration of a recipe with these flags, and the flags that are no part of it."""
    config = in_budget(recipe, budget)
    return parse(
        f"surnn reproduce {recipe.name}", flags, for_cpu(config) if on_cpu else config,
        budget=(str | None, budget, "time for each run and its test, for example 10min or 2h."),
        seeds=(str | None, seeds, "one run for each seed, for example 0,1,2."),
        test=(bool, test, "test the best weights at the end."),
    )  # fmt: skip


def with_seed(config: RunConfig, seed: int) -> RunConfig:
    """The same run with another seed."""
    return replace(config, train=replace(config.train, seed=seed))


def for_cpu(config: RunConfig) -> RunConfig:
    """The same run without options that need a GPU."""
    train = replace(config.train, precision="float32", cuda_graph=False, compile=False)
    return replace(config, train=train, model=replace(config.model, half_state=False))


def parse_minutes(text: str) -> float:
    """The minutes in '10min', '90s' or '2h'."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h)", text)
    if match is None or not float(match[1]):
        raise ConfigError(f"{text!r} is not a time; write for example 90s, 10min or 2h")
    return float(match[1]) * {"s": 1 / 60, "min": 1, "h": 60}[match[2]]
