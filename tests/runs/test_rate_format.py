"""How often units update, as commands tell it; or how far soft gates, never closed, are open."""

import json
from dataclasses import replace
from statistics import fmean

import pytest

from helpers.training import CONFIG, SMALL
from surnn.cli.main import main
from surnn.config import InputGateConfig, ModelConfig, RhythmConfig
from surnn.runs.folder import RunFolder
from surnn.runs.rate_format import format_layer_rates, format_rate, is_soft

SOFT = replace(CONFIG, gate=RhythmConfig(mode="soft"))
ONE_OPEN = replace(SOFT, model=replace(SMALL, layers=2, ungated_layers=1))
SIZES = [
    *("--task.delay", "5", "--model.width", "16", "--model.layers", "2", "--model.ungated-layers"),
    *("1", "--train.steps", "2", "--train.batch", "4", "--train.log-every", "2"),
    *("--train.evaluation-batches", "1", "--train.device", "cpu"),
]


def test_which_gates_are_soft():
    baseline = replace(CONFIG, model=ModelConfig(kind="gru"), gate=RhythmConfig())
    for config in (CONFIG, baseline, replace(CONFIG, gate=InputGateConfig())):
        assert not is_soft(config)
        assert not is_soft(config, 0)
    assert is_soft(SOFT)
    assert is_soft(SOFT, 0)
    assert is_soft(ONE_OPEN)
    assert [is_soft(ONE_OPEN, layer) for layer in range(2)] == [False, True]


def test_a_mean_of_gates_format_rate():
    assert str(format_rate(0.341, soft=False)) == "update rate 34.1%"
    assert str(format_rate(0.341, soft=True)) == "mean gate opening 0.34"


def test_each_layer_as_it_is():
    found = {
        "update_rate": [1.0, 0.25],
        "update_rate_by_kind": [{"data": 1.0}, {"data": 0.5, "delay": 0.125}],
    }
    assert list(map(str, format_layer_rates(found, ONE_OPEN))) == [
        "update rate 100.0%  (data 100.0%)",
        "mean gate opening 0.25  (data 0.50, delay 0.12)",
    ]
    assert str(format_layer_rates({"update_rate": [0.25]}, SOFT)[0]) == "mean gate opening 0.25"
    assert format_layer_rates({}, SOFT) == []


@pytest.mark.parametrize("mode", ["soft", "hard"])
def test_train_eval_and_info_tell_the_same(tmp_path, capsys, mode):
    """Of a model whose first layer is always open; what programs read is a number as ever."""
    run = str(tmp_path / "run")
    assert main(["train", "copying", *SIZES, "--gate.mode", mode, "--out", run]) == 0
    trained = capsys.readouterr().out
    assert main(["eval", run, "--batch", "500"]) == 0
    evaluated = capsys.readouterr().out
    assert main(["info", run]) == 0
    told = capsys.readouterr().out
    folder = RunFolder.open(tmp_path / "run")
    train, valid = (line["update_rate"] for line in folder.metrics())
    (tested,) = (line["metrics"]["update_rate"] for line in folder.evaluations())
    assert train[0] == valid[0] == tested[0] == 1.0
    assert 0 < tested[1] < 1
    assert "  layer 1 update rate      100.0%  (data 100.0%" in evaluated
    assert "layer 1      update rate 100.0%  (data 100.0%" in told
    if mode == "soft":
        assert f"  mean gate opening {fmean(train):.2f}  " in trained
        assert f"  layer 2 mean gate opening {tested[1]:.2f}  (data " in evaluated
        assert f"layer 2      mean gate opening {valid[1]:.2f}  (data " in told
    else:
        assert f"  update rate {fmean(train):.1%}  " in trained
        assert f"  layer 2 update rate      {tested[1]:.1%}  (data " in evaluated
        assert f"layer 2      update rate {valid[1]:.1%}  (data " in told
    assert main(["eval", run, "--batch", "500", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["update_rate"] == tested
