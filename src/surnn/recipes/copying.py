"""Copying Memory: Figure 2 and the noise test of the appendix.

The paper is silent on sizes; two layers learn it in half the updates of one. The noise test is an
evaluation of ``copying-2000``: ``surnn eval RUN --split test --task.noise uniform`` (the paper has
48.56 % for the suGRU and about 10 % for the GRU).
"""

from dataclasses import replace
from typing import Any

from ..config import GateConfig, ModelConfig, ModelKind, RunConfig, TrainConfig
from ..tasks.copying import Copying
from .base import frozen, recipe

FIGURE = "Figure 2b"


def ours(delay: int, steps: int, **task: Any) -> RunConfig:
    """SuGRU, two layers of 64 heads of 8, without blocks."""
    train = TrainConfig(
        steps=steps, batch=32, learning_rate=4e-3, warmup=100, hold=0.9, evaluate_every=200,
        cuda_graph=True,
    )  # fmt: skip
    model = ModelConfig(layers=2, width=512, heads=64, block="stack")
    data = Copying(delay=delay, objective="recall", **task)
    return RunConfig(data, model, GateConfig(rate=0.02, surrogate="triangle", slope=1.0), train)


def seldom(config: RunConfig, rate: float) -> RunConfig:
    """The same, pulled towards updates at so few steps, so that memories are left alone."""
    train = replace(config.train, rate_penalty=1.0, hold=0.6)
    return replace(config, gate=replace(config.gate, target_rate=rate), train=train)


def plain(config: RunConfig, kind: ModelKind, chrono: bool = False) -> RunConfig:
    """The same without gates, dense, half as wide, at a smaller learning rate."""
    config = config.beside(kind, chrono=chrono, width=256)
    return replace(config, train=replace(config.train, learning_rate=2e-3))


def each_unit(delay: int, steps: int, kind: ModelKind = "sugru") -> RunConfig:
    """A gate for each unit, at half the learning rate: what SuRNNs, whose updates keep nothing,
    need, and SuGRUs are surer with."""
    config = seldom(ours(delay, steps).beside(kind), 0.005)
    train = replace(config.train, learning_rate=2e-3)
    return replace(config, gate=replace(config.gate, granularity="unit"), train=train)


@recipe(FIGURE, "GRU with the gate")
def copying_5000() -> RunConfig:
    """Copying Memory, delay 5000: the learning curve."""
    return each_unit(5000, 5000)


@recipe(FIGURE, "RNN with the gate")
def copying_5000_surnn() -> RunConfig:
    """Elman RNNs that update selectively, a gate for each unit."""
    return each_unit(5000, 5000, "surnn")


@recipe(FIGURE, "GRU")
def copying_5000_gru() -> RunConfig:
    """GRUs, which update at every step."""
    return plain(ours(5000, 5000), "gru")


@recipe(FIGURE, "RNN")
def copying_5000_rnn() -> RunConfig:
    """Elman RNNs, which update at every step."""
    return plain(ours(5000, 5000), "rnn")


@recipe()
def copying_5000_lstm() -> RunConfig:
    """LSTMs."""
    return plain(ours(5000, 5000), "lstm")


@recipe()
def copying_5000_chrono() -> RunConfig:
    """The GRU that is told to hold on: the fair control."""
    return plain(ours(5000, 5000), "gru", chrono=True)


@recipe()
def copying_5000_frozen() -> RunConfig:
    """SuGRU with rhythms that are not trained, as seldom from the start."""
    return frozen(each_unit(5000, 5000))


@recipe("Figure A3, text", "suGRU", 0.8531)
def copying_2000() -> RunConfig:
    """Delay 2000, to be put to the noise test."""
    return seldom(ours(2000, 2500), 0.004)


@recipe("Figure A3, text", "GRU", 0.2781)
def copying_2000_gru() -> RunConfig:
    """The plain GRU of the noise test."""
    return plain(ours(2000, 5000), "gru")


@recipe()
def copying_1000() -> RunConfig:
    """Delay 1000, a few minutes on a GPU."""
    return ours(1000, 3000)


@recipe()
def copying_1000_surnn() -> RunConfig:
    """Elman RNNs that update selectively, a gate for each unit."""
    return each_unit(1000, 1500, "surnn")


@recipe()
def copying_100() -> RunConfig:
    """Delay 100, solved in a minute on a CPU: the SuGRU of make demo."""
    train = TrainConfig(steps=300, batch=32, learning_rate=1.5e-2, warmup=0, evaluate_every=50)
    model = ModelConfig(layers=2, width=256, heads=32, block="stack")
    gate = GateConfig(rate=0.1, surrogate="triangle", slope=1.0)
    return RunConfig(Copying(delay=100, objective="recall"), model, gate, train)


@recipe()
def copying_100_gru() -> RunConfig:
    """The GRU of make demo, at its own best learning rate."""
    config = copying_100().beside("gru")
    return replace(config, train=replace(config.train, learning_rate=3e-3))


@recipe()
def copying_100_chrono() -> RunConfig:
    """The GRU of make demo that is told to hold on."""
    config = copying_100_gru()
    return replace(config, model=replace(config.model, chrono=True))


@recipe()
def copying_variable() -> RunConfig:
    """Delays of 500 to 1000, which a clock cannot learn by heart."""
    return ours(1000, 5000, variable=True)


@recipe()
def copying_variable_input() -> RunConfig:
    """The same with gates that see the input: sampled, then hardened."""
    config = ours(1000, 5000, variable=True)
    train = replace(config.train, rate_penalty=0.1, anneal=(0.5, 0.75))
    return replace(config, gate=GateConfig("input", target_rate=0.05), train=train)
