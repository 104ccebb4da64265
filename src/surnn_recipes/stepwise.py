"""psMNIST without blocks: Table A1, one dense head with one gate per unit.

Table A1(a): two layers of 256, NRU's permutation, split and number of steps (50,000 of 100 images);
dropout and weight decay are ours. Further rows have other gates, other groups of units per gate and
other update rates.
Table A1(b): adaptive spiking neurons, 64-256-256, torch's permutation of seed 0. (The last layer of
the published networks has no recurrence; ours has.)
"""

from dataclasses import replace
from functools import partial
from typing import Any

from surnn.config import (
    AlwaysOpenConfig,
    CyclesConfig,
    EveryNConfig,
    FixedRandomConfig,
    FixedRhythmConfig,
    FullGateConfig,
    GateConfig,
    InputGateConfig,
    ModelConfig,
    ModelKind,
    RhythmConfig,
    RunConfig,
    SpectralConfig,
    SplineConfig,
    TableConfig,
    ThresholdConfig,
    TrainConfig,
    WarpedRhythmConfig,
)
from surnn.config.gate import Granularity
from surnn.tasks.mnist import PermutedMnist, SpikingPermutedMnist

from .base import add, epochs, recipe, with_soft_gates

TABLE, SPIKING = "Table A1(a)", "Table A1(b)"
RHYTHM = RhythmConfig(rate=0.1, granularity="unit", frequencies=256, min_period=4.0)
"""As many sinusoids as units, as in the paper."""


def row(gate: GateConfig = RHYTHM, kind: ModelKind = "sugru") -> RunConfig:
    """A row with gates."""
    model = ModelConfig(kind, layers=2, width=256, heads=1, block="stack", dropout=0.2)
    train = TrainConfig(
        steps=50_000, batch=100, learning_rate=5e-4 if kind == "surnn" else 1e-3, warmup=200,
        hold=0.6, weight_decay=0.1, evaluate_every=500, precision="bfloat16", cuda_graph=True,
    )  # fmt: skip
    return RunConfig(PermutedMnist(permutation="nru"), model, gate, train)


# ---------------------------------------------------------------------------- cells


@recipe(TABLE, "su-GRU", 0.9821)
def psmnist_stepwise() -> RunConfig:
    """SuGRU, one learned rhythm per unit."""
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
    """The GRU with the same training (the paper's number is from a smaller one)."""
    return row().with_model("gru")


@recipe(TABLE, "LSTM", 0.8986)
def psmnist_stepwise_lstm() -> RunConfig:
    """The LSTM."""
    return row().with_model("lstm")


@recipe(TABLE, "LSTM-chrono", 0.8843)
def psmnist_stepwise_lstm_chrono() -> RunConfig:
    """The LSTM with chrono initialisation."""
    return row().with_model("lstm", chrono=True)


@recipe()
def psmnist_stepwise_gru_chrono() -> RunConfig:
    """The GRU with chrono initialisation."""
    return row().with_model("gru", chrono=True)


@recipe(TABLE, "RNN-orth", 0.8926)
def psmnist_stepwise_rnn() -> RunConfig:
    """The RNN with orthogonal weights: SuRNN, always open."""
    return row(AlwaysOpenConfig(), "surnn")


# ---------------------------------------------------------------------------- gates


@recipe(TABLE, "su-GRU(fixed random Rhy)", 0.9773)
def psmnist_stepwise_frozen() -> RunConfig:
    """Untrained random rhythms, biases drawn from N(0, 0.5)."""
    return row(FixedRhythmConfig(granularity="unit", frequencies=256, min_period=4.0))


@recipe(TABLE, "su-GRU(every 3 steps)", 0.10)
def psmnist_stepwise_every_3() -> RunConfig:
    """All units at every third time step."""
    return row(EveryNConfig(n=3))


@recipe(TABLE, "su-GRU(fixed random)", 0.10)
def psmnist_stepwise_random() -> RunConfig:
    """Fixed random gates: one coin toss per time step and unit."""
    return row(FixedRandomConfig(rate=0.5))


@recipe(TABLE, "su-GRU(x>0): nan")
def psmnist_stepwise_positive() -> RunConfig:
    """All units of both layers where the pixel is not black."""
    return row(ThresholdConfig())


@recipe(TABLE, "su-GRU(learnable N*T)", 0.1325)
def psmnist_stepwise_table() -> RunConfig:
    """One free logit per time step and unit."""
    return row(TableConfig(rate=0.5, granularity="unit"))


@recipe()
def psmnist_stepwise_sigmoid() -> RunConfig:
    """Soft gates (the paper has that row for the Arena only)."""
    return with_soft_gates(row())


@recipe()
def psmnist_stepwise_open() -> RunConfig:
    """No gate: every unit updates at every time step."""
    return row(AlwaysOpenConfig())


@recipe()
def psmnist_stepwise_input() -> RunConfig:
    """Gates that depend on the input: sampled first, then hard."""
    config = row()
    gate = InputGateConfig(rate=0.3, target_rate=0.1, granularity="unit")
    train = replace(config.train, rate_penalty=0.1, anneal=(0.5, 0.75))
    return replace(config, gate=gate, train=train)


@recipe()
def psmnist_stepwise_full() -> RunConfig:
    """Rhythms that also see the input, now and before; hard from the start, as rhythms are."""
    return row(FullGateConfig(mode="hard", **RHYTHM.changed()))


CLOCKS: dict[str, tuple[str, GateConfig]] = {
    "warped": ("A rhythm on a learned clock.", WarpedRhythmConfig(**RHYTHM.changed())),
    "spline": ("B-splines.", SplineConfig(rate=0.1, granularity="unit")),
    "spectral": (
        "Masked Fourier coefficients.",
        SpectralConfig(rate=0.1, granularity="unit"),
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


def fixed(kind: str, rate: float, shared: bool) -> GateConfig:
    """A schedule that is not trained: coins, sinusoids, or every n-th time step."""
    granularity: Granularity = "layer" if shared else "unit"
    if kind == "coin":
        return FixedRandomConfig(rate=rate, granularity=granularity)
    if kind == "rhythm":
        return replace(RHYTHM, rate=rate, frozen=True, granularity=granularity)
    return EveryNConfig(n=round(1 / rate), staggered=not shared, granularity=granularity)


for _kind in ("coin", "rhythm", "period"):
    for _rate in (0.02, 0.1, 0.5):
        for _shared in (False, True):
            add(
                f"psmnist-fixed-{_kind}-{_rate:g}-{'shared' if _shared else 'own'}",
                partial(row, fixed(_kind, _rate, _shared)),
                f"Never trained: {_kind}, {_rate:.0%} of steps, "
                f"{'one schedule for all units' if _shared else 'one for each unit'}.",
            )


@recipe()
def psmnist_stepwise_heads() -> RunConfig:
    """16 heads of 16 units with one rhythm each: the form in which GPUs can skip work."""
    config = row(replace(RHYTHM, granularity="head"))
    return replace(config, model=replace(config.model, heads=16))


# ---------------------------------------------------------------------------- spikes


def spiking(gate: GateConfig, **model: Any) -> RunConfig:
    """Adaptive spiking neurons with a gate. Products are in bfloat16, which represents spikes
    exactly; membranes and adaptations are in float32."""
    train = epochs(150, 54_000, 256, learning_rate=5e-3, cuda_graph=True)
    neurons = ModelConfig(
        "susnn", widths=(64, 256, 256), heads=1, block="stack", pool="mean", **model
    )
    return RunConfig(SpikingPermutedMnist(), neurons, gate, train)


LOW_RATE = RhythmConfig(rate=0.05, granularity="unit")
"""One rhythm per neuron, at 5 % of time steps."""


def with_rate_penalty(config: RunConfig) -> RunConfig:
    """The configuration with a penalty that holds rhythms at their initial rate, and a tenth of the
    learning rate for the gates. At the full learning rate gates open at more and more time steps,
    and the gradient of these neurons explodes over many updates."""
    assert isinstance(config.gate, RhythmConfig)
    gate = replace(config.gate, target_rate=config.gate.rate)
    gate_rate = config.train.learning_rate / 10
    train = replace(config.train, rate_penalty=1.0, gate_learning_rate=gate_rate)
    return replace(config, gate=gate, train=train)


@recipe(SPIKING, "su-SNN", 0.9733)
def spiking_psmnist() -> RunConfig:
    """Adaptive spiking neurons with learned rhythms."""
    return with_rate_penalty(spiking(LOW_RATE))


@recipe()
def spiking_psmnist_open() -> RunConfig:
    """The same neurons without gates."""
    return spiking(AlwaysOpenConfig())


@recipe()
def spiking_psmnist_frozen() -> RunConfig:
    """With untrained random rhythms."""
    return spiking(replace(LOW_RATE, frozen=True))


@recipe()
def spiking_psmnist_adapting() -> RunConfig:
    """With an adaptation that decays while the membrane is carried."""
    return with_rate_penalty(spiking(LOW_RATE, adaptation_always_decays=True))


@recipe()
def spiking_psmnist_rhythm() -> RunConfig:
    """Fixed cycles of 10 to 100 time steps as in Rhythm-SNN; adaptation decays throughout."""
    return spiking(CyclesConfig(granularity="unit"), adaptation_always_decays=True)
