"""Races: ours, and cuDNN's GRUs and LSTMs in the same blocks, for the same time on the same GPU.

All that is not the layer is the same for the three of a task. Updates are captured but not
compiled, so that all begin at once; learning rates rise over few updates, for some make few; no
sequences are mixed, for nothing is over-fitted in a minute; and all are validated on as many
sequences, about as often in time. That takes cuDNN's layers longer than ours, and they have so much
more time (the clock of a figure or table of wall-clock time stands still meanwhile).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ..config import ModelKind, RunConfig
from .arena import binary, read_first
from .base import IN_CUDNN, add, as_many, in_words
from .pixels import psmnist, scifar

OURS, THEIRS = 0.6, 0.8
"""Minutes, with validations; about half a minute without."""


@dataclass(frozen=True)
class Race:
    """A task, and how it is raced."""

    about: str
    ours: Callable[[], RunConfig]
    evaluate_every: tuple[int, int]
    """Updates of ours and of theirs, of which ours makes several times as many in a second."""


RACES = {
    "psmnist": Race("psMNIST, bit-reversed", psmnist, (25, 15)),
    "scifar": Race("CIFAR-10 in colour, crops and flips", scifar, (25, 15)),
    "text": Race(
        "film reviews, the first layer at every step", lambda: read_first(binary("text")), (25, 10)
    ),
}


def raced(race: Race, kind: ModelKind) -> RunConfig:
    """One of the three."""
    config, minutes, (every, _) = race.ours(), OURS, race.evaluate_every
    if kind != "sugru":
        config, minutes, (_, every) = as_many(config, kind), THEIRS, race.evaluate_every
    train = replace(
        config.train, compile=False, warmup=50, mixup=0.0, minutes=minutes, evaluate_every=every,
        evaluation_batches=8,
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
