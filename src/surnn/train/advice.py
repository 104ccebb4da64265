"""Advice about a user's sequences, in words, with the measured rows behind each piece.

Rows are names in ``results/rows`` of the repository and in RESULTS.md.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from surnn.config import RunConfig
from surnn.tasks.base import Task
from surnn.tasks.sequence_facts import SequenceFacts

from .automatic import choose, start_rate, with_choices
from .devices import pick_device
from .trainer import Trainer

LONG, SHORT = 1000, 200
"""Time steps from which on sequences are long, and below which they are short."""
TRIALS = 3
"""Optimizer steps that are timed, after one that is not."""


class Advice(NamedTuple):
    """One piece of advice."""

    text: str
    rows: tuple[str, ...] = ()
    """Names of the rows that were measured."""


def advise(task: Task, *, measure: bool = True) -> Iterator[Advice]:
    """Advice about a task with prepared data.

    Args:
        task: such as ``Sequences(path=...).complete()``, after ``prepare``.
        measure: time a few optimizer steps on this machine.
    """
    facts: SequenceFacts = task.facts()
    yield from about_length(facts)
    yield about_redundancy(facts)
    yield about_gate(facts)
    yield about_rate(facts)
    if measure:
        yield about_speed(with_choices(RunConfig(task), choose(facts)))


def about_length(facts: SequenceFacts) -> Iterator[Advice]:
    """How long sequences are, and whether selective update is worth it."""
    size = f"{facts.sequences:,} training sequences of {facts.median_length:,} time steps (median)"
    size += f", at most {facts.longest:,}, with {facts.features} "
    size += "feature" if facts.features == 1 else "features"
    if facts.median_length >= LONG:
        yield Advice(
            f"{size}. They are long: memory over gaps is where selective update gains most.",
            ("copying-5000", "copying-5000-gru", "psmnist-stepwise", "psmnist-stepwise-gru"),
        )
    elif facts.median_length < SHORT:
        yield Advice(
            f"{size}. They are short: expect about the result of a GRU, and compare with one "
            "(--model.kind gru). The gain is fewer updates, which counts on small devices.",
            ("spoken-digits", "spoken-digits-gru"),
        )
    else:
        yield Advice(
            f"{size}. Compare with a GRU (--model.kind gru); sparse updates keep memory longer.",
            ("copying-100", "copying-100-gru"),
        )


def about_redundancy(facts: SequenceFacts) -> Advice:
    """How much neighbouring time steps resemble each other."""
    still = f"{facts.still:.0%} of all time steps change by less than a tenth of a deviation"
    if facts.memory == 1:
        return Advice(
            f"Neighbouring time steps are nearly independent; {still}. None is redundant."
        )
    return Advice(
        f"Neighbouring time steps resemble each other over {facts.memory} time steps; {still}. "
        f"About every {facts.memory}th carries something new.",
        ("spoken-digits-rate-0.03",),
    )


def about_gate(facts: SequenceFacts) -> Advice:
    """Which gate to begin with."""
    if facts.goal == "forecast":
        return Advice(
            "Begin with --gate.kind open: a forecast needs the newest values, and sparse updates "
            "cost accuracy. Units that are always on (--gate.always-on) are a compromise.",
            ("mackey-glass", "mackey-glass-always-on", "mackey-glass-gru"),
        )
    if facts.events:
        return Advice(
            "Begin with --gate.kind input: it opens at events. Try --gate.kind rhythm too, which "
            "was more accurate on heartbeats.",
            ("ecg", "ecg-clock", "spoken-digits", "spoken-digits-clock"),
        )
    return Advice(
        "Begin with --gate.kind rhythm. If what matters may come at any time and the rest is "
        "noise, try --gate.kind input.",
        ("psmnist-stepwise", "psmnist-stepwise-input", "selective-copy-1024-input"),
    )


def about_rate(facts: SequenceFacts) -> Advice:
    """The update rate to begin with."""
    if facts.goal == "forecast":
        return Advice("An open gate has no rate.")
    rate, reason = (0.3, "training lowers it between events") if facts.events else start_rate(facts)
    return Advice(
        f"Begin with --gate.rate {rate}: {reason}. Accuracy hardly depends on it within a factor "
        "of three; lower rates train and run faster.",
        ("psmnist-stepwise-rate-0.02", "psmnist-stepwise-rate-0.05", "psmnist-stepwise-rate-0.5"),
    )


def about_speed(config: RunConfig) -> Advice:
    """Measured optimizer steps per second, of the automatic choice and of a GRU."""
    device, seconds = pick_device(config.train.device), step_seconds(config)
    baseline = step_seconds(config.with_model("gru"))
    minutes = config.train.steps * seconds / 60
    return Advice(
        f"Here, on {device}, an optimizer step of {config.train.batch} sequences "
        f"takes {seconds:.2g} s with the automatic choice and {baseline:.2g} s with a GRU of the "
        f"same width: {config.train.steps:,} steps in about {minutes:.1f} minutes."
    )


def step_seconds(config: RunConfig) -> float:
    """The median time of an optimizer step on this machine."""
    trainer = Trainer(replace(config, train=replace(config.train, steps=TRIALS + 1, warmup=1)))
    train, times = config.train, []
    for number in range(TRIALS + 1):
        batch = trainer.task.batch("train", number, train.batch, train.seed, trainer.device)
        begin = time.perf_counter()
        trainer.optimizer_step(number, batch)
        trainer.optimizer_step.read()  # waits for a GPU
        times.append(time.perf_counter() - begin)
    trainer.close()
    return sorted(times[1:])[TRIALS // 2]
