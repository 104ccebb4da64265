"""Figures of runs of which only the record is left: what they were asked for, and their tests."""

import json
from dataclasses import replace

import pytest

from helpers.drawing import draw, texts
from surnn.analysis.figures import NotApplicable
from surnn.analysis.work import step_work
from surnn.config import ModelConfig, RhythmConfig, RunConfig
from surnn.models.model import SequenceModel
from surnn.runs.config_json import config_from_dict, config_to_dict
from surnn.runs.folder import RunFolder
from surnn.tasks.copying import Copying
from surnn.tasks.mackey_glass import MackeyGlass
from surnn.tasks.state_tracking import StateTracking

pytest.importorskip("matplotlib")

COPYING, CHAOS = Copying(delay=10), MackeyGlass(horizons=(2, 5), length=130, series=16)
TRACKING = StateTracking("S3", length=50, events=4)
SMALL = ModelConfig(layers=2, width=8, heads=2, block="stack")
FIXED = RhythmConfig(rate=0.3, frozen=True)


def with_metrics(path, metrics, **options):
    """A run without weights that has been tested, with a gate of its own."""
    config = RunConfig(options.pop("task", COPYING), SMALL, replace(FIXED, **options))
    folder = RunFolder.create(path, config_to_dict(config))
    folder.log_evaluation(split="test", checkpoint="best", step=1, overrides={}, metrics=metrics)
    return path


def test_rates_that_were_asked_for_are_joined_and_seeds_averaged(tmp_path):
    runs = []
    for name, rate, found, accuracy in (
        ("a", 0.3, [0.2, 0.4], 0.9), ("b", 0.1, [0.1, 0.1], 0.8), ("c", 0.1, [0.3, 0.3], 0.6)
    ):  # fmt: skip
        metrics = {"accuracy": accuracy, "update_rate": found}
        runs.append(with_metrics(tmp_path / name, metrics, rate=rate))
    seeded = json.loads((tmp_path / "c" / "config.json").read_text())
    # Where it ran tells no runs apart, nor does an option that was not there yet.
    seeded["train"] |= {"seed": 1, "device": "cpu"}
    del seeded["train"]["weight_ema"]
    (tmp_path / "c" / "config.json").write_text(json.dumps(seeded))
    other = with_metrics(
        tmp_path / "d", {"accuracy": 0.5, "update_rate": [1.0]}, granularity="unit"
    )
    axes = draw("metric-by-rate", *runs, other).axes[0]
    assert "SuGRU, granularity auto (1 to 2 seeds)\nSuGRU, granularity unit" in texts(axes.figure)
    lines = [bars.lines[0].get_xydata().tolist() for bars in axes.containers]
    assert lines == [
        [pytest.approx([20, 0.7]), pytest.approx([30, 0.9])],
        [pytest.approx([100, 0.5])],
    ]


def test_work_is_counted_at_the_update_rates(tmp_path):
    runs = [
        with_metrics(tmp_path / name, {"accuracy": 0.5, "update_rate": [rate] * 2})
        for name, rate in (("a", 0.0), ("b", 1.0))
    ]
    counted = [
        draw("metric-by-work", run).axes[0].containers[0].lines[0].get_xydata()[0, 0]
        for run in runs
    ]
    config = config_from_dict(json.loads((runs[0] / "config.json").read_text()))
    task = config.task
    model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps)
    dense, none = step_work(model, [1.0, 1.0]).done, step_work(model, [0.0, 0.0]).done
    assert counted == pytest.approx([none / 1000, dense / 1000])
    assert none < dense


def test_the_same_weights_on_other_lengths(tmp_path):
    """A line joins tests that differ in length only; others are hollow points."""
    runs = []
    for name, seed, base in (("a", 0, 0.9), ("b", 1, 0.7)):
        runs.append(with_metrics(tmp_path / name, {"accuracy": base}, task=TRACKING))
        config = json.loads((runs[-1] / "config.json").read_text())
        config["train"]["seed"] = seed
        (runs[-1] / "config.json").write_text(json.dumps(config))
        for overrides, lower in (
            ({"task.length": 200}, 0.1), ({"task.length": 200, "task.events": 9}, 0.2)
        ):  # fmt: skip
            RunFolder.open(runs[-1]).log_evaluation(
                split="test", checkpoint="best", step=1, overrides=overrides,
                metrics={"accuracy": base - lower},
            )  # fmt: skip
    axes = draw("metric-by-length", *runs).axes[0]
    line, hollow = (each.get_xydata().tolist() for each in axes.lines[:2])
    assert line == [pytest.approx([50, 0.8]), pytest.approx([200, 0.7])]
    assert hollow == [pytest.approx([200, 0.6])]
    assert "SuGRU (2 seeds)\nthe same weights, events 9\nchance" in texts(axes.figure)


def test_soft_gates_update_at_every_step(tmp_path):
    metrics = {"accuracy": 0.5, "update_rate": [0.2, 0.4]}
    run = with_metrics(tmp_path / "a", metrics, mode="soft")
    (bars,) = draw("metric-by-rate", run).axes[0].containers
    assert bars.lines[0].get_xydata().tolist() == [pytest.approx([100, 0.5])]


def test_the_same_run_twice_is_no_second_seed(tmp_path):
    runs = [with_metrics(tmp_path / n, {"accuracy": 1.0, "update_rate": [0.1]}) for n in "ab"]
    with pytest.raises(NotApplicable, match=r"b is the same run as .*a: leave one of them out"):
        draw("metric-by-rate", *runs)


def test_what_has_not_been_tested_has_no_metric_to_show(tmp_path):
    RunFolder.create(tmp_path / "new", config_to_dict(RunConfig(COPYING, SMALL, FIXED)))
    with pytest.raises(NotApplicable, match=r"has not been tested: surnn eval .* --split test"):
        draw("metric-by-rate", tmp_path / "new")


def test_forecasts_are_as_they_were_tested(tmp_path):
    metrics = {"mse": 0.2, "mse at 2": 0.1, "mse at 5": 0.3}
    (line, _) = (
        draw("forecast-horizon", with_metrics(tmp_path / "a", metrics, task=CHAOS)).axes[0].lines
    )
    assert line.get_xydata().tolist() == [pytest.approx([2, 0.1]), pytest.approx([5, 0.3])]
    one = with_metrics(tmp_path / "b", {"mse": 0.2}, task=replace(CHAOS, horizons=(5,)))
    assert draw("forecast-horizon", one).axes[0].lines[0].get_xydata().tolist() == [
        pytest.approx([5, 0.2])
    ]
