"""Multiply-accumulates of a time step, counted by hand."""

import pytest

from surnn.analysis.work import step_work
from surnn.config import InputGateConfig, ModelConfig, RhythmConfig, SSMGateConfig
from surnn.models.model import SequenceModel
from surnn.models.signature import Output, Values

FEATURES, WIDTH, CLASSES = 5, 32, 3
READOUT = WIDTH * CLASSES


def model(kind: str, gate=None, **options) -> SequenceModel:
    config = ModelConfig(kind, layers=2, width=WIDTH, block="stack", **options)
    return SequenceModel(
        config, gate or RhythmConfig(), Values(FEATURES), Output(CLASSES, "step"), 50
    )


@pytest.mark.parametrize(("kind", "gates"), [("gru", 3), ("lstm", 4)])
def test_dense_layers(kind, gates):
    expected = gates * WIDTH * (FEATURES + WIDTH) + gates * WIDTH * 2 * WIDTH + READOUT
    assert step_work(model(kind)) == (expected, expected)


def test_gates_are_always_computed_and_layers_at_their_rates():
    gated = model("sugru", InputGateConfig(), heads=2)
    gates = 2 * FEATURES + 2 * WIDTH
    first, second = 3 * WIDTH * (FEATURES + WIDTH // 2), 3 * WIDTH * (WIDTH + WIDTH // 2)
    work = step_work(gated, [0.5, 0.25])
    assert work.dense == gates + first + second + READOUT
    assert work.done == gates + first / 2 + second / 4 + READOUT


def test_state_space_gates():
    gated = model("sugru", SSMGateConfig(modes=4, source="input"), heads=2)
    gates = 2 * (4 * FEATURES + 2 * 4 + 2 * FEATURES)
    assert step_work(gated, [0.0, 0.0]).done == gates + READOUT


def test_baselines_that_save_work():
    weights = 3 * WIDTH * (FEATURES + WIDTH) + 3 * WIDTH * 2 * WIDTH
    assert step_work(model("deltagru"), [1.0, 1.0]).dense == weights + READOUT
    assert step_work(model("deltagru"), [0.0, 0.0]).done == READOUT
    assert step_work(model("skipgru"), [1.0, 1.0]).dense == weights + 2 * WIDTH + READOUT


def test_s4d_and_mingru():
    s4d = SequenceModel(
        ModelConfig("s4d", layers=1, width=WIDTH, state=4), RhythmConfig(), Values(FEATURES),
        Output(CLASSES, "step"), 50,
    )  # fmt: skip
    encoder, glu = FEATURES * WIDTH, WIDTH * 2 * WIDTH
    assert step_work(s4d).done == encoder + 6 * 4 * WIDTH + WIDTH + glu + READOUT
    mingru = 2 * WIDTH * FEATURES + 2 * WIDTH * WIDTH + READOUT
    assert step_work(model("mingru")).done == mingru


def test_rates_must_fit():
    with pytest.raises(ValueError, match="fewer rates"):
        step_work(model("skipgru"), [1.0])
    with pytest.raises(ValueError, match="too many"):
        step_work(model("gru"), [1.0])
