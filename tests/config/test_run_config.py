"""Combinations of options: those without effect are refused, and kinds of models change cleanly."""

from typing import Any

import pytest

from surnn.config import (
    GateConfig,
    InputGateConfig,
    ModelConfig,
    RhythmConfig,
    RunConfig,
    TrainConfig,
    gate_config,
)
from surnn.errors import ConfigError
from surnn.tasks.copying import Copying
from surnn.tasks.mackey_glass import MackeyGlass
from surnn.tasks.text_file import TextFile

GATE, TRAIN = RhythmConfig(), TrainConfig()


def gate_of(options: dict[str, Any]) -> GateConfig:
    return gate_config(**{"kind": "rhythm", **options})


def run_of(gate=GATE, train=TRAIN, **model) -> RunConfig:
    return RunConfig(Copying(), ModelConfig(**model), gate, train)


@pytest.mark.parametrize(
    ("gate", "train", "kind", "message"),
    [
        ({"target_rate": 0.1}, {}, "sugru", "train.rate_penalty: set both"),
        ({}, {"rate_penalty": 0.1}, "sugru", "gate.target_rate: set both"),
        ({}, {"rate_ramp": (0.1, 0.5)}, "sugru", "target of train.rate_penalty: set both"),
        ({}, {"rate_penalty": 0.1}, "gru", "gru has no gates and no use for train.rate_penalty"),
        ({"rate": 0.1}, {}, "gru", "no use for gate.rate"),
        ({"kind": "input"}, {}, "s4d", "no use for gate.kind"),
        ({}, {"anneal": (0.5, 0.7)}, "sugru", "set gate.mode to one of these"),
        ({"kind": "open"}, {"gate_learning_rate": 1e-3}, "sugru", "the gate is not learned"),
        ({"frozen": True, "target_rate": 0.1}, {"rate_penalty": 1.0}, "sugru", "a learned gate"),
        ({}, {"anneal": (0.7, 0.5)}, "sugru", "two shares"),
        ({}, {"learning_rate": 0.0}, "sugru", "must be more than 0"),
    ],
)
def test_options_that_would_do_nothing_are_refused(gate, train, kind, message):
    with pytest.raises(ConfigError, match=message):
        run_of(gate_of(gate), TrainConfig(**train), kind=kind)


@pytest.mark.parametrize(
    ("model", "gate", "message"),
    [
        ({"kind": "gru", "half_state": True}, {}, "train.precision bfloat16: set both"),
        ({"max_rate": 0.5}, {"kind": "open"}, "leave out model.ungated_layers and model.max_rate"),
        (
            {"ungated_layers": 1},
            {"kind": "open"},
            "leave out model.ungated_layers and model.max_rate",
        ),
    ],
)
def test_options_of_models_that_would_do_nothing_are_refused(model, gate, message):
    with pytest.raises(ConfigError, match=message):
        run_of(gate_of(gate), **model)


@pytest.mark.parametrize("task", [TextFile(), MackeyGlass()], ids=["text", "series"])
def test_a_model_that_predicts_the_future_must_not_read_backwards(task):
    with pytest.raises(ConfigError, match=r"model\.bidirectional would read"):
        RunConfig(task, ModelConfig(bidirectional=True))


def test_with_model_keeps_the_options_that_the_other_kind_has():
    gate = InputGateConfig(target_rate=0.1)
    train = TrainConfig(rate_penalty=1.0, rate_ramp=(0.1, 0.2), anneal=(0.5, 0.7), batch=7)
    ours = run_of(gate, train, heads=2, expand=4, dropout=0.3)
    gru = ours.with_model("gru", chrono=True)
    assert gru.model == ModelConfig("gru", dropout=0.3, chrono=True)
    assert gru.gate == RhythmConfig()
    assert gru.train == TrainConfig(batch=7)
    lstm = ours.with_model("sulstm")
    assert (lstm.model.heads, lstm.gate, lstm.train) == (2, gate, train)
