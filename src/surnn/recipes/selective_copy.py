"""Selective Copy: Table 3. Full size is a body of 4096; some minutes are enough for 1024.

``selective-copy-1024`` and its like are trained on shorter bodies, to be tested on longer ones:
``surnn eval RUN --split test --task.body 4096``, or 16384.

The other recurrent layers have a state as large as ours, 256, in blocks as wide as that, and so
several times the parameters: what is asked for is memory.
"""

from dataclasses import replace

from ..config import GateConfig, ModelConfig, RunConfig, TrainConfig
from ..tasks.selective_copy import SelectiveCopy
from .base import CLOCK, frozen, recipe, with_task

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
    return ours(2).beside("gru", width=256)


@recipe(shorten=SHORTER)
def selective_copy_gru_3_layers() -> RunConfig:
    """GRUs with a state of the same size, three layers."""
    return ours(3).beside("gru", width=256)


@recipe(shorten=SHORTER)
def selective_copy_lstm() -> RunConfig:
    """LSTMs with a state of the same size, two layers."""
    return ours(2).beside("lstm", width=256)


@recipe(shorten=SHORTER)
def selective_copy_mingru() -> RunConfig:
    """minGRUs with a state of the same size, two layers."""
    return ours(2).beside("mingru", width=256)


@recipe(shorten=SHORTER)
def selective_copy_frozen() -> RunConfig:
    """SuGRU with rhythms that are not trained."""
    return frozen(ours(2))


@recipe(shorten=SHORTER)
def selective_copy_input() -> RunConfig:
    """Gates that see the input: sampled, then hardened."""
    config = ours(2)
    train = replace(config.train, rate_penalty=1.0, anneal=(0.5, 0.75))
    return replace(config, gate=GateConfig("input", rate=0.3, target_rate=0.02), train=train)


@recipe()
def selective_copy_1024() -> RunConfig:
    """Trained on bodies of 1024; clock gates."""
    return SHORTER(selective_copy())


@recipe()
def selective_copy_1024_input() -> RunConfig:
    """Trained on bodies of 1024; gates that see the input."""
    return SHORTER(selective_copy_input())
