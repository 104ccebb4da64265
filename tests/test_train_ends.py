"""When training ends: patience, schedules, time budgets, and what is told then."""

import math
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from surnn.config import GateConfig, TrainConfig
from surnn.schedule import gate_noise, learning_rate, time_used
from surnn.tasks.copying import Copying
from surnn.train import Trainer
from training import BRIEF, CONFIG, resumed, trainer, updates


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
    shares = [learning_rate(train, step) for step in range(101)]
    assert shares[0] == 0.1
    assert shares[9] == shares[50] == 1
    assert shares[100] == pytest.approx(0.1)
    assert all(a >= b for a, b in pairwise(shares[50:]))
    assert [gate_noise(train, s) for s in (0, 50, 75, 100)] == [1, 1, 0, 0]
    assert 0 < gate_noise(train, 60) < 1


def test_time_used():
    train = TrainConfig(minutes=2)
    assert time_used(TrainConfig(), 1e9, 0, None) == 0
    assert time_used(train, 57, 0, None) == pytest.approx(0.5)  # 5 % are kept for an evaluation
    assert time_used(train, 100, 0, 20.0) == 1
    assert time_used(train, 40, 40, 20.0) == 0  # compiling is no progress
    assert time_used(train, 70, 40, 20.0) == 0.5
    assert time_used(train, 1, 100, 20.0) == math.inf


def test_a_run_with_a_time_budget_comes_to_its_end_in_time(tmp_path, monkeypatch):
    """Far fewer updates than planned, and the whole schedule nevertheless."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)  # others' load takes none of it
    seen: list[float] = []
    run = trainer(
        tmp_path / "run", replace(CONFIG, gate=GateConfig(rate=0.3, mode="sampled")),
        steps=100_000, minutes=2 / 60, warmup=10_000, hold=0.5, final=0.1, anneal=(0.5, 0.75),
        evaluate_every=100_000,
    )  # fmt: skip
    call = run.updater._on_device
    monkeypatch.setattr(
        run.updater, "_run", lambda batch: (seen.append(run.updater.noise.item()), call(batch))
    )
    begin = time.perf_counter()
    assert run.fit()["sequences"] == 16
    assert time.perf_counter() - begin < 2.0 + 0.5  # seconds; half of one for what has begun
    assert 3 < run.step < 5000
    rates = [m["learning_rate"] / 2e-3 for m in run.folder.metrics() if m["kind"] == "train"]
    assert rates[0] < 0.1
    assert max(rates) == 1
    assert rates[-1] < 0.2
    assert seen[0] == 1
    assert seen[-1] == 0


def test_a_killed_run_counts_the_time_that_it_had(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    config = replace(CONFIG, train=replace(BRIEF, steps=100_000, minutes=0.05))
    run = trainer(tmp_path / "run", config)
    updates(run, 3)
    run.seconds = 2.4
    run.save()
    again = resumed(tmp_path / "run", config)
    begin = time.perf_counter()
    again.fit()
    assert again.step > 3
    assert time.perf_counter() - begin < 1.5  # seconds of three
    more = resumed(tmp_path / "run", config, minutes=0.06)
    assert more.seconds >= 2.4


def cut_short(run: Trainer, monkeypatch) -> dict:
    """The evaluation that a run is due, ended after its first batch."""
    shown: list[dict] = []
    with monkeypatch.context() as patch:
        patch.setattr(run, "_may_evaluate_on", lambda: False)
        patch.setattr(run.reporter, "update", lambda step, values: shown.append(values))
        run._evaluate()
    return shown[-1]


def test_an_evaluation_that_is_cut_says_so_and_does_not_count_as_the_best(tmp_path, monkeypatch):
    run = trainer(tmp_path / "run", evaluation_batches=None)
    updates(run, 1)
    assert cut_short(run, monkeypatch)["sequences"] == "8/1000"
    assert run.folder.metrics()[-1]["of"] == 1000
    assert run.folder.load("best")[1]["step"] == 1  # better than none
    assert run.best is None
    run.step, run.best = 2, -1.0
    cut_short(run, monkeypatch)
    assert run.folder.load("best")[1]["step"] == 1
    assert (run.best, run.since_best) == (-1.0, 0)
    run.config = replace(run.config, train=replace(run.config.train, evaluation_batches=1))
    assert "of" not in run._evaluate()
    assert run.folder.load("best")[1]["step"] == 2


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_last_updates_are_told_if_a_run_is_over(tmp_path, monkeypatch, interrupted):
    """At the end of its time; one that a signal ends goes on later, and tells then as ever."""
    run = trainer(tmp_path / "run", steps=10**6, minutes=1.0, log_every=10**6, evaluate_every=10**6)
    update, why = run._update, "SIGTERM" if interrupted else None

    def last() -> None:
        update()
        if run.step == 3:
            run._signals.came, run._begin = why, run._begin - (0 if interrupted else 60)

    monkeypatch.setattr(run, "_update", last)
    run.fit()
    assert run.interrupted == interrupted
    lines = [(line["kind"], line["step"]) for line in run.folder.metrics()]
    assert lines == ([] if interrupted else [("train", 3), ("valid", 3)])


@pytest.mark.parametrize(
    ("batches", "size", "said"), [(2, None, "16/1000"), (2, 100, "200/1000"), (None, None, None)]
)
def test_an_evaluation_on_a_part_of_the_set_says_so(batches, size, said, monkeypatch):
    run, shown = trainer(evaluation_batches=batches, evaluation_batch=size), []
    updates(run, 1)
    monkeypatch.setattr(run.reporter, "update", lambda step, values: shown.append(values))
    run._evaluate()
    assert shown[-1].get("sequences") == said


@pytest.mark.parametrize(("share", "goes_on"), [(0.9, True), (1.02, True), (1.2, False)])
def test_the_last_evaluation_may_take_a_little_longer(share, goes_on):
    run = trainer(minutes=1.0)
    run._begin = time.perf_counter() - share * 60
    assert run._may_evaluate_on() == goes_on


def test_the_last_evaluation_is_cut_at_the_end_of_the_time(monkeypatch):
    run = trainer(steps=100_000, minutes=0.5 / 60, evaluate_every=100_000, evaluation_batches=None)
    original = Copying.score

    def slow(*arguments):
        time.sleep(0.05)
        return original(*arguments)

    monkeypatch.setattr(Copying, "score", slow)
    found = run.fit()
    assert 8 <= found["sequences"] < 1000
    assert found["of"] == 1000
