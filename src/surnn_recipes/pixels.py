"""sMNIST, psMNIST and sCIFAR, one pass in residual blocks: Table 5.

Its psMNIST rows use the bit-reversal permutation; ``psmnist-torch0`` is the same with torch's of
seed 0. The models from the literature are not run again; our baselines are the same blocks with
another layer inside.

Each block of sMNIST and sCIFAR follows a convolution over the last row of pixels, or two, which the
paper does not mention; so do the blocks of GRUs, LSTMs and attention, but not those of state-space
layers. ``scifar-linear`` has such convolutions and no recurrence. Recurrent baselines have as many
parameters as ours, and therefore a smaller, dense state; attention and state-space layers are as
wide as our blocks, the latter with the norms and the learning rate of S4's own examples. Rows that
end in ``-equal`` have them in our blocks, convolutions included, with as many parameters.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from surnn.config import ModelKind, RunConfig
from surnn.tasks.cifar import SequentialCifar
from surnn.tasks.mnist import PermutedMnist, SequentialMnist

from .base import (
    DROPOUT,
    IMAGE_OPTIONS,
    IMAGE_TRAINING,
    TRIANGLE_CLOCK,
    WIDE,
    add,
    epochs,
    match_parameters,
    recipe,
    size_note,
    with_compile_and_graph,
    with_frozen_gates,
    with_soft_gates,
    with_transformer,
)

TABLE = "Table 5"
Variant = Literal[
    "gru", "lstm", "transformer", "s4d", "mingru", "s4d-equal", "transformer-equal", "frozen",
    "sigmoid",
]  # fmt: skip


def digits(task: SequentialMnist, mixup: float = 0.0, **model: Any) -> RunConfig:
    """A version of MNIST, with much weight decay and dropout against over-fitting."""
    train = epochs(40, 54_000, 256, weight_decay=0.1, mixup=mixup)
    return with_compile_and_graph(
        RunConfig(task, replace(WIDE, **DROPOUT, **model), TRIANGLE_CLOCK, train)
    )


@recipe(TABLE, "suGRU", 0.9953)
def smnist() -> RunConfig:
    """Sequential MNIST, with convolutions over the last row of 28 pixels."""
    return digits(SequentialMnist(), convolution=33)


@recipe(TABLE, "suGRU", 0.9886)
def psmnist() -> RunConfig:
    """Permuted sequential MNIST, in bit-reversed order as in S4; with mixup of digits."""
    return digits(PermutedMnist(), mixup=0.5)


@recipe(TABLE, "suGRU", 0.9886)
def psmnist_torch0() -> RunConfig:
    """In torch's random order of seed 0."""
    return digits(PermutedMnist(permutation="torch0"), mixup=0.5)


@recipe(TABLE, "suGRU", 0.8921)
def scifar() -> RunConfig:
    """Sequential CIFAR-10 in colour, crops and flips, six layers, target update rate 20 %."""
    model = replace(WIDE, layers=6, pool="mean", **IMAGE_OPTIONS)
    train = epochs(200, 45_000, 128, rate_penalty=0.1, **IMAGE_TRAINING)
    gate = replace(TRIANGLE_CLOCK, target_rate=0.2)
    return with_compile_and_graph(
        RunConfig(SequentialCifar(augment="crop_flip"), model, gate, train)
    )


@recipe()
def smnist_shifted() -> RunConfig:
    """With training images shifted by up to two pixels."""
    return replace(smnist(), task=SequentialMnist(augment="shift"))


@recipe()
def psmnist_shifted() -> RunConfig:
    """With training images shifted by up to two pixels before the permutation, without mixup."""
    return digits(PermutedMnist(augment="shift"))


@recipe()
def scifar_plain() -> RunConfig:
    """Without crops and flips, as in S4."""
    return replace(scifar(), task=SequentialCifar())


@recipe()
def scifar_linear() -> RunConfig:
    """Maps of each time step, 480 wide, in place of recurrence; the same convolutions."""
    return match_parameters(scifar(), "linear")


MATCHED: dict[Variant, ModelKind] = {
    "gru": "gru", "lstm": "lstm", "mingru": "mingru", "s4d-equal": "s4d",
    "transformer-equal": "transformer",
}  # fmt: skip
"""Variants with as many parameters as ours."""


def variant(make: Callable[[], RunConfig], other: Variant) -> RunConfig:
    """The same run with another layer in its blocks."""
    config = make()
    if other == "frozen":
        return with_frozen_gates(config)
    if other == "sigmoid":
        return with_soft_gates(config)
    if (kind := MATCHED.get(other)) is not None:
        return match_parameters(config, kind)
    config = replace(config, train=replace(config.train, cuda_graph=False, compile=False))
    if other == "transformer":
        return with_transformer(config)
    # As in S4's own examples.
    config = config.with_model("s4d", norm="batch", convolution=1)
    return replace(config, train=replace(config.train, learning_rate=4e-3))


ROWS: dict[Variant, tuple[str, str]] = {
    "lstm": ("LSTM", f"LSTMs, {size_note('lstm')}."),
    "transformer": ("Transformer", "A causal Transformer as deep and as wide."),
    "s4d": ("LSSL", "Diagonal state-space layers in blocks as wide."),
    "gru": ("", f"GRUs, {size_note('gru')}."),
    "mingru": ("", f"minGRUs, {size_note('mingru')}."),
    "s4d-equal": ("", f"Diagonal state-space layers in our blocks, {size_note('s4d')}."),
    "transformer-equal": ("", f"A causal Transformer, {size_note('transformer')}."),
    "frozen": ("", "SuGRU with rhythms that are not trained."),
    "sigmoid": ("", "SuGRU with gates that are sigmoids."),
}
NUMBERS: dict[str, dict[Variant, float]] = {
    "smnist": {"lstm": 0.989, "transformer": 0.989, "s4d": 0.9953},
    "psmnist": {"lstm": 0.9511, "transformer": 0.979, "s4d": 0.9876},
    "scifar": {"lstm": 0.6301, "transformer": 0.622, "s4d": 0.8465},
}
for _make in (smnist, psmnist, scifar):
    for _other, (_paper_name, _about) in ROWS.items():
        add(
            f"{_make.__name__}-{_other}",
            partial(variant, _make, _other),
            _about,
            paper_table=TABLE if _paper_name else "",
            paper_name=_paper_name,
            paper=NUMBERS[_make.__name__].get(_other),
        )
