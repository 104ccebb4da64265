"""psMNIST step by step: Table A1, without blocks, one dense head with a gate for each unit.

Table A1(a): two layers of 256, NRU's permutation, split and number of updates (50,000 of 100);
dropout and weight decay are ours. The gates that the paper has not put into it, who shares one and
how often they open are beside.
Table A1(b): adaptive spiking neurons, 64-256-256, torch's permutation of seed 0. (The last layer
of the networks it is compared with has no recurrence; ours has.)
"""

from dataclasses import replace
from functools import partial
from typing import Any

from ..config import GateConfig, ModelConfig, ModelKind, RunConfig, TrainConfig
from ..tasks.mnist import PermutedMnist, SpikingPermutedMnist
from .base import add, epochs, recipe, sigmoid

TABLE, SPIKING = "Table A1(a)", "Table A1(b)"
RHYTHM = GateConfig(rate=0.1, granularity="unit", frequencies=256, min_period=4.0)
"""As many sinusoids as units, as in the paper."""


def row(gate: GateConfig = RHYTHM, kind: ModelKind = "sugru") -> RunConfig:
    """Any of the rows with gates."""
    model = ModelConfig(kind, layers=2, width=256, heads=1, block="stack", dropout=0.2)
    train = TrainConfig(
        steps=50_000, batch=100, learning_rate=5e-4 if kind == "surnn" else 1e-3, warmup=200,
        hold=0.6, weight_decay=0.1, evaluate_every=500, precision="bfloat16", cuda_graph=True,
    )  # fmt: skip
    return RunConfig(PermutedMnist(permutation="nru"), model, gate, train)


# ---------------------------------------------------------------------------- cells


@recipe(TABLE, "su-GRU", 0.9821)
def psmnist_stepwise() -> RunConfig:
    """SuGRU, a learned rhythm for each unit."""
    return row()


@recipe(TABLE, "su-RNN", 0.9776)
def psmnist_stepwise_surnn() -> RunConfig:
    """SuRNN."""
    return row(kind="surnn")


@recipe(TABLE, "su-LSTM", 0.9764)
def psmnist_stepwise_sulstm() -> RunConfig:
    """SuLSTM."""
    return row(kind="sulstm")


@recipe(TABLE, "GRU", 0.9239)
def psmnist_stepwise_gru() -> RunConfig:
    """The GRU in the same training (the paper's number is of a smaller one)."""
    return row().beside("gru")


@recipe(TABLE, "LSTM", 0.8986)
def psmnist_stepwise_lstm() -> RunConfig:
    """The LSTM."""
    return row().beside("lstm")


@recipe(TABLE, "LSTM-chrono", 0.8843)
def psmnist_stepwise_lstm_chrono() -> RunConfig:
    """The LSTM that is told to hold on."""
    return row().beside("lstm", chrono=True)


@recipe()
def psmnist_stepwise_gru_chrono() -> RunConfig:
    """The GRU that is told to hold on."""
    return row().beside("gru", chrono=True)


@recipe(TABLE, "RNN-orth", 0.8926)
def psmnist_stepwise_rnn() -> RunConfig:
    """The RNN with orthogonal weights: SuRNN, always open."""
    return row(GateConfig("open"), "surnn")


# ---------------------------------------------------------------------------- gates


@recipe(TABLE, "su-GRU(fixed random Rhy)", 0.9773)
def psmnist_stepwise_frozen() -> RunConfig:
    """A random rhythm that is never trained, biases drawn from N(0, 0.5)."""
    return row(replace(RHYTHM, kind="fixed_rhythm", rate=None))


@recipe(TABLE, "su-GRU(every 3 steps)", 0.10)
def psmnist_stepwise_every_3() -> RunConfig:
    """All units at every third step."""
    return row(GateConfig("every_n", n=3))


@recipe(TABLE, "su-GRU(fixed random)", 0.10)
def psmnist_stepwise_random() -> RunConfig:
    """A coin for every step and unit, tossed once."""
    return row(GateConfig("fixed_random", rate=0.5))


@recipe(TABLE, "su-GRU(x>0): nan")
def psmnist_stepwise_positive() -> RunConfig:
    """All units of both layers where the pixel is not black."""
    return row(GateConfig("threshold"))


@recipe(TABLE, "su-GRU(learnable N*T)", 0.1325)
def psmnist_stepwise_table() -> RunConfig:
    """A free logit for every step and unit."""
    return row(GateConfig("table", rate=0.5, granularity="unit"))


@recipe()
def psmnist_stepwise_sigmoid() -> RunConfig:
    """Gates that are sigmoids (the paper has that row for the Arena only)."""
    return sigmoid(row())


@recipe()
def psmnist_stepwise_open() -> RunConfig:
    """No gate: every unit at every step."""
    return row(GateConfig("open"))


@recipe()
def psmnist_stepwise_input() -> RunConfig:
    """Gates that see the input: sampled, then hardened."""
    config = row()
    gate = GateConfig("input", rate=0.3, target_rate=0.1, granularity="unit")
    train = replace(config.train, rate_penalty=0.1, anneal=(0.5, 0.75))
    return replace(config, gate=gate, train=train)


CLOCKS: dict[str, tuple[str, GateConfig]] = {
    "warped": ("A rhythm on a learned clock.", replace(RHYTHM, kind="warped")),
    "spline": ("B-splines.", GateConfig("spline", rate=0.1, granularity="unit")),
    "spectral": (
        "Masked Fourier coefficients.",
        GateConfig("spectral", rate=0.1, granularity="unit"),
    ),
    "frozen-sparse": (
        "Rhythms that are never trained, open at 10% of steps.",
        replace(RHYTHM, frozen=True),
    ),
    "groups": ("A rhythm for every 16 units.", replace(RHYTHM, granularity=16)),
    "layer": ("One rhythm for all units of a layer.", replace(RHYTHM, granularity="layer")),
    **{
        f"rate-{rate:g}": (
            f"Rhythms that begin open at {rate:.0%} of steps.",
            replace(RHYTHM, rate=rate),
        )
        for rate in (0.02, 0.05, 0.2, 0.5)
    },
}
for _name, (_about, _gate) in CLOCKS.items():
    add(f"psmnist-stepwise-{_name}", partial(row, _gate), _about)


@recipe()
def psmnist_stepwise_heads() -> RunConfig:
    """16 heads of 16 units, each with a rhythm of its own: the form that GPUs skip work by."""
    config = row(replace(RHYTHM, granularity="head"))
    return replace(config, model=replace(config.model, heads=16))


# ---------------------------------------------------------------------------- spikes


def spiking(gate: GateConfig, **model: Any) -> RunConfig:
    """Adaptive spiking neurons with any gate. Products are in bfloat16, in which a spike is exact;
    membranes and adaptations stay in float32."""
    train = epochs(150, 54_000, 256, learning_rate=5e-3, cuda_graph=True)
    neurons = ModelConfig(
        "susnn", widths=(64, 256, 256), heads=1, block="stack", pool="mean", **model
    )
    return RunConfig(SpikingPermutedMnist(), neurons, gate, train)


SELDOM = GateConfig(rate=0.05, granularity="unit")
"""A rhythm for each neuron, at one step of twenty."""


def pulled_back(config: RunConfig) -> RunConfig:
    """The same with rhythms that are pulled towards the rate they begin with, and learn at a tenth
    of the pace. As fast as weights they open more and more steps, and the gradient of these neurons
    explodes along many updates."""
    gate = replace(config.gate, target_rate=config.gate.rate)
    slowly = config.train.learning_rate / 10
    train = replace(config.train, rate_penalty=1.0, gate_learning_rate=slowly)
    return replace(config, gate=gate, train=train)


@recipe(SPIKING, "su-SNN", 0.9733)
def spiking_psmnist() -> RunConfig:
    """Adaptive spiking neurons with learned rhythms."""
    return pulled_back(spiking(SELDOM))


@recipe()
def spiking_psmnist_open() -> RunConfig:
    """The same neurons without gates."""
    return spiking(GateConfig("open"))


@recipe()
def spiking_psmnist_frozen() -> RunConfig:
    """With random rhythms that are never trained."""
    return spiking(replace(SELDOM, frozen=True))


@recipe()
def spiking_psmnist_adapting() -> RunConfig:
    """With an adaptation that goes on while the membrane is carried."""
    return pulled_back(spiking(SELDOM, adaptation_goes_on=True))


@recipe()
def spiking_psmnist_rhythm() -> RunConfig:
    """Fixed cycles as of Rhythm-SNN, 10 to 100 steps in all layers, adaptation going on."""
    return spiking(GateConfig("cycles", granularity="unit"), adaptation_goes_on=True)
