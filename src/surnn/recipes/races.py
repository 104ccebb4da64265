"""Races: ours, and cuDNN's GRUs and LSTMs in the same blocks, for about the same time of training
on the same GPU.

All that is not the layer is the same for the three of a task, as it is in the task's own recipe:
rates and dropout were not chosen for theirs. Updates are captured but not compiled, so that all
begin at once; no sequences are mixed, for nothing is over-fitted in a minute; and all are validated
on as many sequences, all of them at once, about as often in time. That takes cuDNN's layers longer
than ours, and they have so much more time (the clock of a figure or table of wall-clock time stands
still meanwhile).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ..config import ModelKind, RunConfig
from .arena import binary
from .base import IN_CUDNN, add, as_many, in_words, read_first
from .pixels import psmnist, scifar


@dataclass(frozen=True)
class Pace:
    """What is made in the time, so that learning rates rise over a twentieth of it."""

    minutes: float
    """Validations included; about half a minute without."""
    updates: int
    """As many as one H200 makes, or a few more."""
    evaluate_every: int


@dataclass(frozen=True)
class Race:
    """A task, and how it is raced."""

    about: str
    make: Callable[[], RunConfig]
    ours: Pace
    theirs: Pace


RACES = {
    "psmnist": Race("psMNIST, bit-reversed", psmnist, Pace(0.55, 2000, 25), Pace(0.6, 700, 15)),
    "scifar": Race(
        "CIFAR-10 in colour, crops and flips", scifar, Pace(0.55, 900, 25), Pace(0.6, 300, 15)
    ),
    "text": Race(
        "film reviews", lambda: read_first(binary("text")), Pace(0.55, 600, 25), Pace(0.6, 120, 10)
    ),
}


def raced(race: Race, kind: ModelKind) -> RunConfig:
    """One of the three."""
    config, pace = race.make(), race.ours
    if kind != "sugru":
        config, pace = as_many(config, kind), race.theirs
    train = replace(
        config.train, compile=False, mixup=0.0, minutes=pace.minutes, steps=pace.updates,
        warmup=pace.updates // 20, evaluate_every=pace.evaluate_every, evaluation_batches=1,
        evaluation_batch=8 * config.train.batch,
    )  # fmt: skip
    return replace(config, train=train)


for _name, _race in RACES.items():
    add(f"race-{_name}", partial(raced, _race, "sugru"), f"A race on {_race.about}: ours.")
    for _kind in IN_CUDNN:
        _what = f"{_kind.upper()}s, {in_words(_kind)}"
        add(
            f"race-{_name}-{_kind}", partial(raced, _race, _kind),
            f"A race on {_race.about}: {_what}.",
        )  # fmt: skip
