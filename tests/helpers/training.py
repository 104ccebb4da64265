"""A tiny run for tests of the trainer, and how to compare two runs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from surnn.config import ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunFolder
from surnn.tasks.copying import Copying
from surnn.train.trainer import Trainer

TASK = Copying(delay=10)
RAGGED = Copying(delay=10, variable=True)
"""Sequences of unequal length: parts of a batch have unequal weights."""
SMALL = ModelConfig(width=16, heads=4, layers=1, dropout=0.1)
BRIEF = TrainConfig(
    steps=12, batch=8, warmup=2, log_every=1, evaluate_every=4, checkpoint_every=3,
    evaluation_batches=2, device="cpu",
)  # fmt: skip
CONFIG = RunConfig(TASK, SMALL, RhythmConfig(rate=0.3), BRIEF)


def trainer(path: Path | None = None, config: RunConfig = CONFIG, **train) -> Trainer:
    config = replace(config, train=replace(config.train, **train))
    folder = None if path is None else RunFolder.create(path, config_to_dict(config))
    return Trainer(config, folder)


def finished_run(path: Path, checkpoint_every: int = 4) -> Path:
    """A finished run of four steps."""
    run = trainer(path, steps=4, checkpoint_every=checkpoint_every)
    run.fit()
    run.close()
    return path


def resumed(path: Path, config: RunConfig = CONFIG, **train) -> Trainer:
    config = replace(config, train=replace(config.train, **train))
    run = Trainer(config, RunFolder.open(path))
    run.resume()
    return run


class Gone(Exception):
    """Stands for a killed process."""


def fit_until(run: Trainer, step: int) -> None:
    """Train until the process is gone, right before a step."""
    train_step = run._train_step

    def until_gone():
        if run.step == step:
            raise Gone
        train_step()

    run._train_step = until_gone
    with pytest.raises(Gone):
        run.fit()


def train_steps(run: Trainer, count: int) -> None:
    """Optimizer steps only, without logs and evaluations."""
    run.model.train()
    for _ in range(count):
        run._train_step()


def weights(run: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in run.model.state_dict().items()}


def same(a: Trainer, b: Trainer) -> bool:
    pairs = zip(weights(a).values(), weights(b).values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def record(path: Path) -> list[dict]:
    """The log, without times and memory."""
    lines = RunFolder.open(path).metrics()
    measured = ("seconds", "took", "peak_memory")
    return [{k: v for k, v in line.items() if k not in measured} for line in lines]
