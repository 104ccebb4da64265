"""Options that are chosen from the data, where the user gives none.

The rules are those of ``benchmarks/automatic_choice.py``, which compares them with configurations
set by hand.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from surnn.config import GATE_CONFIGS, OURS, RunConfig
from surnn.tasks.sequence_facts import SequenceFacts

UPDATES = 64
"""Updates of a unit that a sequence should have at least: short sequences need a higher rate."""
RATES = 0.05, 0.5
"""Lowest and highest update rate to begin with."""
EPOCHS, STEPS = 30, (300, 2000)
"""Passes over the training part, within these numbers of optimizer steps."""


class Choice(NamedTuple):
    """A chosen option."""

    option: str
    """Its full name, such as ``gate.rate``."""
    value: Any
    reason: str


def choose(facts: SequenceFacts, steps: int | None = None) -> list[Choice]:
    """Options of the model, gates and training for data with these facts.

    Args:
        facts: about the training part.
        steps: number of optimizer steps, if the user has chosen it.
    """
    return [*_gate(facts), *_model(facts), *_training(facts, steps)]


def _gate(facts: SequenceFacts) -> Iterator[Choice]:
    if facts.goal == "forecast":
        yield Choice("gate.kind", "open", "a forecast needs the newest values")
        return
    if facts.events:
        yield Choice("gate.kind", "input", "rare events in streams: the gate looks at the input")
        yield Choice("gate.rate", 0.3, "training lowers it between events")
        return
    yield Choice("gate.kind", "rhythm", "learned rhythms of time, for sequences that start alike")
    rate, reason = start_rate(facts)
    yield Choice("gate.rate", rate, reason)
    yield Choice("gate.horizon", facts.longest, "time steps of the longest sequence")


def start_rate(facts: SequenceFacts) -> tuple[float, str]:
    """The update rate to begin with, and why."""
    by_memory, by_length = 1 / facts.memory, UPDATES / max(1, facts.median_length)
    rate = round(min(max(by_memory, by_length, RATES[0]), RATES[1]), 2)
    if by_length >= by_memory and by_length > RATES[0]:
        return rate, f"short sequences: at least {UPDATES} updates in {facts.median_length} steps"
    steps = "time step" if facts.memory == 1 else "time steps"
    return rate, f"neighbours resemble each other over {facts.memory} {steps}"


def _model(facts: SequenceFacts) -> Iterator[Choice]:
    values = facts.sequences * facts.median_length * facts.features
    width = 64 if values < 1e6 else 128 if values < 3e7 else 256
    yield Choice("model.width", width, f"for {values:,} numbers in the training part")
    yield Choice("model.heads", width // 16, "heads of 16 units")
    if facts.goal in ("classify", "regress"):
        yield Choice("model.pool", "mean", "one prediction for each sequence, from its mean output")


def _training(facts: SequenceFacts, given: int | None) -> Iterator[Choice]:
    batch = 64
    while batch > 8 and facts.sequences < 8 * batch:
        batch //= 2
    batch = min(batch, facts.sequences)
    low, high = STEPS
    steps = given or min(max(low, EPOCHS * facts.sequences // batch), high)
    yield Choice("train.batch", batch, f"of {facts.sequences:,} training sequences")
    if given is None:
        yield Choice("train.steps", steps, f"{steps * batch / facts.sequences:.0f} epochs")
    yield Choice("train.warmup", min(100, steps // 10), "a tenth of the steps, at most 100")
    yield Choice("train.evaluate_every", max(1, steps // 10), "ten times")


def with_choices(config: RunConfig, choices: list[Choice]) -> RunConfig:
    """``config`` with these options."""
    parts: dict[str, dict[str, Any]] = {"model": {}, "gate": {}, "train": {}}
    for option, value, _ in choices:
        part, _, name = option.partition(".")
        parts[part][name] = value
    gate = GATE_CONFIGS[parts["gate"].pop("kind", config.gate.kind)](**parts["gate"])
    model, train = replace(config.model, **parts["model"]), replace(config.train, **parts["train"])
    return replace(config, model=model, gate=gate, train=train)


def data_line(task: Any) -> str:
    """What a task with data of the user's own reads and predicts."""
    inputs = ", ".join(task.channels[:8]) + (", ..." if len(task.channels) > 8 else "")
    if task.goal == "forecast":
        return (
            f"inputs: {inputs}; no target, so the goal is a forecast "
            "(--task.target names a target, --task.id the column that separates sequences)"
        )
    target = ", ".join(task.target) or "the labels"
    if task.classes:
        classes = ", ".join(task.classes[:8]) + (", ..." if len(task.classes) > 8 else "")
        target += f" ({len(task.classes)} classes: {classes})"
    return f"inputs: {inputs}; target: {target}"


def choice_lines(choices: list[Choice], config: RunConfig) -> Iterator[str]:
    """Text about the choices that ``config`` has; flags may have changed others."""
    shown = []
    for option, value, reason in choices:
        part, _, name = option.partition(".")
        if part == "gate" and config.model.kind not in OURS:
            continue
        if getattr(getattr(config, part), name, None) == value:
            flag = f"--{option.replace('_', '-')} {value}"
            shown.append(f"  {flag:28} {reason}")
    if shown:
        yield "chosen from the data; flags override:"
        yield from shown
