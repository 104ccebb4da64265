"""Past the paper: real streams in which information is rare."""

from dataclasses import replace

from ..config import GateConfig, ModelConfig, RunConfig
from ..tasks.ecg import EcgBeats
from ..tasks.spoken_digits import SpokenDigits
from .base import CLOCK, epochs, recipe

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
