"""What tests of the trainer share: a tiny run, and how two runs are compared."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from surnn.config import GateConfig, ModelConfig, RunConfig, TrainConfig
from surnn.runs import RunFolder, config_to_dict
from surnn.tasks.copying import Copying
from surnn.train import Trainer

TASK = Copying(delay=10)
RAGGED = Copying(delay=10, variable=True)
"""Sequences of unequal length: parts of a batch have unequal weights."""
SMALL = ModelConfig(width=16, heads=4, layers=1, dropout=0.1)
BRIEF = TrainConfig(
    steps=12, batch=8, warmup=2, log_every=1, evaluate_every=4, checkpoint_every=3,
    evaluation_batches=2, device="cpu",
)  # fmt: skip
CONFIG = RunConfig(TASK, SMALL, GateConfig(rate=0.3), BRIEF)


def trainer(path: Path | None = None, config: RunConfig = CONFIG, **train) -> Trainer:
    config = replace(config, train=replace(config.train, **train))
    folder = None if path is None else RunFolder.create(path, config_to_dict(config))
    return Trainer(config, folder)


def finished_run(path: Path) -> Path:
    """Of four updates."""
    run = trainer(path, steps=4, checkpoint_every=4)
    run.fit()
    run.close()
    return path


def resumed(path: Path, config: RunConfig = CONFIG, **train) -> Trainer:
    config = replace(config, train=replace(config.train, **train))
    run = Trainer(config, RunFolder.open(path))
    run.resume()
    return run


class Gone(Exception):
    """The process, without a word."""


def fit_until(run: Trainer, step: int) -> None:
    """Train until the process is gone, right before an update."""
    update = run._update

    def until_gone():
        if run.step == step:
            raise Gone
        update()

    run._update = until_gone
    with pytest.raises(Gone):
        run.fit()


def updates(run: Trainer, count: int) -> None:
    """The loop's core alone."""
    run.model.train()
    for _ in range(count):
        run._update()


def weights(run: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in run.model.state_dict().items()}


def same(a: Trainer, b: Trainer) -> bool:
    pairs = zip(weights(a).values(), weights(b).values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def record(path: Path) -> list[dict]:
    """What was logged, but for the time and memory it took."""
    lines = RunFolder.open(path).metrics()
    measured = ("seconds", "took", "peak_memory")
    return [{k: v for k, v in line.items() if k not in measured} for line in lines]
