"""sMNIST, psMNIST and sCIFAR, one pass in residual blocks: Table 5.

Its psMNIST rows are of the bit-reversal permutation; ``psmnist-torch0`` is the same with torch's
of seed 0. The rows from the literature are not re-run as they were: beside ours stand the same
blocks with another layer inside.

Before each block of sMNIST and sCIFAR stands a convolution in which a pixel meets the row above it,
or two, of which the paper does not tell; also where GRUs, LSTMs or attention are inside, but not
with state-space layers. ``scifar-linear`` has such convolutions and no recurrence. Recurrent ones
have as many parameters as ours, and so a smaller, dense state; attention and state-space layers are
as wide as our blocks, the latter with the norms and learning rate of S4's own examples.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from ..config import RunConfig
from ..tasks.cifar import SequentialCifar
from ..tasks.mnist import PermutedMnist, SequentialMnist
from .base import (
    DROPPED,
    NATURAL,
    NEAR,
    SMOOTHED,
    WIDE,
    add,
    as_many,
    at_once,
    epochs,
    frozen,
    in_words,
    recipe,
    sigmoid,
    transformer,
)

TABLE = "Table 5"
Beside = Literal["gru", "lstm", "transformer", "s4d", "mingru", "frozen", "sigmoid"]


def digits(task: SequentialMnist, mixup: float = 0.0, **model: Any) -> RunConfig:
    """A version of MNIST, with much weight decay and dropout: it is easily over-fitted."""
    train = epochs(40, 54_000, 256, weight_decay=0.1, mixup=mixup)
    return at_once(RunConfig(task, replace(WIDE, **DROPPED, **model), NEAR, train))


@recipe(TABLE, "suGRU", 0.9953)
def smnist() -> RunConfig:
    """Sequential MNIST; in convolutions a pixel meets the row above it, of 28."""
    return digits(SequentialMnist(), convolution=33)


@recipe(TABLE, "suGRU", 0.9886)
def psmnist() -> RunConfig:
    """Permuted sequential MNIST, in bit-reversed order as S4 has it; digits are mixed by pairs."""
    return digits(PermutedMnist(), mixup=0.5)


@recipe(TABLE, "suGRU", 0.9886)
def psmnist_torch0() -> RunConfig:
    """In torch's random order of seed 0."""
    return digits(PermutedMnist(permutation="torch0"), mixup=0.5)


@recipe(TABLE, "suGRU", 0.8921)
def scifar() -> RunConfig:
    """Sequential CIFAR-10 in colour, crops and flips, six layers, updates at a fifth of steps."""
    model = replace(WIDE, layers=6, pool="mean", **NATURAL)
    train = epochs(200, 45_000, 128, rate_penalty=0.1, **SMOOTHED)
    gate = replace(NEAR, target_rate=0.2)
    return at_once(RunConfig(SequentialCifar(augment="crop_flip"), model, gate, train))


@recipe()
def smnist_shifted() -> RunConfig:
    """With training images moved by up to two pixels."""
    return replace(smnist(), task=SequentialMnist(augment="shift"))


@recipe()
def psmnist_shifted() -> RunConfig:
    """With training images moved by up to two pixels before they are permuted, and not mixed."""
    return digits(PermutedMnist(augment="shift"))


@recipe()
def scifar_plain() -> RunConfig:
    """Without crops and flips, as S4 has it."""
    return replace(scifar(), task=SequentialCifar())


@recipe()
def scifar_linear() -> RunConfig:
    """No recurrence but maps of each step, 480 wide, between the same convolutions."""
    return as_many(scifar(), "linear")


def beside(make: Callable[[], RunConfig], other: Beside) -> RunConfig:
    """The same run with something else in its blocks."""
    config = make()
    if other == "frozen":
        return frozen(config)
    if other == "sigmoid":
        return sigmoid(config)
    if other not in ("transformer", "s4d"):
        return as_many(config, other)
    config = replace(config, train=replace(config.train, cuda_graph=False, compile=False))
    if other == "transformer":
        return transformer(config)
    # As S4's own examples have it.
    config = config.beside("s4d", norm="batch", convolution=1)
    return replace(config, train=replace(config.train, learning_rate=4e-3))


ROWS: dict[Beside, tuple[str, str]] = {
    "lstm": ("LSTM", f"LSTMs, {in_words('lstm')}."),
    "transformer": ("Transformer", "A causal Transformer as deep and as wide."),
    "s4d": ("LSSL", "Diagonal state-space layers in blocks as wide."),
    "gru": ("", f"GRUs, {in_words('gru')}."),
    "mingru": ("", f"minGRUs, {in_words('mingru')}."),
    "frozen": ("", "SuGRU with rhythms that are not trained."),
    "sigmoid": ("", "SuGRU with gates that are sigmoids."),
}
NUMBERS: dict[str, dict[Beside, float]] = {
    "smnist": {"lstm": 0.989, "transformer": 0.989, "s4d": 0.9953},
    "psmnist": {"lstm": 0.9511, "transformer": 0.979, "s4d": 0.9876},
    "scifar": {"lstm": 0.6301, "transformer": 0.622, "s4d": 0.8465},
}
for _make in (smnist, psmnist, scifar):
    for _other, (_called, _about) in ROWS.items():
        add(
            f"{_make.__name__}-{_other}",
            partial(beside, _make, _other),
            _about,
            where=TABLE if _called else "",
            called=_called,
            paper=NUMBERS[_make.__name__].get(_other),
        )
