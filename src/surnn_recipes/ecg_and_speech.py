"""Beyond the paper: real signals with rare information.

Rows named by a rate have gates that depend on the input, with that target update rate. Rows named
by a speaker are tested on that speaker and trained on the other five.
"""

from dataclasses import replace
from functools import partial

from surnn.config import FullGateConfig, ModelConfig, RunConfig
from surnn.tasks.ecg import EcgBeats
from surnn.tasks.spoken_digits import SpokenDigits

from .base import CLOCK, SELECTIVE, Make, add, epochs, recipe, with_ungated_first_layer


@recipe()
def ecg() -> RunConfig:
    """Beats in electrocardiograms; gates that depend on the signal."""
    model = ModelConfig(layers=3, width=128, dropout=0.1)
    train = epochs(100, 2_686, 32, rate_penalty=0.1, anneal=(0.5, 0.75), cuda_graph=True)
    return RunConfig(EcgBeats(), model, SELECTIVE, train)


@recipe()
def ecg_clock() -> RunConfig:
    """The same with rhythms, which do not depend on the signal."""
    config = ecg()
    train = replace(config.train, rate_penalty=0.0, anneal=None)
    return RunConfig(config.task, config.model, CLOCK, train)


@recipe()
def ecg_full() -> RunConfig:
    """Gates that see the last nine samples and a memory of earlier ones; target rate 30 %."""
    gate = FullGateConfig(rhythm=False, conv=8, hidden=32, rate=0.3, target_rate=0.3)
    return replace(ecg(), gate=gate)


@recipe()
def ecg_gru() -> RunConfig:
    """The same with GRUs of as many units."""
    return ecg().with_model("gru")


@recipe()
def ecg_open() -> RunConfig:
    """Two layers: the first reads every sample, the second has gates with a stronger penalty."""
    config = with_ungated_first_layer(with_target_rate(ecg, 0.05))
    model = replace(config.model, layers=2)
    return replace(config, model=model, train=replace(config.train, rate_penalty=1.0))


@recipe()
def spoken_digits() -> RunConfig:
    """A spoken digit somewhere in four seconds of noise; gates that depend on the sound."""
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
    """The same with GRUs of as many units."""
    return spoken_digits().with_model("gru")


def with_target_rate(make: Make, rate: float) -> RunConfig:
    """The same with another target update rate."""
    config = make()
    return replace(config, gate=replace(config.gate, target_rate=rate))


for _rate in (0.03, 0.3):
    for _make in (ecg, spoken_digits):
        _name = _make.__name__.replace("_", "-")
        _about = f"Target update rate {_rate:.0%}."
        add(f"{_name}-rate-{_rate:g}", partial(with_target_rate, _make, _rate), _about)


def with_new_speaker(make: Make, speaker: str) -> RunConfig:
    """The same, tested on a speaker whom training does not hear."""
    config = make()
    return replace(config, task=replace(config.task, new_speaker=speaker))


SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
for _speaker in SPEAKERS:
    for _make in (spoken_digits, spoken_digits_gru):
        _name = _make.__name__.replace("_", "-")
        _about = f"Tested on {_speaker}, trained on the other speakers."
        add(f"{_name}-new-{_speaker}", partial(with_new_speaker, _make, _speaker), _about)
