"""An option without effect is an error; one without effect on this device is a message."""

import contextlib
from dataclasses import replace

import pytest
import torch

from helpers.training import BRIEF, CONFIG, SMALL, TASK, trainer
from surnn.config import ModelConfig, RhythmConfig, RunConfig
from surnn.train import evaluate


def test_a_frozen_gate_has_no_use_for_a_surrogate():
    with pytest.raises(ValueError, match="frozen gate does not learn"):
        RhythmConfig(frozen=True, slope=2.0)
    with pytest.raises(ValueError, match="frozen gate does not learn"):
        RhythmConfig(frozen=True, surrogate="triangle")
    assert RhythmConfig(frozen=True, mode="soft", slope=2.0).slope == 2  # it is the gate itself


def test_sequence_dropout_needs_dropout():
    with pytest.raises(ValueError, match=r"model\.dropout 0"):
        ModelConfig(sequence_dropout=True)


def test_predictions_at_each_step_are_not_pooled():
    with pytest.raises(ValueError, match="copying has one at each time step"):
        RunConfig(TASK, replace(SMALL, pool="mean"), RhythmConfig(), BRIEF)


def test_one_process_has_nothing_to_divide():
    with pytest.raises(ValueError, match="torchrun, or use --train"):
        trainer(shard=True)


def test_what_is_of_no_use_on_a_cpu_is_said():
    model = replace(SMALL, max_rate=0.9, recompute=True)
    run = trainer(config=replace(CONFIG, model=model), precision="bfloat16", steps=1)
    said: list[str] = []
    run.reporter.message = said.append  # type: ignore[method-assign]
    run.fit()
    assert said == [
        "no effect on the CPU: train.precision bfloat16, model.max_rate, model.recompute"
    ]
    run = trainer(steps=1)
    run.reporter.message = said.append  # type: ignore[method-assign]
    run.fit()
    assert len(said) == 1


# ---------------------------------------------------------------- TF32


@pytest.mark.parametrize(("tf32", "precision"), [(True, "high"), (False, "highest")])
def test_tf32_is_of_the_run_alone(tf32, precision):
    """Settings are of the process: they are as before when a run is over, or has failed."""

    def settings():
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    before = settings()
    with contextlib.suppress(KeyError), evaluate.float32_products(torch.device("cuda"), tf32):
        assert settings() == (precision, tf32)
        raise KeyError
    assert settings() == before
    with evaluate.float32_products(torch.device("cpu"), tf32):
        assert settings() == before


@pytest.mark.parametrize("tf32", [True, False])
def test_a_run_is_trained_in_the_precision_that_it_asks_for(tf32, monkeypatch):
    asked = []
    original = evaluate.float32_products
    monkeypatch.setattr(
        "surnn.train.trainer.float32_products", lambda *a: (asked.append(a[1]), original(*a))[1]
    )
    trainer(tf32=tf32, steps=1).fit()
    assert asked == [tf32]
