"""The command that repeats a recorded run."""

import shlex
from dataclasses import replace

import pytest

from helpers.recorded import recorded_seeds, unfinished_run
from surnn.runs.config_json import config_from_dict
from surnn.runs.folder import RunFolder
from surnn.train.recipe_options import configure, with_seed
from surnn_recipes import RECIPES
from surnn_recipes.results import ResultsError
from surnn_recipes.results.commands import command, option_name, replay, without


def test_commands_have_flags_for_changes_of_a_recipe(tmp_path, monkeypatch):
    name = "copying-variable-input"
    recipe, config = RECIPES[name], RECIPES[name]()
    folder = unfinished_run(tmp_path / "run", name, 3, " --train.lr 0.004")
    now = replace(config.train, minutes=5.0, anneal=None, cuda_graph=False)
    changed = replace(config, train=now, model=replace(config.model, dropout=0.25))
    monkeypatch.setitem(RECIPES, name, replace(recipe, make=lambda: changed))
    told = command(folder.path)
    assert told == (
        f"surnn reproduce {name} --train.lr 0.004 --model.dropout 0.0 --train.anneal 0.5 0.75 "
        "--train.minutes None --train.cuda-graph"
    )
    assert replay(shlex.split(told), "a GPU", 3) == with_seed(config, 3)
    short = unfinished_run(tmp_path / "short", name, 3, " --budget 10min", minutes=9.0)
    assert command(short.path) == f"surnn reproduce {name} --budget 10min"
    monkeypatch.setitem(RECIPES, name, RECIPES["psmnist"])
    with pytest.raises(ResultsError, match=r"copying.*psmnist"):
        command(folder.path)


@pytest.mark.parametrize(
    ("words", "option", "left"),
    [
        ("--train.lr 1 --train.batch 2", "--train.learning-rate", "--train.batch 2"),
        ("--train.lr=1 --train.batch 2", "--train.learning-rate", "--train.batch 2"),
        ("--train.batch 2 --train.no-compile", "--train.compile", "--train.batch 2"),
        ("--train.compile --train.batch 2", "--train.no-compile", "--train.batch 2"),
        ("--train.anneal 0.1 0.2 --train.batch 2", "--train.anneal", "--train.batch 2"),
        (
            "--train.batch_ 1 --train.warm_up 3 --task.x y",
            "--train.warm-up",
            "--train.batch_ 1 --task.x y",
        ),
        ("--a.b 1 --c.d 2 --a.b 3", "--a.b", "--c.d 2"),
        ("--a.b 1 --a.bc 2", "--a.b", "--a.bc 2"),
    ],
)
def test_an_option_is_removed_in_any_spelling(words, option, left):
    name = ["surnn", "reproduce", "copying"]
    same = option_name(option).__eq__
    assert without([*name, *words.split()], same) == [*name, *left.split()]


@pytest.mark.parametrize("seed", recorded_seeds(), ids=lambda s: f"{s.parent.name}-{s.name}")
def test_commands_on_the_page_make_the_recorded_configurations(seed):
    folder = RunFolder.open(seed)
    program, verb, name, *flags = shlex.split(command(seed))
    assert (program, verb, name) == ("surnn", "reproduce", seed.parent.name)
    on_cpu = folder.environment()["device"] == "cpu"
    config, _ = configure(RECIPES[name], flags, on_cpu)
    found = config_from_dict(folder.config())
    assert with_seed(config, found.train.seed) == found
