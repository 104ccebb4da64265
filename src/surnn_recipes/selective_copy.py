"""Selective Copy: Table 3. The full size is a body of 4096; a body of 1024 takes minutes.

``selective-copy-1024`` and its variants train on shorter bodies and can be tested on longer ones:
``surnn eval RUN --split test --task.body 4096``, or 16384.

The other recurrent layers have a state as large as ours, 256, in blocks of that width, and
therefore several times the parameters: the task tests memory.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from surnn.config import InputGateConfig, ModelConfig, RunConfig, TrainConfig
from surnn.tasks.selective_copy import SelectiveCopy

from .base import CLOCK, add, recipe, with_frozen_gates, with_task

TABLE = "Table 3"
SHORTER = with_task(body=1024)


def ours(layers: int) -> RunConfig:
    """SuGRU of 16 heads of 16 in residual blocks of 64 features."""
    model = ModelConfig(layers=layers, width=64, expand=4)
    train = TrainConfig(steps=20_000, batch=64, warmup=200, hold=0.6, cuda_graph=True)
    return RunConfig(SelectiveCopy(), model, CLOCK, train)


@recipe(TABLE, "suGRU, S4(2L)", 0.972, shorten=SHORTER)
def selective_copy() -> RunConfig:
    """Selective Copy, two layers, clock gates."""
    return ours(2)


@recipe(TABLE, "suGRU, S4(3L)", 0.995, shorten=SHORTER)
def selective_copy_3_layers() -> RunConfig:
    """With three layers."""
    return ours(3)


@recipe(TABLE, "GRU, S4(2L)", 0.163, shorten=SHORTER)
def selective_copy_gru() -> RunConfig:
    """GRUs with a state of the same size, two layers."""
    return ours(2).with_model("gru", width=256)


@recipe(shorten=SHORTER)
def selective_copy_gru_3_layers() -> RunConfig:
    """GRUs with a state of the same size, three layers."""
    return ours(3).with_model("gru", width=256)


@recipe(shorten=SHORTER)
def selective_copy_lstm() -> RunConfig:
    """LSTMs with a state of the same size, two layers."""
    return ours(2).with_model("lstm", width=256)


@recipe(shorten=SHORTER)
def selective_copy_mingru() -> RunConfig:
    """minGRUs with a state of the same size, two layers."""
    return ours(2).with_model("mingru", width=256)


@recipe(shorten=SHORTER)
def selective_copy_s4d() -> RunConfig:
    """Diagonal state-space layers, 256 channels of 64 modes, two layers."""
    return ours(2).with_model("s4d", width=256)


@recipe(shorten=SHORTER)
def selective_copy_frozen() -> RunConfig:
    """SuGRU with untrained rhythms."""
    return with_frozen_gates(ours(2))


@recipe(shorten=SHORTER)
def selective_copy_input() -> RunConfig:
    """Gates that depend on the input: sampled first, then hard."""
    config = ours(2)
    train = replace(config.train, rate_penalty=1.0, anneal=(0.5, 0.75))
    return replace(config, gate=InputGateConfig(rate=0.3, target_rate=0.02), train=train)


@recipe()
def selective_copy_1024() -> RunConfig:
    """Trained on bodies of 1024; clock gates."""
    return SHORTER(selective_copy())


@recipe()
def selective_copy_1024_input() -> RunConfig:
    """Trained on bodies of 1024; gates that depend on the input."""
    return SHORTER(selective_copy_input())


def at_1024(make: Callable[[], RunConfig]) -> RunConfig:
    """Another model, trained on bodies of 1024."""
    return SHORTER(make())


for _name, _make in {
    "gru": selective_copy_gru, "lstm": selective_copy_lstm, "mingru": selective_copy_mingru,
    "s4d": selective_copy_s4d,
}.items():  # fmt: skip
    add(f"selective-copy-1024-{_name}", partial(at_1024, _make), f"Trained on 1024: {_name}.")
