"""Past the paper: real streams in which information is rare.

Rows named by a rate have gates that see the input, pulled to that share of updates.
"""

from dataclasses import replace
from functools import partial

from ..config import ModelConfig, RunConfig
from ..tasks.ecg import EcgBeats
from ..tasks.spoken_digits import SpokenDigits
from .base import CLOCK, SELECTIVE, Make, add, epochs, read_first, recipe


@recipe()
def ecg() -> RunConfig:
    """Beats in electrocardiograms, step by step; gates that see the signal."""
    model = ModelConfig(layers=3, width=128, dropout=0.1)
    train = epochs(100, 2_686, 32, rate_penalty=0.1, anneal=(0.5, 0.75), cuda_graph=True)
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
def ecg_open() -> RunConfig:
    """Two layers: one that reads every sample, and gates that see its output, pulled harder."""
    config = read_first(at_rate(ecg, 0.05))
    model = replace(config.model, layers=2)
    return replace(config, model=model, train=replace(config.train, rate_penalty=1.0))


@recipe()
def spoken_digits() -> RunConfig:
    """A spoken digit somewhere in four seconds of noise; gates that hear it."""
    model = ModelConfig(layers=3, width=128, dropout=0.2, pool="mean")
    train = epochs(100, 2_400, 64, rate_penalty=0.1, anneal=(0.5, 0.75), cuda_graph=True)
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


def at_rate(make: Make, rate: float) -> RunConfig:
    """The same with another share of updates."""
    config = make()
    return replace(config, gate=replace(config.gate, target_rate=rate))


for _rate in (0.03, 0.3):
    for _make in (ecg, spoken_digits):
        _name = _make.__name__.replace("_", "-")
        add(f"{_name}-rate-{_rate:g}", partial(at_rate, _make, _rate), f"{_rate:.0%} of updates.")
