"""State tracking: products of rare group elements in long streams of noise.

The rivals differ from suGRU in their layer only, have as many parameters (within 5 %), and make the
steps that one H200 makes alone in the time that suGRU takes, ``SECONDS``. Warm-up, growth of the
number of elements, hold and decay are the same shares of the steps for all. All have suGRU's
learning rate, the Transformer half of it; rows named by a learning rate are a sweep, a quarter and
four times of that. All steps are CUDA graphs; products are in bfloat16, states in float32.

Test a run on other lengths and numbers of elements with the same weights:

    surnn eval RUN --split test --task.length 131072
    surnn eval RUN --split test --task.length 32768 --task.events 64
"""

from dataclasses import replace
from functools import partial
from typing import Any

from surnn.config import InputGateConfig, ModelConfig, ModelKind, RunConfig, TrainConfig
from surnn.tasks.state_tracking import StateTracking

from .base import add

SECONDS = 34
"""Time of training, without validation, that the steps below take."""
GATE = InputGateConfig(rate=0.3, target_rate=0.02)
"""Sampled gates, which training pulls to 2 % of the time steps."""
OURS = ModelConfig(layers=2, width=128)
"""Residual blocks with 8 heads of 16."""

RIVALS: dict[str, tuple[ModelKind, dict[str, Any], str]] = {
    "gru": ("gru", {"width": 104}, "cuDNN's GRU, 104 units"),
    "lstm": ("lstm", {"width": 96}, "cuDNN's LSTM, 96 units"),
    "mingru": ("mingru", {"width": 152}, "minGRU, 152 units"),
    "s4d": ("s4d", {"width": 152}, "S4D, 152 channels of 64 modes"),
    "delta": ("delta", {"width": 136, "heads": 4}, "Gated DeltaNet, negative eigenvalues"),
    "delta-2": (
        "delta", {"width": 112, "heads": 4, "products": 2}, "Gated DeltaNet, two reflections a step"
    ),
    "transformer": ("transformer", {"width": 96, "feedforward": 272}, "causal attention"),
}  # fmt: skip
"""Kind, options of the model, and a name."""

STEPS = {
    "": 1600, "gru": 415, "lstm": 755, "mingru": 1320, "s4d": 990, "delta": 177, "delta-2": 150,
    "transformer": 640,
}  # fmt: skip
"""Optimizer steps in ``SECONDS``; those of suGRU under "". Computed from the times of single steps
in results/state_tracking/speeds.json (``benchmarks/state_tracking.py``)."""
LEARNING_RATES = dict.fromkeys(RIVALS, 2e-3) | {"transformer": 1e-3}


def schedule(steps: int, **options: Any) -> TrainConfig:
    """Warm-up over 3 % of the steps, the full learning rate until 70 %, then a linear decay."""
    return TrainConfig(
        **{
            "steps": steps, "batch": 64, "learning_rate": 2e-3, "betas": (0.9, 0.95),
            "warmup": max(1, round(0.03 * steps)), "hold": 0.7, "lr_decay": "linear",
            "evaluate_every": max(1, steps // 12), "evaluation_batches": 2,
            "evaluation_batch": 128, "checkpoint_every": steps, "precision": "bfloat16",
            "cuda_graph": True, **options,
        }
    )  # fmt: skip


def growing(steps: int) -> int:
    """Batches with fewer elements: 2, 4, 8, ... over 40 % of the steps."""
    return round(0.4 * steps)


def ours(task: StateTracking, steps: int, **options: Any) -> RunConfig:
    """suGRU with input gates whose noise is annealed between 50 and 70 % of the steps."""
    task = replace(task, growing=growing(steps))
    train = schedule(steps, rate_penalty=0.3, anneal=(0.5, 0.7), **options)
    return RunConfig(task, OURS, GATE, train)


def rival(task: StateTracking, name: str, steps: int, factor: float = 1.0) -> RunConfig:
    """Another layer with as many parameters, for ``steps``; ``factor`` scales its learning rate."""
    kind, model, _ = RIVALS[name]
    config = ours(replace(task, growing=growing(steps)), steps).with_model(kind, **model)
    train = replace(config.train, learning_rate=factor * LEARNING_RATES[name])
    return replace(config, train=train)


S3 = StateTracking("S3", length=8192, events=16)
PARITY = StateTracking("Z2", length=1024, events=32)
PARITY_STEPS = 1200
"""Parity is short: all three models make as many steps."""

add("state-tracking-s3", partial(ours, S3, STEPS[""]), "S3, 16 elements in 8192 steps: suGRU.")
for _name, (_, _, _about) in RIVALS.items():
    add(
        f"state-tracking-s3-{_name}", partial(rival, S3, _name, STEPS[_name]),
        f"S3, 16 elements in 8192 steps: {_about}.",
    )  # fmt: skip
    for _factor in (0.25, 4.0):
        _rate = _factor * LEARNING_RATES[_name]
        add(
            f"state-tracking-s3-{_name}-lr-{_rate:g}",
            partial(rival, S3, _name, STEPS[_name], _factor),
            f"The same with a learning rate of {_rate:g}: {_about}.",
        )
add("state-tracking-parity", partial(ours, PARITY, PARITY_STEPS), "Parity of 32 bits: suGRU.")
for _name in ("gru", "s4d"):
    add(
        f"state-tracking-parity-{_name}", partial(rival, PARITY, _name, PARITY_STEPS),
        f"Parity of 32 bits: {RIVALS[_name][2]}.",
    )  # fmt: skip


def s3_65536() -> RunConfig:
    """S3, trained directly at 65536 steps."""
    task = replace(S3, length=65_536)
    return ours(task, 2000, batch=16, evaluation_batch=32, evaluation_batches=4)


A5_GATE = InputGateConfig(rate=0.99, target_rate=0.002)
"""Open at almost all time steps until the products are learned. In the end a little above the share
of elements: a higher target would open one of these few gates at a noise token again."""


def a5() -> RunConfig:
    """A5: its products are learned first, from elements without noise and with open gates.

    The table of products has 3600 entries. Heads of 128 learn it from one or two million products
    (results/state_tracking/a5.json), heads of 16 much more slowly. Then noise comes in, in longer
    and longer sequences, and gates learn to close at it.
    """
    task = StateTracking(
        "A5", length=8192, events=12, ladder=((8000, 1024, 13), (600, 512, 64), (600, 64, 1024))
    )
    train = schedule(
        10_000, warmup=100, hold=0.8, rate_penalty=0.3, rate_ramp=(0.8, 0.86), anneal=(0.88, 0.95)
    )
    model = ModelConfig(layers=1, width=256, heads=2, block="stack")
    return RunConfig(task, model, A5_GATE, train)


add("state-tracking-s3-65536", s3_65536, "S3, 16 elements in 65536 steps: suGRU.")
add("state-tracking-a5", a5, "A5, 12 elements in 8192 steps: suGRU, two heads of 128.")
