"""How often units update, as commands tell it; or how far soft gates, never closed, are open."""

import json
from dataclasses import replace
from statistics import fmean

import pytest

from surnn.cli import main
from surnn.config import GateConfig, ModelConfig
from surnn.rate_words import in_words, is_soft, layers_in_words
from surnn.runs import RunFolder
from training import CONFIG, SMALL

SOFT = replace(CONFIG, gate=GateConfig(mode="soft"))
ONE_OPEN = replace(SOFT, model=replace(SMALL, layers=2, open_layers=1))
SIZES = [
    *("--task.delay", "5", "--model.width", "16", "--model.layers", "2", "--model.open-layers"),
    *("1", "--train.steps", "2", "--train.batch", "4", "--train.log-every", "2"),
    *("--train.evaluation-batches", "1", "--train.device", "cpu"),
]


def test_which_gates_are_soft():
    baseline = replace(CONFIG, model=ModelConfig(kind="gru"), gate=GateConfig())
    for config in (CONFIG, baseline, replace(CONFIG, gate=GateConfig("input"))):
        assert not is_soft(config)
        assert not is_soft(config, 0)
    assert is_soft(SOFT)
    assert is_soft(SOFT, 0)
    assert is_soft(ONE_OPEN)
    assert [is_soft(ONE_OPEN, layer) for layer in range(2)] == [False, True]


def test_a_mean_of_gates_in_words():
    assert str(in_words(0.341, soft=False)) == "updates 34.1%"
    assert str(in_words(0.341, soft=True)) == "gates open by 0.34 on average"


def test_each_layer_as_it_is():
    found = {
        "update_rate": [1.0, 0.25],
        "update_rate_by_kind": [{"data": 1.0}, {"data": 0.5, "delay": 0.125}],
    }
    assert list(map(str, layers_in_words(found, ONE_OPEN))) == [
        "updates 100.0%  (data 100.0%)",
        "gates open by 0.25 on average  (data 0.50, delay 0.12)",
    ]
    assert str(layers_in_words({"update_rate": [0.25]}, SOFT)[0]) == "gates open by 0.25 on average"
    assert layers_in_words({}, SOFT) == []


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
    assert "  updates of layer 1       100.0%  (data 100.0%" in evaluated
    assert "layer 1      updates 100.0%  (data 100.0%" in told
    if mode == "soft":
        assert f"  gates open by {fmean(train):.2f} on average  " in trained
        assert f"  gates of layer 2         open by {tested[1]:.2f} on average  (data " in evaluated
        assert f"layer 2      gates open by {valid[1]:.2f} on average  (data " in told
    else:
        assert f"  updates {fmean(train):.1%}  " in trained
        assert f"  updates of layer 2       {tested[1]:.1%}  (data " in evaluated
        assert f"layer 2      updates {valid[1]:.1%}  (data " in told
    assert main(["eval", run, "--batch", "500", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["update_rate"] == tested
