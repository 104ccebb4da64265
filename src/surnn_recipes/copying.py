"""Copying Memory: Figure 2 and the noise test of the appendix.

The paper does not state sizes; two layers learn the task in half the steps of one. The noise test
is an evaluation of ``copying-2000``: ``surnn eval RUN --split test --task.noise gaussian
--task.sigma 0.3``, or ``uniform`` or ``symbols``. The paper has 48.56 % for the suGRU and about
10 % for the GRU; it does not state the noise.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from surnn.config import (
    InputGateConfig,
    ModelConfig,
    ModelKind,
    RhythmConfig,
    RunConfig,
    TrainConfig,
)
from surnn.tasks.copying import Copying

from .base import add, recipe, with_frozen_gates

FIGURE = "Figure 2b"


def ours(delay: int, steps: int, **task: Any) -> RunConfig:
    """SuGRU, two layers of 64 heads of 8, without blocks."""
    train = TrainConfig(
        steps=steps, batch=32, learning_rate=4e-3, warmup=100, hold=0.9, evaluate_every=200,
        cuda_graph=True,
    )  # fmt: skip
    model = ModelConfig(layers=2, width=512, heads=64, block="stack")
    data = Copying(delay=delay, objective="recall", **task)
    return RunConfig(data, model, RhythmConfig(rate=0.02, surrogate="triangle", slope=1.0), train)


def with_low_rate(config: RunConfig, rate: float) -> RunConfig:
    """The same with a low target update rate, which protects memories."""
    train = replace(config.train, rate_penalty=1.0, hold=0.6)
    return replace(config, gate=replace(config.gate, target_rate=rate), train=train)


def without_gates(config: RunConfig, kind: ModelKind, chrono: bool = False) -> RunConfig:
    """The same without gates: dense, half as wide, at a lower learning rate."""
    config = config.with_model(kind, chrono=chrono, width=256)
    return replace(config, train=replace(config.train, learning_rate=2e-3))


def unit_gate_config(delay: int, steps: int, kind: ModelKind = "sugru") -> RunConfig:
    """One gate per unit, at half the learning rate. SuRNNs need it, because an update overwrites a
    unit completely; SuGRUs train more reliably with it."""
    config = with_low_rate(ours(delay, steps).with_model(kind), 0.005)
    train = replace(config.train, learning_rate=2e-3)
    return replace(config, gate=replace(config.gate, granularity="unit"), train=train)


@recipe(FIGURE, "GRU with the gate")
def copying_5000() -> RunConfig:
    """Copying Memory, delay 5000: the learning curve."""
    return unit_gate_config(5000, 5000)


@recipe(FIGURE, "RNN with the gate")
def copying_5000_surnn() -> RunConfig:
    """Elman RNNs with selective updates, one gate per unit."""
    return unit_gate_config(5000, 5000, "surnn")


@recipe(FIGURE, "GRU")
def copying_5000_gru() -> RunConfig:
    """GRUs, which update at every time step."""
    return without_gates(ours(5000, 5000), "gru")


@recipe(FIGURE, "RNN")
def copying_5000_rnn() -> RunConfig:
    """Elman RNNs, which update at every time step."""
    return without_gates(ours(5000, 5000), "rnn")


def rnn_at_rate(rate: float) -> RunConfig:
    """The same at a lower learning rate: at the recipe's the loss rises above that of a model
    without memory."""
    config = copying_5000_rnn()
    return replace(config, train=replace(config.train, learning_rate=rate))


for _rate in (5e-4, 1.25e-4, 3e-5):
    add(
        f"copying-5000-rnn-lr-{_rate:g}", partial(rnn_at_rate, _rate),
        f"Elman RNNs at a learning rate of {_rate:g}.",
    )  # fmt: skip


@recipe()
def copying_5000_lstm() -> RunConfig:
    """LSTMs."""
    return without_gates(ours(5000, 5000), "lstm")


@recipe()
def copying_5000_chrono() -> RunConfig:
    """The GRU with chrono initialisation (Tallec and Ollivier, 2018)."""
    return without_gates(ours(5000, 5000), "gru", chrono=True)


@recipe()
def copying_5000_frozen() -> RunConfig:
    """SuGRU with untrained rhythms, at the low rate from the start."""
    return with_frozen_gates(unit_gate_config(5000, 5000))


@recipe("Figure A3, text", "suGRU", 0.8531)
def copying_2000() -> RunConfig:
    """Delay 2000, for the noise test."""
    return with_low_rate(ours(2000, 2500), 0.004)


@recipe("Figure A3, text", "GRU", 0.2781)
def copying_2000_gru() -> RunConfig:
    """The plain GRU of the noise test."""
    return without_gates(ours(2000, 5000), "gru")


@recipe()
def copying_2000_lstm() -> RunConfig:
    """The LSTM of the noise test."""
    return without_gates(ours(2000, 5000), "lstm")


@recipe()
def copying_2000_chrono() -> RunConfig:
    """The GRU of the noise test with chrono initialisation."""
    return without_gates(ours(2000, 5000), "gru", chrono=True)


@recipe()
def copying_1000() -> RunConfig:
    """Delay 1000, a few minutes on a GPU."""
    return ours(1000, 3000)


@recipe()
def copying_1000_surnn() -> RunConfig:
    """Elman RNNs with selective updates, one gate per unit."""
    return unit_gate_config(1000, 1500, "surnn")


@recipe()
def copying_100() -> RunConfig:
    """Delay 100, solved in a minute on a CPU: the SuGRU of make demo."""
    train = TrainConfig(steps=300, batch=32, learning_rate=1.5e-2, warmup=0, evaluate_every=50)
    model = ModelConfig(layers=2, width=256, heads=32, block="stack")
    gate = RhythmConfig(rate=0.1, surrogate="triangle", slope=1.0)
    return RunConfig(Copying(delay=100, objective="recall"), model, gate, train)


@recipe()
def copying_100_gru() -> RunConfig:
    """The GRU of make demo, at a learning rate of its own (no sweep is on record)."""
    config = copying_100().with_model("gru")
    return replace(config, train=replace(config.train, learning_rate=3e-3))


@recipe()
def copying_100_chrono() -> RunConfig:
    """The GRU of make demo with chrono initialisation."""
    config = copying_100_gru()
    return replace(config, model=replace(config.model, chrono=True))


@recipe()
def copying_variable() -> RunConfig:
    """Delays of 500 to 1000, which a clock cannot memorise."""
    return ours(1000, 5000, variable=True)


@recipe()
def copying_variable_input() -> RunConfig:
    """The same with gates that depend on the input: sampled first, then hard."""
    config = ours(1000, 5000, variable=True)
    train = replace(config.train, rate_penalty=0.1, anneal=(0.5, 0.75))
    return replace(config, gate=InputGateConfig(target_rate=0.05), train=train)
