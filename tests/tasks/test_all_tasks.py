"""Every task trains: a few optimizer steps and an evaluation, with SuGRU and with a baseline."""

import pytest

from helpers.tiny_sets import SMALL_TASKS
from surnn.config import ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.tasks import TASKS, load_task
from surnn.tasks.base import Task
from surnn.train.trainer import Trainer
from surnn_recipes import RECIPES

MODELS = {
    "sugru": (ModelConfig(layers=1, width=16, heads=2), RhythmConfig(rate=0.05)),
    "gru": (ModelConfig(kind="gru", layers=1, width=16), RhythmConfig()),
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("name", TASKS)
def test_every_task_trains(name, kind, data):
    task: Task = load_task(name)(**SMALL_TASKS.get(name, {}))
    train = TrainConfig(
        steps=2, batch=4, warmup=1, evaluate_every=2, evaluation_batches=1, device="cpu"
    )
    config = RunConfig(task, *MODELS[kind], train)
    found = Trainer(config, data=data).fit()
    assert task.metric in found
    assert ("update_rate" in found) == (kind == "sugru")
    assert task.chance > 0
    assert task.chance < 1 or not task.higher_is_better
    if kind == "sugru" and task.kinds:
        assert set(found["update_rate_by_kind"][0]) <= set(task.kinds)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_whole_configurations(name):
    config = RECIPES[name]()
    assert config.task.name in TASKS
    assert config.train.steps >= config.train.warmup
    assert RECIPES[name].about.strip(" .:")
