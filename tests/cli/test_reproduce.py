"""surnn reproduce: a recipe is trained, tested, and compared with the paper."""

import json
import re

import pytest

from helpers.commands import config_of
from surnn.cli.main import main
from surnn.config import ModelConfig, RhythmConfig, RunConfig
from surnn.tasks.copying import Copying
from surnn.train import recipe_options
from surnn_recipes import RECIPES
from surnn_recipes.base import Recipe

SHORT = [
    *("--train.steps", "4", "--train.batch", "250", "--train.log-every", "2"),
    *("--train.evaluate-every", "4", "--train.evaluation-batches", "1", "--train.device", "cpu"),
]
TINY = Recipe(
    "tiny", lambda: RunConfig(Copying(delay=9), ModelConfig(width=16), RhythmConfig(rate=0.2)),
    "A tiny run.", "Table 9", "suTiny", 0.5,
    lambda config: RunConfig(Copying(delay=5), config.model, config.gate),
)  # fmt: skip


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(RECIPES, "tiny", TINY)


@pytest.mark.parametrize(
    "arguments",
    [
        ["tiny", "--budget", "10min"],
        ["tiny", "--budget=10min"],
        ["--budget", "10min", "tiny"],
        ["--budget=10min", "tiny"],
    ],
    ids=str,
)
def test_reproduce_in_a_budget(tiny, tmp_path, capsys, arguments):
    out = ["--out", str(tmp_path / "run"), *SHORT]
    assert main(["reproduce", *arguments, *out]) == 0
    config = config_of(tmp_path / "run")
    assert (config["task"]["delay"], config["train"]["minutes"]) == (5, 9.0)  # and the test
    told = capsys.readouterr().out
    assert "tiny: A tiny run. In the paper: suTiny, Table 9, 0.5." in told
    assert "smaller, to fit the budget: delay 5 instead of 9" in told


def test_reproduce_at_full_size(tiny, tmp_path):
    out = ["--out", str(tmp_path / "run"), *SHORT, "--model.kind", "gru"]
    assert main(["reproduce", "tiny", *out]) == 0
    config = config_of(tmp_path / "run")
    assert (config["task"]["delay"], config["train"]["minutes"]) == (9, None)
    assert (config["model"]["kind"], config["gate"]["rate"]) == ("gru", None)


def accuracy_of(run) -> float:
    (line,) = (run / "evaluations.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert (found["split"], found["checkpoint"]) == ("test", "best")
    return found["metrics"]["accuracy"]


def test_the_test_is_told_beside_the_paper(tiny, tmp_path, capsys):
    out = ["--out", str(tmp_path / "run"), *SHORT]
    assert main(["reproduce", "tiny", *out]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"test accuracy {accuracy_of(tmp_path / 'run'):.4g} (paper 0.5, chance 0.125)"


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_run_may_be_left_untested(tiny, tmp_path, capsys, where):
    run = tmp_path / "run"
    words = ["tiny", "--out", str(run), *SHORT]
    words = ["--no-test", *words] if where == "before" else [*words, "--no-test"]
    assert main(["reproduce", *words]) == 0
    assert "test accuracy" not in capsys.readouterr().out
    assert not (run / "evaluations.jsonl").exists()
    assert main(["eval", str(run), "--split", "test", "--device", "cpu"]) == 0
    assert 0 < accuracy_of(run) < 1


def test_a_budget_cuts_the_test(tiny, tmp_path, capsys, monkeypatch):
    """As training is cut: what would not end in time is told of a part of the set."""
    monkeypatch.setattr(recipe_options, "TEST_SHARE", 0.0)
    out = ["--out", str(tmp_path / "run"), "--budget", "10min", *SHORT]
    assert main(["reproduce", "tiny", *out]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    wanted = f"test accuracy {accuracy_of(tmp_path / 'run'):.4g} on 250 of 1000 sequences (paper"
    assert last.startswith(wanted)
    out = ["--out", str(tmp_path / "other"), "--budget", "10min", *SHORT]
    assert main(["reproduce", "tiny", *out, "--train.evaluation-batch", "400"]) == 0
    assert " on 400 of 1000 sequences (paper" in capsys.readouterr().out.splitlines()[-1]


def test_seeds_one_after_another(tiny, tmp_path, capsys):
    out = ["--out", str(tmp_path / "run"), *SHORT]
    assert main(["reproduce", "tiny", "--seeds", "3,5", *out]) == 0
    runs = [tmp_path / "run-seed3", tmp_path / "run-seed5"]
    assert [config_of(run)["train"]["seed"] for run in runs] == [3, 5]
    assert not (tmp_path / "run").exists()
    mean = sum(accuracy_of(run) for run in runs) / 2
    last = capsys.readouterr().out.splitlines()[-1]
    found = re.fullmatch(
        r"test accuracy (\S+) ± \S+ over 2 seeds \(paper 0.5, chance 0.125\)", last
    )
    assert found is not None
    assert float(found[1]) == pytest.approx(mean, rel=1e-3)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--seeds", "a"], "is not a list of seeds"),
        (["--seeds=1,1"], "is not a list of seeds"),
        (["--seeds", "1,2", "--train.seed", "3"], "leave one out"),
    ],
    ids=str,
)
def test_seeds_that_are_none(tiny, capsys, more, message):
    assert main(["reproduce", "tiny", *more]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_configuration_for_cpu(name):
    """Without what it cannot do there, and otherwise the same."""
    config = recipe_options.for_cpu(RECIPES[name]())
    assert not any((config.train.cuda_graph, config.train.compile, config.model.half_state))
    assert config.train.precision == "float32"
    full = RECIPES[name]()
    assert (config.task, config.gate, config.train.steps) == (
        full.task,
        full.gate,
        full.train.steps,
    )
