"""When training ends: patience, schedules, time budgets, and the last evaluation."""

import math
import time
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from helpers.training import BRIEF, CONFIG, resumed, train_steps, trainer
from surnn.config import RhythmConfig, TrainConfig
from surnn.errors import ConfigError
from surnn.runs.time_budget import time_used
from surnn.tasks.base import Score
from surnn.tasks.copying import Copying
from surnn.train.lr_schedule import gate_noise, learning_rate_share, target_progress
from surnn.train.trainer import Trainer


class Clock:
    """Replaces the time by one that only tests advance."""

    def __init__(self, monkeypatch) -> None:
        self.seconds = 0.0
        self.patch = monkeypatch
        monkeypatch.setattr(time, "perf_counter", lambda: self.seconds)

    def each_step(self, run: Trainer, seconds: float) -> None:
        """Let every optimizer step of a run take this time."""
        call = run.optimizer_step._on_device

        def timed(batch) -> None:
            call(batch)
            self.seconds += seconds

        self.patch.setattr(run.optimizer_step, "_run", timed)


def test_patience():
    run = trainer(steps=1000, evaluate_every=1, patience=2, learning_rate=1e-9)
    run.fit()
    assert run.step < 20


def test_patience_begins_when_nothing_is_easier_any_more(monkeypatch):
    monkeypatch.setattr(Copying, "easy_batches", 30)
    run = trainer(steps=1000, evaluate_every=1, patience=2, learning_rate=1e-9)
    run.fit()
    assert 32 <= run.step < 50


def test_schedules():
    train = TrainConfig(steps=100, warmup=10, hold=0.5, final=0.1, anneal=(0.5, 0.75))
    shares = [learning_rate_share(train, step) for step in range(101)]
    assert shares[0] == 0.1
    assert shares[9] == shares[50] == 1
    assert shares[100] == pytest.approx(0.1)
    assert all(a >= b for a, b in pairwise(shares[50:]))
    assert [gate_noise(train, s) for s in (0, 50, 75, 100)] == [1, 1, 0, 0]
    assert 0 < gate_noise(train, 60) < 1
    linear = replace(train, lr_decay="linear")
    assert learning_rate_share(linear, 75) == pytest.approx(0.55)
    assert learning_rate_share(linear, 60) < learning_rate_share(train, 60)
    assert learning_rate_share(linear, 100) == pytest.approx(0.1)


def test_target_rates_move_between_their_shares_of_the_steps():
    train = TrainConfig(steps=100, rate_ramp=(0.2, 0.6))
    assert [target_progress(train, s) for s in (0, 20, 60, 100)] == [0, 0, 1, 1]
    assert abs(target_progress(train, 40) - 0.5) < 1e-9
    assert target_progress(TrainConfig(steps=100), 0) == 1


def test_betas_are_those_of_the_optimizer():
    groups = trainer(betas=(0.8, 0.95)).optimizer_step.optimizer.param_groups
    assert {group["betas"] for group in groups} == {(0.8, 0.95)}
    with pytest.raises(ConfigError, match=r"train.betas must be at least 0 and less than 1"):
        TrainConfig(betas=(0.9, 1.0))


def test_of_equally_good_weights_the_later_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(Copying, "score", lambda *_: Score(torch.ones(()), torch.ones(())))
    run = trainer(tmp_path / "run", steps=12, evaluate_every=4, patience=2)
    run.fit()
    assert run.folder is not None
    assert run.step == 12
    assert run.folder.load("best")[1]["step"] == 12
    assert run.evaluations_since_best == 2  # equal is no improvement


def test_time_used():
    train = TrainConfig(minutes=2)
    assert time_used(TrainConfig(), 1e9, 0, None) == 0
    assert time_used(train, 57, 0, None) == pytest.approx(0.5)  # 5 % are kept for an evaluation
    assert time_used(train, 100, 0, 20.0) == 1
    assert time_used(train, 40, 40, 20.0) == 0  # compiling is no progress
    assert time_used(train, 70, 40, 20.0) == 0.5
    assert time_used(train, 1, 100, 20.0) == math.inf


def test_a_run_with_a_time_budget_comes_to_its_end_in_time(tmp_path, monkeypatch):
    """Far fewer steps than planned, and the whole schedule nevertheless."""
    clock = Clock(monkeypatch)
    noises: list[float] = []
    run = trainer(
        tmp_path / "run", replace(CONFIG, gate=RhythmConfig(rate=0.3, mode="sampled")),
        steps=100_000, minutes=2 / 60, warmup=10_000, hold=0.5, final=0.1, anneal=(0.5, 0.75),
        evaluate_every=100_000,
    )  # fmt: skip
    step = run.optimizer_step
    call = step._on_device

    def timed(batch) -> None:
        noises.append(step.noise.item())
        call(batch)
        clock.seconds += 0.05

    monkeypatch.setattr(step, "_run", timed)
    assert run.fit()["sequences"] == 16
    assert 1.8 < clock.seconds <= 2.0
    assert run.step == round(clock.seconds / 0.05)
    rates = [m["learning_rate"] / 2e-3 for m in run.folder.metrics() if m["kind"] == "train"]
    assert rates[0] < 0.1
    assert max(rates) == 1
    assert rates[-1] < 0.2
    assert noises[0] == 1
    assert noises[-1] == 0


def test_a_killed_run_counts_the_time_that_it_used(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    config = replace(CONFIG, train=replace(BRIEF, steps=100_000, minutes=0.05))
    run = trainer(tmp_path / "run", config)
    train_steps(run, 3)
    run.seconds = 2.4
    run.save()
    run.folder.unlock()
    again = resumed(tmp_path / "run", config)
    clock.each_step(again, 0.05)
    clock.seconds = 0.0
    again.fit()
    assert again.step > 3
    assert 0.3 < clock.seconds <= 0.6  # of three seconds 2.4 were used
    more = resumed(tmp_path / "run", config, minutes=0.06)
    assert more.seconds >= 2.4


def cut_short(run: Trainer, monkeypatch) -> dict:
    """The evaluation that a run is due, ended after its first batch."""
    shown: list[dict] = []
    with monkeypatch.context() as patch:
        patch.setattr(run, "_may_continue_evaluation", lambda: False)
        patch.setattr(run.reporter, "report", lambda step, values: shown.append(values))
        run._evaluate()
    return shown[-1]


def test_an_evaluation_that_is_cut_says_so_and_does_not_count_as_the_best(tmp_path, monkeypatch):
    run = trainer(tmp_path / "run", evaluation_batches=None)
    train_steps(run, 1)
    assert cut_short(run, monkeypatch)["sequences"] == "8/1000"
    assert run.folder.metrics()[-1]["of"] == 1000
    assert run.folder.load("best")[1]["step"] == 1  # better than none
    assert run.best is None
    run.step, run.best = 2, -1.0
    cut_short(run, monkeypatch)
    assert run.folder.load("best")[1]["step"] == 1
    assert (run.best, run.evaluations_since_best) == (-1.0, 0)
    run.config = replace(run.config, train=replace(run.config.train, evaluation_batches=1))
    assert "of" not in run._evaluate()
    assert run.folder.load("best")[1]["step"] == 2


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_last_steps_are_logged_at_the_end(tmp_path, monkeypatch, interrupted):
    """At the end of its time; a run that a signal stops logs them when it resumes."""
    run = trainer(tmp_path / "run", steps=10**6, minutes=1.0, log_every=10**6, evaluate_every=10**6)
    train_step, signal = run._train_step, "SIGTERM" if interrupted else None

    def last() -> None:
        train_step()
        if run.step == 3:
            run._signals.name = signal
            run._start_time -= 0 if interrupted else 60

    monkeypatch.setattr(run, "_train_step", last)
    run.fit()
    assert run.interrupted == interrupted
    lines = [(line["kind"], line["step"]) for line in run.folder.metrics()]
    assert lines == ([] if interrupted else [("train", 3), ("valid", 3)])


@pytest.mark.parametrize(
    ("batches", "size", "said"), [(2, None, "16/1000"), (2, 100, "200/1000"), (None, None, None)]
)
def test_an_evaluation_on_a_part_of_the_set_says_so(batches, size, said, monkeypatch):
    run, shown = trainer(evaluation_batches=batches, evaluation_batch=size), []
    train_steps(run, 1)
    monkeypatch.setattr(run.reporter, "report", lambda step, values: shown.append(values))
    run._evaluate()
    assert shown[-1].get("sequences") == said


@pytest.mark.parametrize(("share", "goes_on"), [(0.9, True), (1.02, True), (1.2, False)])
def test_the_last_evaluation_may_take_a_little_longer(share, goes_on):
    run = trainer(minutes=1.0)
    run._start_time = time.perf_counter() - share * 60
    assert run._may_continue_evaluation() == goes_on


def test_the_last_evaluation_is_cut_at_the_end_of_the_time(monkeypatch):
    clock = Clock(monkeypatch)
    run = trainer(steps=100_000, minutes=0.5 / 60, evaluate_every=100_000, evaluation_batches=None)
    clock.each_step(run, 0.1)
    original = Copying.score

    def slow(*arguments):
        clock.seconds += 0.05
        return original(*arguments)

    monkeypatch.setattr(Copying, "score", slow)
    metrics = run.fit()
    assert 8 <= metrics["sequences"] < 1000
    assert metrics["of"] == 1000
