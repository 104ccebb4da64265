"""Rivals: as many parameters as ours, the same training, captured steps."""

from dataclasses import replace

import pytest
import torch

from surnn.models.model import SequenceModel
from surnn_recipes import RECIPES
from surnn_recipes.ecg_and_speech import SPEAKERS


def parameters(name: str) -> int:
    config = RECIPES[name]()
    task = config.task
    with torch.device("meta"):
        model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps)
    return sum(p.numel() for p in model.parameters())


FAIR = {
    "speech-commands": ("gru", "lstm", "mingru", "s4d", "deltagru", "skipgru"),
    "keyword-stream": ("gru", "lstm", "mingru", "s4d", "deltagru", "skipgru"),
    "state-tracking-s3": ("gru", "lstm", "mingru", "s4d", "delta", "delta-2", "transformer"),
    "article-pairs": ("gru", "s4d", "transformer"),
    "race-psmnist": ("gru", "lstm", "mingru", "s4d", "transformer"),
    "race-scifar": ("gru", "lstm", "mingru", "s4d", "transformer"),
    "race-text": ("gru", "lstm", "mingru", "s4d", "transformer"),
    "race-listops": ("gru", "lstm", "mingru", "s4d", "transformer"),
}
"""Families in which models are compared at equal size, and who competes with ours."""
SHARED_GATES = {"rate_penalty": 0.0, "rate_ramp": None, "anneal": None}
PACE = ("steps", "warmup", "evaluate_every", "checkpoint_every", "minutes", "learning_rate")


@pytest.mark.parametrize("family", FAIR)
def test_rivals_have_as_many_parameters_the_same_training_and_captured_steps(family):
    ours, size = RECIPES[family](), parameters(family)
    for kind in FAIR[family]:
        config = RECIPES[f"{family}-{kind}"]()
        assert config.model.kind != "sugru"
        assert parameters(f"{family}-{kind}") == pytest.approx(size, rel=0.05)
        assert config.train.cuda_graph
        assert config.task.as_tested() == ours.task.as_tested()
        same = {name: getattr(ours.train, name) for name in PACE} | SHARED_GATES
        assert replace(config.train, **same) == replace(ours.train, **SHARED_GATES)
        share = config.train.warmup / config.train.steps - ours.train.warmup / ours.train.steps
        assert abs(share) < 0.005


def test_the_sweep_changes_learning_rates_only():
    sweep = [name for name in RECIPES if name.startswith("state-tracking-s3-") and "-lr-" in name]
    kinds = FAIR["state-tracking-s3"]
    assert len(sweep) == 2 * len(kinds)
    for name in sweep:
        base, _, rate = name.partition("-lr-")
        swept, plain = RECIPES[name](), RECIPES[base]()
        assert swept.train.learning_rate == float(rate)
        factor = float(rate) / plain.train.learning_rate
        assert factor == pytest.approx(4) or factor == pytest.approx(1 / 4)
        assert replace(swept.train, learning_rate=plain.train.learning_rate) == plain.train
        assert replace(swept, train=plain.train) == plain


def test_rows_named_by_a_speaker_leave_that_speaker_out_and_change_nothing_else():
    rows = [name for name in RECIPES if "-new-" in name]
    speakers = [name.rpartition("-new-")[2] for name in rows]
    assert len(rows) == 12
    assert speakers[::2] == speakers[1::2] == [*SPEAKERS]
    for name, speaker in zip(rows, speakers, strict=True):
        config, plain = RECIPES[name](), RECIPES[name.partition("-new-")[0]]()
        assert config.task.new_speaker == speaker
        assert replace(config, task=replace(config.task, new_speaker="")) == plain
