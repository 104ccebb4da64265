"""A running mean of the weights is evaluated and kept, and training does not notice."""

from dataclasses import replace

import pytest
import torch

from surnn.averaging import EARLY, Average
from surnn.distributed import World
from surnn.runs import RunFolder
from surnn.update import Updater
from training import (
    CONFIG,
    finished_run,
    fit_until,
    record,
    resumed,
    same,
    trainer,
    updates,
    weights,
)

BATCH_NORM = replace(CONFIG, model=replace(CONFIG.model, norm="batch"))


def mean_of(run):
    return {name: value.clone() for name, value in run.updater.average.mean.items()}


def test_it_is_a_mean_with_a_decay_that_rises_to_the_one_chosen():
    run = trainer(config=BATCH_NORM, average=0.8)
    expected: dict[str, torch.Tensor] = {}
    for count in range(60):
        updates(run, 1)
        share = max(EARLY / (EARLY + count), 0.2)
        for name, value in weights(run).items():
            if name in run.updater.average.mean:
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
    averaged = trainer(tmp_path / "averaged", average=0.9)
    averaged.fit()
    assert same(plain, averaged)
    kinds = [
        [line for line in record(tmp_path / name) if line["kind"] == "train"]
        for name in ("plain", "averaged")
    ]
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("config", [CONFIG, BATCH_NORM], ids=["layer", "batch"])
def test_the_mean_is_evaluated_and_kept_as_best(tmp_path, config):
    run = trainer(tmp_path / "run", config, average=0.9)
    updates(run, 5)
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
    whole = trainer(tmp_path / "whole", average=0.9)
    whole.fit()
    fit_until(trainer(tmp_path / "broken", average=0.9), 8)
    again = resumed(tmp_path / "broken", average=0.9)
    assert again.updater.average.count == again.step == 6
    again.fit()
    assert record(tmp_path / "broken") == record(tmp_path / "whole")
    assert all(torch.equal(value, mean_of(again)[name]) for name, value in mean_of(whole).items())


def test_one_that_is_asked_for_later_begins_there(tmp_path):
    finished_run(tmp_path / "run")
    run = resumed(tmp_path / "run", steps=5, average=0.9)
    assert run.updater.average.count == 0
    updates(run, 1)
    own = weights(run)
    for name, value in mean_of(run).items():
        torch.testing.assert_close(value, own[name])
    plain = resumed(tmp_path / "run", steps=5)  # and one that is given up is forgotten
    assert plain.updater.average is None


def test_before_the_first_update_there_is_no_mean(tmp_path):
    """A run that begins with another's weights is evaluated with those."""
    other = finished_run(tmp_path / "other")
    run = trainer(start=str(other), average=0.9, steps=1)
    plain = trainer(start=str(other), steps=1)
    for each in (run, plain):
        each.begin()
    assert run._evaluate() == plain._evaluate()


def test_an_update_that_did_not_happen_is_not_in_it():
    run = trainer(average=0.5)
    updates(run, 2)
    before = mean_of(run)
    average = run.updater.average
    average.add(torch.ones(()))
    assert average.count == 2
    assert all(torch.equal(value, before[name]) for name, value in mean_of(run).items())
    average.add(torch.zeros(()))
    assert average.count == 3
    assert any(not torch.equal(value, before[name]) for name, value in mean_of(run).items())


def test_weights_come_back_from_an_error():
    run = trainer(average=0.5)
    updates(run, 3)
    before = weights(run)
    found = []

    def fail():
        with run.updater.averaged():
            found.append(weights(run))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert any(not torch.equal(before[name], value) for name, value in found[0].items())
    assert all(torch.equal(before[name], value) for name, value in weights(run).items())


def test_what_is_not_trained_is_not_averaged():
    model = torch.nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    assert [*Average(model, 0.9).mean] == ["weight"]


def test_divided_weights_have_none():
    config = replace(CONFIG, train=replace(CONFIG.train, shard=True, average=0.9))
    with pytest.raises(ValueError, match="average is of whole weights"):
        Updater(trainer().model, config, World(0, 2, 0))
    with pytest.raises(ValueError, match=r"train\.average is a share from 0 to 1, got 1\.5"):
        replace(CONFIG.train, average=1.5)
