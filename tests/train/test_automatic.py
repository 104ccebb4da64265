"""Options chosen from data, and advice about them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.paths import ROOT
from surnn.cli.main import main
from surnn.config import RunConfig
from surnn.tasks.sequence_facts import SequenceFacts, correlation_time, still_share
from surnn.tasks.sequences import Sequences
from surnn.train.advice import advise
from surnn.train.automatic import choice_lines, choose, start_rate, with_choices

FACTS = SequenceFacts(
    goal="classify", sequences=1000, features=1, median_length=1000, longest=1200, classes=3,
    events=False, memory=8, still=0.5,
)  # fmt: skip


def chosen(facts):
    return {choice.option: choice.value for choice in choose(facts)}


@pytest.mark.parametrize(
    ("change", "rate"),
    [
        ({}, 0.12),  # every 8th step is new
        ({"memory": 1}, 0.5),  # every step is new
        ({"memory": 500}, 0.06),  # but a unit should update 64 times
        ({"memory": 500, "median_length": 100}, 0.5),
        ({"memory": 500, "median_length": 10**5}, 0.05),
    ],
)
def test_the_rate_follows_redundancy_and_length(change, rate):
    assert start_rate(FACTS._replace(**change))[0] == rate


def test_gates_follow_the_goal():
    assert chosen(FACTS)["gate.kind"] == "rhythm"
    assert chosen(FACTS)["gate.horizon"] == 1200
    assert chosen(FACTS)["model.pool"] == "mean"
    events = chosen(FACTS._replace(goal="classify_steps", events=True))
    assert events["gate.kind"] == "input"
    assert "model.pool" not in events
    assert chosen(FACTS._replace(goal="forecast"))["gate.kind"] == "open"


def test_sizes_follow_the_amount_of_data():
    small, large = chosen(FACTS._replace(sequences=30)), chosen(FACTS._replace(sequences=10**6))
    assert (small["train.batch"], small["model.width"]) == (8, 64)
    assert (large["train.batch"], large["model.width"]) == (64, 256)
    assert chosen(FACTS._replace(sequences=3))["train.batch"] == 3


def test_training_is_planned_for_the_given_number_of_steps():
    given = {choice.option: choice.value for choice in choose(FACTS, steps=50)}
    assert "train.steps" not in given
    assert (given["train.warmup"], given["train.evaluate_every"]) == (5, 5)


def test_the_command_plans_for_the_steps_that_it_is_given(tmp_path, capsys):
    write_csv(tmp_path / "d.csv")
    words = ["--task.path", str(tmp_path / "d.csv"), "--train.device", "cpu", "--train.steps", "20"]
    assert main(["train", "sequences", *words, "--out", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "--train.warmup 2 " in out
    assert "--train.steps" not in out.partition("sequences:")[0]


def test_the_first_line_says_what_the_columns_are(tmp_path, capsys):
    """A column of labels under another name is not silently left out."""
    write_csv(tmp_path / "d.csv")
    path = ["--task.path", str(tmp_path / "d.csv"), "--train.device", "cpu", "--train.steps", "1"]
    assert main(["train", "sequences", *path, "--out", str(tmp_path / "a")]) == 0
    assert capsys.readouterr().out.startswith(
        "inputs: u; target: the labels (2 classes: high, low)\n"
    )
    lines = (tmp_path / "d.csv").read_text().replace("id,u,label", "who,u,mark").splitlines()
    (tmp_path / "d.csv").write_text("\n".join(lines))
    assert main(["train", "sequences", *path, "--out", str(tmp_path / "b")]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("inputs: who, u; no target, so the goal is a forecast")
    assert "--task.target" in first


def write_csv(path):
    rows = [
        f"{n},{n % 2 + t / 100 + n / 1000},{('low', 'high')[n % 2]}"
        for n in range(40)
        for t in range(20)
    ]
    path.write_text("\n".join(["id,u,label", *rows]))


def test_advice_repeats_the_flags_in_its_command(tmp_path, capsys):
    write_csv(tmp_path / "d.csv")
    path = str(tmp_path / "d.csv")
    assert main(["advise", path, "--no-speed", "--task.target", "label"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"train: surnn train sequences --task.path {path} --task.target label"


def test_lines_leave_out_what_flags_changed():
    choices = choose(FACTS)
    config = with_choices(RunConfig(Sequences()), choices)
    assert any("--gate.rate 0.12" in line for line in choice_lines(choices, config))
    other = replace(config, gate=replace(config.gate, rate=0.7))
    assert not any("--gate.rate" in line for line in choice_lines(choices, other))
    gru = config.with_model("gru")
    assert not any("--gate." in line for line in choice_lines(choices, gru))


def test_redundancy_is_measured():
    random = np.random.default_rng(0)
    noise = random.normal(size=(400, 1))
    slow = np.repeat(random.normal(size=(40, 1)), 10, 0)
    assert correlation_time([noise]) == 1
    assert 4 <= correlation_time([slow]) <= 6  # half of a stretch of 10
    assert still_share([slow]) > 0.85
    assert still_share([noise]) < 0.2


@pytest.mark.parametrize("goal", ["classify", "forecast"])
def test_every_row_behind_advice_was_measured(tmp_path, goal):
    random = np.random.default_rng(0)
    for length in (20, 300, 1100):
        path = tmp_path / f"{length}.npz"
        np.savez(path, x=random.normal(size=(20, length, 1)).cumsum(1), y=np.arange(20) % 2)
        task = Sequences(path=str(path), goal=goal).complete()
        task.prepare(torch.device("cpu"))
        pieces = list(advise(task, measure=False))
        assert sum(bool(piece.rows) for piece in pieces) >= 3
        for name in (row for piece in pieces for row in piece.rows):
            assert (ROOT / "results" / "rows" / name).is_dir(), name


def test_the_command_measures_and_names_rows(tmp_path, capsys):
    x = np.random.default_rng(0).normal(size=(20, 10, 1))
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(20) % 2)
    assert main(["advise", str(tmp_path / "d.npz")]) == 0
    text = capsys.readouterr().out
    assert "--gate.kind rhythm" in text
    assert "measured: " in text
    assert "an optimizer step of 8 sequences takes" in " ".join(text.split())
    assert main(["advise", str(tmp_path / "d.npz"), "--no-speed", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["facts"]["median_length"] == 10
    assert main(["advise", str(tmp_path / "none.csv")]) == 2
