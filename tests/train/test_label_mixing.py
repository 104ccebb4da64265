"""Labels are smoothed as torch does it, and sequences mixed with their labels."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from helpers.training import BRIEF, CONFIG, SMALL, train_steps, trainer
from surnn.config import RhythmConfig, RunConfig
from surnn.tasks import load_task
from surnn.tasks.base import Batch
from surnn.train.label_mixing import LabelMixer

CPU = torch.device("cpu")
MNIST = load_task("smnist")()


@pytest.fixture(autouse=True)
def _digits(data, monkeypatch):
    monkeypatch.setenv("SURNN_DATA", str(data))


def batch(count: int = 64) -> Batch:
    return Batch(torch.randn(count, 5, 1), torch.randint(0, 10, (count,)))


def mix(given: Batch, **train) -> Batch:
    return LabelMixer(MNIST, replace(BRIEF, **train), CPU)(given)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_label_smoothing_is_that_of_torch(accumulate):
    config = RunConfig(MNIST, replace(SMALL, dropout=0.0), RhythmConfig(rate=0.3), BRIEF)
    run = trainer(config=config, label_smoothing=0.2, accumulate=accumulate)
    given = MNIST.batch("train", 0, BRIEF.batch, 0, CPU)
    prediction = run.model(given.x)
    expected = functional.cross_entropy(prediction, given.target, label_smoothing=0.2)
    torch.testing.assert_close(run.optimizer_step._backward(given), expected.detach())


def test_sequences_are_mixed_with_their_labels():
    given = batch()
    found = mix(given, mixup=1.0)
    labels = functional.one_hot(given.target, 10).float()
    torch.testing.assert_close(found.target.sum(1), torch.ones(64))
    others = given.x.flip(0)
    shares = ((found.x - others) / (given.x - others)).mean((1, 2))  # one for each pair
    mixed = shares[:, None] * labels + (1 - shares[:, None]) * labels.flip(0)
    torch.testing.assert_close(found.target, mixed, rtol=1e-3, atol=1e-3)
    assert shares.min() < 0.2
    assert shares.max() > 0.8


def test_how_evenly_they_are_mixed():
    given = batch()
    even = mix(given, mixup=1e6).x
    torch.testing.assert_close(even, (given.x + given.x.flip(0)) / 2, rtol=0, atol=0.02)
    hardly = mix(given, mixup=0.01)
    whole = (hardly.target.max(1).values > 0.99).float().mean()
    assert whole > 0.8


def test_both_together():
    found = mix(batch(), mixup=1.0, label_smoothing=0.5)
    torch.testing.assert_close(found.target.sum(1), torch.ones(64))
    assert found.target.min() == pytest.approx(0.05)


def test_evaluations_are_of_whole_sequences_and_labels():
    config = RunConfig(MNIST, SMALL, RhythmConfig(rate=0.3), BRIEF)
    soft = trainer(config=config, mixup=0.5, label_smoothing=0.3)
    plain = trainer(config=config)
    train_steps(soft, 4)
    plain.model.load_state_dict(soft.model.state_dict())
    assert soft._evaluate() == plain._evaluate()


def test_mixed_parts_weigh_alike():
    config = RunConfig(MNIST, replace(SMALL, dropout=0.0), RhythmConfig(rate=0.3), BRIEF)
    MNIST.prepare(CPU)
    given = MNIST.batch("train", 0, BRIEF.batch, 0, CPU)
    same = given._replace(x=given.x[:1].expand_as(given.x), target=given.target[:1].expand(8))
    losses = [
        trainer(config=config, mixup=0.5, accumulate=parts).optimizer_step._backward(same).item()
        for parts in (1, 4)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)  # mixed with itself: as it was


def test_tasks_that_cannot_be_mixed_are_refused():
    with pytest.raises(ValueError, match=r"a label for each sequence, and copying"):
        trainer(label_smoothing=0.1)
    with pytest.raises(ValueError, match=r"those of listops are tokens"):
        LabelMixer(load_task("listops")(), replace(BRIEF, mixup=1.0), CPU)
    with pytest.raises(ValueError, match=r"of equal length"):
        mix(batch(4)._replace(lengths=torch.tensor([5, 5, 4, 3])), mixup=1.0)
    with pytest.raises(ValueError, match=r"mixes pairs .* batch of 8 .* use at least 16"):
        trainer(config=replace(CONFIG, task=MNIST), mixup=1.0, accumulate=8)
    with pytest.raises(ValueError, match=r"train\.mixup must be at least 0"):
        replace(BRIEF, mixup=-1.0)
