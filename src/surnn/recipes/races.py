"""Races: ours, and cuDNN's GRUs and LSTMs in the same blocks, for the same time on the same GPU.

All that is not the layer is the same for the three of a task. Updates are captured but not compiled,
so that all begin at once; learning rates rise over few updates, for some make few; and all are
validated on as many sequences, about as often in time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ..config import ModelKind, RunConfig
from .arena import binary, read_first
from .base import IN_CUDNN, add, as_many, in_words
from .pixels import psmnist, scifar


@dataclass(frozen=True)
class Race:
    """A task, and how it is raced."""

    about: str
    ours: Callable[[], RunConfig]
    minutes: float
    evaluate_every: dict[ModelKind, int]
    """In updates, of which ours makes several times as many in a second."""
    evaluation_batches: int


RACES = {
    "psmnist": Race(
        "psMNIST, bit-reversed", psmnist, 0.7, {"sugru": 50, "gru": 15, "lstm": 15}, 8
    ),
    "scifar": Race(
        "CIFAR-10 in colour, crops and flips", scifar, 0.8, {"sugru": 50, "gru": 15, "lstm": 15}, 16
    ),
    "text": Race(
        "film reviews, the first layer at every step", lambda: read_first(binary("text")), 0.8,
        {"sugru": 50, "gru": 10, "lstm": 10}, 16,
    ),
}  # fmt: skip


def raced(race: Race, kind: ModelKind) -> RunConfig:
    """One of the three."""
    config = race.ours()
    if kind != "sugru":
        config = as_many(config, kind)
    train = replace(
        config.train, compile=False, warmup=50, minutes=race.minutes,
        evaluate_every=race.evaluate_every[kind], evaluation_batches=race.evaluation_batches,
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
