"""Always listening: command words in clips, and in streams of noise.

All models are plain stacks of two layers without blocks (S4D: two residual blocks, which it needs),
with as many parameters, within 5 %; they have the same training, the same augmentation, and the
same data. suGRU is as wide as the GRU and as dense; groups of 16 units share a gate that reads the
log-mel frame, also in the second layer, so that nothing but gates and the readout is computed in
pauses.

On clips, gates are sampled in the first half of training and hard in the last quarter. Streams
start with the weights of clips (``--train.start RUN``), so their gates are hard from the beginning,
and the target rate falls over the first half.

Rows named by a rate have that target update rate; rows of DeltaGRU and Skip-RNN are named by their
threshold or budget. Together they are the curves of quality against work.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from surnn.config import (
    GateConfig,
    InputGateConfig,
    ModelConfig,
    ModelKind,
    RunConfig,
    SSMGateConfig,
    TrainConfig,
)
from surnn.tasks.keyword_stream import KeywordStream
from surnn.tasks.speech_commands import SpeechCommands

from .base import add, epochs

WIDTH = 128
"""Units of a GRU layer."""
EQUAL: dict[ModelKind, dict[str, Any]] = {
    "sugru": {"width": WIDTH, "heads": 1},
    "gru": {"width": WIDTH, "half_state": True},
    "lstm": {"width": 108, "half_state": True},
    "mingru": {"width": 264},
    "s4d": {"width": 144, "block": "residual"},
    "deltagru": {"width": WIDTH},
    "skipgru": {"width": WIDTH},
}  # fmt: skip
"""Widths at which the models have as many parameters."""
NAMES: dict[ModelKind, str] = {
    "gru": "GRUs", "lstm": "LSTMs", "mingru": "minGRUs", "s4d": "diagonal state-space layers",
    "deltagru": "DeltaGRUs", "skipgru": "Skip-RNN",
}  # fmt: skip
CLIP_RATE, STREAM_RATE = 0.5, 0.04
"""Target update rates. A clip is half word; of a training stream an eighth is, of a test stream a
twentieth."""
GROUP = 16
"""Units of suGRU that share a gate."""
HORIZON = 500
"""Frames that gates with a memory are designed for, those of a training stream: for clips too, so
that streams can start from the weights of clips."""
_SHARED: dict[str, Any] = {"rate": 0.3, "granularity": GROUP, "source": "input"}
GATES: dict[str, Callable[..., GateConfig]] = {
    "ssm": partial(SSMGateConfig, horizon=HORIZON, **_SHARED),
    "input": partial(InputGateConfig, **_SHARED),
}


def clips(gate: str = "ssm", rate: float = CLIP_RATE) -> RunConfig:
    """suGRU on clips."""
    model = ModelConfig(layers=2, block="stack", dropout=0.1, pool="mean", **EQUAL["sugru"])
    train = epochs(
        40, 22_246, 256, weight_decay=0.05, label_smoothing=0.1, hold=0.3, final=0.01,
        evaluate_every=344, rate_penalty=0.3, anneal=(0.5, 0.75), cuda_graph=True,
        evaluation_batch=1024, log_every=100,
    )  # fmt: skip
    return RunConfig(SpeechCommands(), model, GATES[gate](target_rate=rate), train)


def streams(gate: str = "ssm", rate: float = STREAM_RATE) -> RunConfig:
    """suGRU on streams, which is to start with the weights of clips."""
    model = ModelConfig(layers=2, block="stack", dropout=0.1, **EQUAL["sugru"])
    train = TrainConfig(
        steps=4000, batch=128, learning_rate=2e-3, warmup=200, hold=0.4, final=0.01,
        weight_decay=0.05, evaluate_every=1000, checkpoint_every=4000, precision="bfloat16",
        rate_penalty=1.0, rate_ramp=(0.0, 0.5), cuda_graph=True, evaluation_batch=300,
        log_every=100,
    )  # fmt: skip
    return RunConfig(KeywordStream(), model, GATES[gate](target_rate=rate, mode="hard"), train)


def other(make: Callable[[], RunConfig], kind: ModelKind, **options: Any) -> RunConfig:
    """The same with another model of equal size."""
    config = make()
    return config.with_model(kind, **{"block": "stack", **EQUAL[kind], **options})


for _task, _make, _about, _rates in (
    ("speech-commands", clips, "One of twelve classes in clips of a second", (0.1, 0.3)),
    ("keyword-stream", streams, "Ten keywords in streams of noise", (0.02, 0.08, 0.16)),
):
    add(_task, _make, f"{_about}; gates with a memory of the sound.")
    add(f"{_task}-input", partial(_make, "input"), f"{_about}; gates that see a single frame.")
    for _rate in _rates:
        add(
            f"{_task}-rate-{_rate:g}",
            partial(_make, rate=_rate),
            f"{_about}; target update rate {_rate:.0%}.",
        )
    for _kind, _name in NAMES.items():
        _options: dict[str, Any] = {"skipgru": {"budget": 0.1}}.get(_kind, {})
        add(
            f"{_task}-{_kind}",
            partial(other, _make, _kind, **_options),
            f"{_about}; {_name} with as many parameters.",
        )
    for _value in (0.05, 0.2, 0.4):
        add(
            f"{_task}-deltagru-{_value:g}",
            partial(other, _make, "deltagru", threshold=_value),
            f"{_about}; DeltaGRUs with threshold {_value:g}.",
        )
    for _value in (0.01, 0.03, 0.3):
        add(
            f"{_task}-skipgru-{_value:g}",
            partial(other, _make, "skipgru", budget=_value),
            f"{_about}; Skip-RNN with budget {_value:g}.",
        )
