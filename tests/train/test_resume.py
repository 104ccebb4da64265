"""A resumed run equals the run that was not stopped."""

import json
from dataclasses import replace

import pytest
import torch

from helpers.training import CONFIG, fit_until, record, resumed, same, train_steps, trainer
from surnn.config import RhythmConfig
from surnn.errors import RunError
from surnn.runs.checkpoints import OLD_STATE_KEYS
from surnn.runs.folder import RunFolder


@pytest.mark.parametrize("gone_at", [4, 8])
@pytest.mark.parametrize("mode", ["hard", "sampled"])
def test_resumed_run_equals_the_run_that_was_not_stopped(tmp_path, gone_at, mode):
    """Weights and record: a log line covers steps before and after the checkpoint."""
    config = replace(CONFIG, gate=RhythmConfig(rate=0.3, mode=mode))
    config = replace(config, train=replace(config.train, log_every=5))
    whole = trainer(tmp_path / "whole", config)
    whole.fit()
    broken = trainer(tmp_path / "broken", config)
    fit_until(broken, gone_at)
    again = resumed(tmp_path / "broken", config)
    assert again.step == gone_at // 3 * 3
    again.fit()
    assert same(whole, again)
    assert record(tmp_path / "broken") == record(tmp_path / "whole")


def test_a_run_stopped_before_its_first_step(tmp_path):
    whole = trainer(tmp_path / "whole")
    whole.fit()
    trainer(tmp_path / "run").save()
    again = resumed(tmp_path / "run")
    again.fit()
    assert same(whole, again)
    assert record(tmp_path / "run") == record(tmp_path / "whole")


def test_the_best_weights_are_not_enough_to_resume(tmp_path):
    trainer(tmp_path / "run").fit()
    run = trainer()
    run.use_folder(RunFolder.open(tmp_path / "run"))
    with pytest.raises(RunError, match=r"no .*optimizer.*use last or previous"):
        run.resume("best")


def test_a_checkpoint_with_the_keys_of_version_0_1_resumes(tmp_path):
    """state.pt had other keys; the resumed run equals the one that was not stopped."""
    whole = trainer(tmp_path / "whole")
    whole.fit()
    run = trainer(tmp_path / "run")
    train_steps(run, 6)
    run.save()
    new = {now: before for before, now in OLD_STATE_KEYS.items()}
    weights, state = run.folder.load("last")
    run.folder.save(weights, {new.get(key, key): value for key, value in state.items()})
    saved = torch.load(tmp_path / "run" / "last" / "state.pt", weights_only=True)
    assert {"losses", "random", "starting", "since_best", "logged", "evaluated"} <= set(saved)
    again = resumed(tmp_path / "run")
    again.fit()
    assert same(whole, again)


def test_options_changed_on_resuming_take_effect_and_are_recorded(tmp_path):
    run = trainer(tmp_path / "run", hold=1.0)
    train_steps(run, 6)
    run.save()
    again = resumed(tmp_path / "run", learning_rate=1e-4, weight_decay=0.5, hold=1.0)
    again.fit()
    path = tmp_path / "run"
    assert {m["learning_rate"] for m in record(path) if m["kind"] == "train"} == {1e-4}
    groups = again.optimizer_step.optimizer.param_groups
    assert {g["weight_decay"] for g in groups} == {0.5, 0.0}
    assert {round(g["lr"].item(), 9) for g in groups} == {1e-4}
    assert json.loads((path / "config.json").read_text())["train"]["learning_rate"] == 1e-4
    lines = [json.loads(line) for line in (path / "resumed.jsonl").read_text().splitlines()]
    assert (lines[0]["step"], lines[0]["processes"]) == (6, 1)
    assert lines[0]["torch"] == torch.__version__
    assert lines[1]["changes"] == {
        "train.learning_rate": [2e-3, 1e-4], "train.weight_decay": [0.0, 0.5],
    }  # fmt: skip


def test_other_processes_draw_from_another_seed_and_say_so(tmp_path):
    run = trainer(tmp_path / "run")
    train_steps(run, 3)
    run.save()
    weights, state = run.folder.load("last")
    run.folder.save(
        weights, {**state, "random_states": state["random_states"] * 2}
    )  # as by two processes
    again = resumed(tmp_path / "run")
    messages: list[str] = []
    again.reporter.message = messages.append  # type: ignore[method-assign]
    again.fit()
    assert "saved by 2 process(es), resumed by 1" in messages[0]
    assert "drawn from another seed" in (tmp_path / "run" / "resumed.jsonl").read_text()
