"""A running mean of the weights is evaluated and kept, and training does not notice."""

from dataclasses import replace

import pytest
import torch

from helpers.training import (
    CONFIG,
    finished_run,
    fit_until,
    record,
    resumed,
    same,
    train_steps,
    trainer,
    weights,
)
from surnn.runs.folder import RunFolder
from surnn.train.distributed import World
from surnn.train.optimizer_step import OptimizerStep
from surnn.train.weight_ema import EARLY, WeightEma

BATCH_NORM = replace(CONFIG, model=replace(CONFIG.model, norm="batch"))


def mean_of(run):
    return {name: value.clone() for name, value in run.optimizer_step.weight_ema.mean.items()}


def test_it_is_a_mean_with_a_decay_that_rises_to_the_one_chosen():
    run = trainer(config=BATCH_NORM, weight_ema=0.8)
    expected: dict[str, torch.Tensor] = {}
    for count in range(60):
        train_steps(run, 1)
        share = max(EARLY / (EARLY + count), 0.2)
        for name, value in weights(run).items():
            if name in run.optimizer_step.weight_ema.mean:
                before = expected.get(name, value)
                expected[name] = before + share * (value - before)
    assert share == 0.2
    found = mean_of(run)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    trained = {name for name, p in run.model.named_parameters() if p.requires_grad}
    rest = found.keys() - trained
    assert trained <= found.keys()
    assert {name.rpartition(".")[2] for name in rest} == {"running_mean", "running_var"}


def test_training_does_not_notice(tmp_path):
    plain = trainer(tmp_path / "plain")
    plain.fit()
    averaged = trainer(tmp_path / "averaged", weight_ema=0.9)
    averaged.fit()
    assert same(plain, averaged)
    kinds = [
        [line for line in record(tmp_path / name) if line["kind"] == "train"]
        for name in ("plain", "averaged")
    ]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("config", [CONFIG, BATCH_NORM], ids=["layer", "batch"])
def test_the_mean_is_evaluated_and_kept_as_best(tmp_path, config):
    run = trainer(tmp_path / "run", config, weight_ema=0.9)
    train_steps(run, 5)
    before, mean = weights(run), mean_of(run)
    found = run._evaluate()
    after = weights(run)
    assert all(torch.equal(before[name], after[name]) for name in before)
    best, _ = RunFolder.open(tmp_path / "run").load("best")
    assert all(torch.equal(best[name], value) for name, value in mean.items())
    assert any(not torch.equal(best[name], before[name]) for name in mean)
    plain = trainer(config=config)
    plain.model.load_state_dict(best)
    assert plain._evaluate() == found


def test_a_resumed_run_goes_on_with_its_mean(tmp_path):
    whole = trainer(tmp_path / "whole", weight_ema=0.9)
    whole.fit()
    fit_until(trainer(tmp_path / "broken", weight_ema=0.9), 8)
    again = resumed(tmp_path / "broken", weight_ema=0.9)
    assert again.optimizer_step.weight_ema.count == again.step == 6
    again.fit()
    assert record(tmp_path / "broken") == record(tmp_path / "whole")
    assert all(torch.equal(value, mean_of(again)[name]) for name, value in mean_of(whole).items())


def test_one_that_is_asked_for_later_begins_there(tmp_path):
    finished_run(tmp_path / "run")
    run = resumed(tmp_path / "run", steps=5, weight_ema=0.9)
    assert run.optimizer_step.weight_ema.count == 0
    train_steps(run, 1)
    own = weights(run)
    for name, value in mean_of(run).items():
        torch.testing.assert_close(value, own[name])
    run.folder.unlock()
    plain = resumed(tmp_path / "run", steps=5)  # and one that is given up is forgotten
    assert plain.optimizer_step.weight_ema is None


def test_before_the_first_update_there_is_no_mean(tmp_path):
    """A run that begins with another's weights is evaluated with those."""
    other = finished_run(tmp_path / "other")
    run = trainer(start=str(other), weight_ema=0.9, steps=1)
    plain = trainer(start=str(other), steps=1)
    for each in (run, plain):
        each.load_start_weights()
    assert run._evaluate() == plain._evaluate()


def test_an_update_that_did_not_happen_is_not_in_it():
    run = trainer(weight_ema=0.5)
    train_steps(run, 2)
    before = mean_of(run)
    average = run.optimizer_step.weight_ema
    average.add(torch.ones(()))
    assert average.count == 2
    assert all(torch.equal(value, before[name]) for name, value in mean_of(run).items())
    average.add(torch.zeros(()))
    assert average.count == 3
    assert any(not torch.equal(value, before[name]) for name, value in mean_of(run).items())


def test_weights_come_back_from_an_error():
    run = trainer(weight_ema=0.5)
    train_steps(run, 3)
    before = weights(run)
    found = []

    def fail():
        with run.optimizer_step.averaged_weights():
            found.append(weights(run))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert any(not torch.equal(before[name], value) for name, value in found[0].items())
    assert all(torch.equal(before[name], value) for name, value in weights(run).items())


def test_what_is_not_trained_is_not_averaged():
    model = torch.nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    assert [*WeightEma(model, 0.9).mean] == ["weight"]


def test_divided_weights_have_none():
    config = replace(CONFIG, train=replace(CONFIG.train, shard=True, weight_ema=0.9))
    with pytest.raises(ValueError, match="weight_ema needs whole weights"):
        OptimizerStep(trainer().model, config, World(0, 2, 0))
    with pytest.raises(ValueError, match=r"train\.weight_ema is a share from 0 to 1, got 1\.5"):
        replace(CONFIG.train, weight_ema=1.5)
