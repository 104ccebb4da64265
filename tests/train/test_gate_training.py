"""Options of training that shape gates: targets of layers, margins, annealing, calibration."""

from dataclasses import replace

import pytest
import torch

from helpers.training import BRIEF, CONFIG, RAGGED, SMALL, trainer
from surnn.cli.main import main
from surnn.config import FullGateConfig, InputGateConfig, ModelConfig, RhythmConfig, RunConfig
from surnn.errors import ConfigError
from surnn.runs.config_json import config_from_dict, config_to_dict
from surnn.runs.loading import load
from surnn.train.devices import pick_device
from surnn.train.distributed import World
from surnn.train.trainer import Trainer

FULL = FullGateConfig(rate=0.3, conv=2, modes=4)


def run_of(gate=FULL, model=SMALL, **train) -> RunConfig:
    return RunConfig(RAGGED, model, gate, replace(BRIEF, **train))


@pytest.mark.parametrize("block", ["residual", "stack"])
def test_each_layer_is_pulled_to_its_own_target(block):
    model = ModelConfig(width=16, heads=4, layers=2, block=block)
    gate = RhythmConfig(rate=0.3, target_rate=(0.1, 0.6))
    config = run_of(gate, model, rate_penalty=20.0, steps=60, learning_rate=0.02, clip=1e6)
    assert config_from_dict(config_to_dict(config)) == config
    run = Trainer(config)
    run.fit()
    rates = torch.cat([layer.update_rate for layer in run.model.selective_layers()])
    torch.testing.assert_close(rates.float(), torch.tensor([0.1, 0.6]), atol=0.08, rtol=0)


def test_the_target_of_rates_moves_in_the_course_of_training():
    """Before the ramp the target is the first rate; afterwards the gates reach the other."""
    model = ModelConfig(width=16, heads=4, layers=1)
    gate = RhythmConfig(rate=0.5, target_rate=0.1)
    train = {"rate_penalty": 20.0, "learning_rate": 0.02, "clip": 1e6, "steps": 120}
    run = Trainer(run_of(gate, model, rate_ramp=(0.3, 0.5), **train))
    seen = []
    take = run.optimizer_step.__call__
    for step in range(120):
        take(step, run.batches.take(step))
        seen.append(float(run.model.selective_layers()[0].update_rate))
    assert abs(seen[35] - 0.5) < 0.1
    assert abs(seen[119] - 0.1) < 0.08


def test_targets_are_counted():
    model = ModelConfig(width=16, heads=4, layers=3, ungated_layers=1)
    gate = RhythmConfig(target_rate=(0.1, 0.2))
    run_of(gate, model, rate_penalty=1.0)
    with pytest.raises(ConfigError, match="has 2 rates, and there are 3 gated layers"):
        run_of(gate, replace(model, ungated_layers=0), rate_penalty=1.0)


def test_the_margin_penalty_is_part_of_the_loss():
    """Parts of a batch add up to the whole: the same step, accumulated or not."""
    gate = replace(FULL, margin=0.5, mode="hard")
    model = replace(SMALL, dropout=0.0)
    results = []
    for accumulate, penalty in ((1, 2.0), (2, 2.0), (1, 1e-9)):
        config = run_of(gate, model, margin_penalty=penalty, accumulate=accumulate)
        run = Trainer(config)
        run.optimizer_step(0, run.batches.take(0))
        grads = [p.grad for p in run.model.gate_parameters() if p.grad is not None]
        results.append(torch.cat([g.flatten() for g in grads]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
    assert (results[0] - results[2]).abs().max() > 1e-3


@pytest.mark.parametrize("mode", ["sampled", "relaxed"])
def test_annealed_runs_end_with_hard_gates_and_resume(mode, tmp_path):
    config = run_of(replace(FULL, mode=mode), anneal=(0.2, 0.6))
    run = trainer(tmp_path / "run", config)
    run.fit()
    gate = run.model.selective_layers()[0].gates[0]
    assert float(gate.noise) == 0.0
    loaded = load(tmp_path / "run").model
    assert loaded.selective_layers()[0].gates[0].binary


def test_a_calibrated_run_starts_at_its_rate():
    def first_rate(**train) -> float:
        run = Trainer(run_of(replace(FULL, rate=0.1, mode="hard"), **train))
        run.optimizer_step(0, run.batches.take(0))
        return run.model.selective_layers()[0].update_rate.item()

    assert abs(first_rate(calibrate=True) - 0.1) < 0.03
    assert abs(first_rate() - 0.1) > 0.03


@pytest.mark.parametrize(
    ("gate", "train", "message"),
    [
        (RhythmConfig(), {"calibrate": True}, "'rhythm' does not: its rate is exact already"),
        (FULL, {"calibrate": True, "start": "run"}, "leave one out"),
        (FULL, {"margin_penalty": 0.1}, "out of gate.margin: set both"),
        (InputGateConfig(margin=0.1), {}, "without train.margin_penalty: set both"),
        (RhythmConfig(mode="soft"), {"anneal": (0.1, 0.2)}, "sampled or relaxed gates"),
    ],
)
def test_options_without_effect_are_refused(gate, train, message):
    with pytest.raises(ConfigError, match=message):
        run_of(gate, **train)
    with pytest.raises(ConfigError, match="for a frozen gate"):
        RhythmConfig(frozen=True, margin=0.1)


def test_flags_reach_the_run(tmp_path):
    flags = (
        "--gate.kind full --gate.target-rate 0.1 0.2 --train.rate-penalty 0.1 --gate.no-ssm "
        "--gate.margin 0.1 --train.margin-penalty 0.1 --train.calibrate --train.anneal 0 1 "
        "--gate.mode relaxed --train.steps 1 --train.batch 4 --model.width 8 --task.delay 5 "
        "--train.evaluation-batches 1"
    )
    assert main(["train", "copying", "--out", str(tmp_path / "run"), *flags.split()]) == 0
    gates = [layer.gates[0] for layer in load(tmp_path / "run").model.selective_layers()]
    assert [(g.target_rate, g.margin, g.mode, g.ssm) for g in gates] == [
        (0.1, 0.1, "relaxed", False),
        (0.2, 0.1, "relaxed", False),
    ]


def test_an_apple_gpu_is_taken_by_its_name(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="there is no Apple GPU"):
        pick_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert pick_device("mps") == torch.device("mps")
    with pytest.raises(ConfigError, match="trains in one process, and there are 2"):
        pick_device("mps", World(0, 2, 0))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == torch.device("cpu")


def test_a_run_without_float64(monkeypatch):
    """Training and evaluation on a device without float64; the CPU takes its part."""
    from surnn.nn import runtime  # noqa: PLC0415

    def run() -> dict:
        return Trainer(replace(CONFIG, train=replace(BRIEF, steps=2))).fit()

    expected = run()
    monkeypatch.setattr(runtime, "_WITHOUT_FLOAT64", {"cpu"})
    found = run()
    assert found["accuracy"] == pytest.approx(expected["accuracy"], abs=1e-6)
    assert found["update_rate"] == pytest.approx(expected["update_rate"], abs=1e-6)
