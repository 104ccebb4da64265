"""Past the paper: real streams in which information is rare, and a language model of bytes."""

from dataclasses import replace

from ..config import GateConfig, ModelConfig, RunConfig, TrainConfig
from ..tasks.ecg import EcgBeats
from ..tasks.enwik8 import Enwik8
from ..tasks.spoken_digits import SpokenDigits
from .base import CLOCK, epochs, recipe, transformer

SELECTIVE = GateConfig("input", rate=0.3, target_rate=0.1)
"""Sees the input; needs a rate penalty in training."""


@recipe()
def ecg() -> RunConfig:
    """Beats in electrocardiograms, step by step; gates that see the signal."""
    model = ModelConfig(layers=3, width=128, dropout=0.1)
    train = epochs(100, 2_686, 32, rate_penalty=0.1, anneal=(0.5, 0.75))
    return RunConfig(EcgBeats(), model, SELECTIVE, train)


@recipe()
def ecg_clock() -> RunConfig:
    """The same with rhythms, which know nothing of the heart's."""
    config = ecg()
    train = replace(config.train, rate_penalty=0.0, anneal=None)
    return RunConfig(config.task, config.model, CLOCK, train)


@recipe()
def ecg_gru() -> RunConfig:
    """The same with GRUs, as many units."""
    return ecg().beside("gru")


@recipe()
def spoken_digits() -> RunConfig:
    """A spoken digit somewhere in four seconds of noise; gates that hear it."""
    model = ModelConfig(layers=3, width=128, dropout=0.2, pool="mean")
    train = epochs(100, 2_400, 64, rate_penalty=0.1, anneal=(0.5, 0.75))
    return RunConfig(SpokenDigits(), model, SELECTIVE, train)


@recipe()
def spoken_digits_clock() -> RunConfig:
    """The same with rhythms."""
    config = spoken_digits()
    train = replace(config.train, rate_penalty=0.0, anneal=None)
    return RunConfig(config.task, config.model, CLOCK, train)


@recipe()
def spoken_digits_gru() -> RunConfig:
    """The same with GRUs, as many units."""
    return spoken_digits().beside("gru")


@recipe()
def enwik8() -> RunConfig:
    """The next byte of Wikipedia, six layers of 512."""
    model = ModelConfig(layers=6, width=512, block="feedforward", dropout=0.1)
    train = TrainConfig(
        steps=40_000, batch=64, learning_rate=1e-3, weight_decay=0.01, warmup=1000, hold=0.5,
        evaluate_every=1000, evaluation_batches=16, checkpoint_every=1000, precision="bfloat16",
    )  # fmt: skip
    return RunConfig(Enwik8(), model, replace(CLOCK, rate=0.3), train)


@recipe()
def enwik8_gru() -> RunConfig:
    """The same with GRUs, as many units."""
    return enwik8().beside("gru")


@recipe()
def enwik8_transformer() -> RunConfig:
    """The same with attention."""
    return transformer(enwik8())
