"""Races: ours, cuDNN's GRUs and LSTMs, minGRUs, state-space layers and Transformers with as many
parameters, for about the same time of training on the same GPU.

The runs of a task differ in their layer only (a Transformer has its own block, and a learning rate
of 1e-3 at most). All other options are those of the task's
recipe: learning rates and dropout were not tuned for the baselines. Steps are captured but not
compiled, so that all start at once. There is no mixup, because nothing over-fits in a minute. All
are validated on as many sequences, in one batch, about equally often in time. Validation takes
cuDNN's layers longer, and they get that much more time (figures and tables of wall-clock time leave
it out). Expressions of ListOps grow over the first two fifths of each run's steps.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from surnn.config import ModelKind, RunConfig

from .arena import binary
from .base import IN_CUDNN, add, match_parameters, size_note, with_ungated_first_layer
from .pixels import psmnist, scifar


@dataclass(frozen=True)
class Pace:
    """The steps that fit into the time: learning rates rise over a twentieth of them."""

    minutes: float
    """Minutes with validations; about half a minute without."""
    steps: int
    """The steps that one H200 makes in that time, or a few more."""
    evaluate_every: int


@dataclass(frozen=True)
class Race:
    """A task, and the options of its race."""

    about: str
    make: Callable[[], RunConfig]
    ours: Pace
    baselines: Pace
    """The pace of cuDNN's layers. Layers that are parallel in time have ours."""


RIVALS: dict[ModelKind, str] = {
    "gru": "GRUs", "lstm": "LSTMs", "mingru": "minGRUs", "s4d": "diagonal state-space layers",
    "transformer": "causal attention",
}  # fmt: skip

RACES = {
    "psmnist": Race("psMNIST, bit-reversed", psmnist, Pace(0.55, 2000, 25), Pace(0.6, 700, 15)),
    "scifar": Race(
        "CIFAR-10 in colour, crops and flips", scifar, Pace(0.55, 900, 25), Pace(0.6, 300, 15)
    ),
    "text": Race(
        "film reviews",
        lambda: with_ungated_first_layer(binary("text")),
        Pace(0.55, 600, 25),
        Pace(0.6, 120, 10),
    ),
    "listops": Race(
        "nested operations on digits, short ones first",
        lambda: with_ungated_first_layer(binary("listops")),
        Pace(2.0, 2000, 100),
        Pace(2.1, 600, 50),
    ),
}
EASY = 0.4
"""Share of the steps with easier batches, where a task has them."""


def race_config(race: Race, kind: ModelKind) -> RunConfig:
    """The run of one layer."""
    config, pace = race.make(), race.ours
    if kind != "sugru":
        config = match_parameters(config, kind)
    if kind in IN_CUDNN:
        pace = race.baselines
    train = replace(
        config.train, compile=False, mixup=0.0, minutes=pace.minutes, steps=pace.steps,
        warmup=pace.steps // 20, evaluate_every=pace.evaluate_every, evaluation_batches=1,
        evaluation_batch=8 * config.train.batch,
    )  # fmt: skip
    if config.task.easy_batches:
        config = replace(config, task=replace(config.task, growing=round(EASY * pace.steps)))
    return replace(config, train=train)


for _name, _race in RACES.items():
    add(f"race-{_name}", partial(race_config, _race, "sugru"), f"A race on {_race.about}: ours.")
    for _kind, _layers in RIVALS.items():
        _what = f"{_layers}, {size_note(_kind)}"
        add(
            f"race-{_name}-{_kind}", partial(race_config, _race, _kind),
            f"A race on {_race.about}: {_what}.",
        )  # fmt: skip
