"""The command line from end to end, on tiny runs."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from helpers.commands import SIZES, config_of
from surnn.cli.main import main
from surnn.config import EveryNConfig, SSMGateConfig
from surnn.models.model import SequenceModel
from surnn.runs.folder import RunFolder
from surnn.train.flags import expand_abbreviations, value_of, with_kinds
from surnn_recipes import RECIPES

HEADS = ["--model.heads", "2"]


def train(path, *more: str) -> int:
    return main(["train", "copying", *SIZES, "--out", str(path), *more])


@pytest.fixture
def run(tmp_path, capsys):
    """A trained model."""
    assert train(tmp_path / "run", *HEADS) == 0
    capsys.readouterr()
    return tmp_path / "run"


# ---------------------------------------------------------------------------- training


def test_train_tells_what_it_did(tmp_path, capsys):
    assert train(tmp_path / "run") == 0
    out = capsys.readouterr().out
    assert "copying: fresh sequences of 25 time steps, sugru" in out
    assert "step 4/4  loss " in out
    assert "update rate " in out
    assert "valid accuracy" in out
    assert f"surnn eval {tmp_path / 'run'} --split test" in out


@pytest.mark.parametrize(("warmup", "few"), [("100", True), ("0", False)])
def test_train_says_when_there_was_no_time_to_learn(tmp_path, capsys, warmup, few):
    assert train(tmp_path / "run", "--train.minutes", "0.0001", "--train.warmup", warmup) == 0
    told = capsys.readouterr().out
    assert "0.0001 minutes are over" in told
    assert ("fitted into the time, and the learning rate rises over 100" in told) == few


GROWING = ["--task.images", "50", "--task.paddles", "5", "--task.growing", "6"]
LADDER = ["--task.ladder", "2", "4"]


@pytest.mark.parametrize(("steps", "easy"), [("6", True), ("7", False)])
def test_train_says_when_only_easier_things_are_trained(tmp_path, capsys, monkeypatch, steps, easy):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    sizes = [*SIZES[2:], "--train.steps", steps, "--train.warmup", "0"]
    words = ["train", "pathfinder", *sizes, *GROWING, *LADDER, "--out", str(tmp_path / "run")]
    assert main(words) == 0
    assert ("the first 6 steps train on an easier task" in capsys.readouterr().out) == easy
    assert config_of(tmp_path / "run")["task"]["ladder"] == [2, 4]
    # What only training has is nothing to those who test: shorter lines than its ladder's too.
    for path in tmp_path.glob("*-of-[24].npz"):
        path.unlink()
    assert main(["eval", str(tmp_path / "run"), "--task.paddles", "3"]) == 0
    assert "task.growing" not in capsys.readouterr().out
    assert not [*tmp_path.glob("*-of-[24].npz")]


def test_train_says_when_there_was_time_for_easier_things_only(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    sizes = [*SIZES[2:], "--train.minutes", "0.0001", "--train.warmup", "0"]
    words = ["train", "pathfinder", *sizes, *GROWING, *LADDER, "--out", str(tmp_path / "run")]
    assert main(words) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "fitted into the time, and the first 6 train on an easier task" in told


@pytest.mark.parametrize("kind", ["gru", "transformer", "mingru"])
def test_a_baseline_trains_in_the_same_way(tmp_path, kind):
    block = ["--model.block", "residual"] if kind == "transformer" else []
    assert train(tmp_path / "run", "--model.kind", kind, *block) == 0


def test_what_fails_before_training_leaves_no_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    monkeypatch.delenv("SURNN_DATA", raising=False)
    out = tmp_path / "run"
    arguments = ["train", "psmnist", "--data", str(tmp_path), "--out", str(out)]
    assert main(arguments) == 2
    assert "surnn data get mnist" in capsys.readouterr().err
    assert not out.exists()


def test_a_batch_that_cannot_be_made_leaves_no_folder(tmp_path, capsys):
    (tmp_path / "text").write_text("a few words " * 20)
    sizes = ["--task.context", "16", "--train.batch", "500", "--train.device", "cpu"]
    out = ["--task.path", str(tmp_path / "text"), "--out", str(tmp_path / "run")]
    assert main(["train", "text_file", *sizes, *out]) == 2
    assert "a batch of 500 is more than the 13 training sequences" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_overwritten(run, capsys):
    assert train(run) == 2
    assert "surnn resume" in capsys.readouterr().err


def test_info_shows_the_installation(capsys):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert f"torch              {torch.__version__.split('+')[0]}" in out
    assert "backend events     yes" in out
    assert "backend native     yes" in out


# ---------------------------------------------------------------------------- going on


def test_resume_takes_other_options_of_training_and_records_them(run, capsys):
    more = ["--train.steps", "6", "--train.lr=1e-4"]
    assert main(["resume", str(run), *more]) == 0
    assert "step 6/6" in capsys.readouterr().out
    assert config_of(run)["train"]["steps"] == 6
    lines = [json.loads(line) for line in (run / "resumed.jsonl").read_text().splitlines()]
    assert {"train.steps": [4, 6], "train.learning_rate": [2e-3, 1e-4]} in [
        line.get("changes") for line in lines
    ]
    last = [m for m in RunFolder(run).metrics() if m["kind"] == "train"][-1]
    assert last["step"] == 6
    assert last["learning_rate"] <= 1e-4


def test_a_finished_run_is_left_alone_and_says_how_to_go_on(run, capsys):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert main(["resume", str(run), "--train.steps", "4"]) == 0
    told = capsys.readouterr().out.splitlines()
    best = RunFolder(run).metrics()[-1]["accuracy"]
    assert told == [
        f"finished at step 4, all steps are done; validation: best accuracy {best:.4g} "
        "(step 4). Nothing was changed",
        f"test:    surnn eval {run} --split test",
        f"resume:  surnn resume {run} --train.steps 8",
    ]
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_run_does_not_go_back(run, capsys):
    assert main(["resume", str(run), "--train.steps", "3"]) == 2
    message = "already at step 4, past --train.steps 3; use more"
    assert message in capsys.readouterr().err
    assert config_of(run)["train"]["steps"] == 4


def test_a_finished_run_may_go_on_from_before(tmp_path, capsys):
    assert train(tmp_path / "run", "--train.checkpoint-every", "2") == 0
    assert main(["resume", str(tmp_path / "run"), "--checkpoint", "previous"]) == 0
    assert "step 4/4" in capsys.readouterr().out
    lines = (tmp_path / "run" / "resumed.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["step"] == 2


# ---------------------------------------------------------------------------- evaluating


def evaluated(run, capsys, *more: str) -> dict:
    assert main(["eval", str(run), "--batch", "500", "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)


def test_eval_takes_other_options_of_the_task(run, capsys):
    plain = evaluated(run, capsys, "--split", "test")
    assert (plain["step"], plain["split"]) == (4, "test")
    assert 0 <= plain["accuracy"] <= 1
    noisy = evaluated(run, capsys, "--split", "test", "--task.noise", "uniform")
    assert noisy["task.noise"] == "uniform"
    assert noisy["loss"] != plain["loss"]
    assert evaluated(run, capsys, "--task.delay=30")["task.delay"] == 30
    lines = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    assert [line["overrides"] for line in lines] == [
        {}, {"task.noise": "uniform"}, {"task.delay": 30},
    ]  # fmt: skip
    assert (lines[0]["split"], lines[0]["checkpoint"], lines[0]["step"]) == ("test", "best", 4)
    assert lines[0]["metrics"]["loss"] == plain["loss"]
    assert lines[0]["time"].startswith("20")


def test_a_longer_task_keeps_the_clock_that_was_trained(run, capsys, monkeypatch):
    horizons = []
    build = SequenceModel.__init__

    def watched(self, *arguments):
        build(self, *arguments)
        horizons.append(self.selective_layers()[0].gates[0].horizon)

    monkeypatch.setattr(SequenceModel, "__init__", watched)
    evaluated(run, capsys, "--task.delay", "30")
    assert horizons == [25]


def test_eval_is_readable(run, capsys):
    assert main(["eval", str(run), "--batch", "500", "--task.noise", "symbols"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "copying, task.noise symbols: valid, best weights (step 4)"
    assert any(line.split()[0] == "accuracy" and "(chance 0.125)" in line for line in lines)
    assert any("layer 1 update rate" in line and "delay" in line for line in lines)


def test_eval_before_there_is_a_best(run, capsys):
    shutil.rmtree(run / "best")
    assert main(["eval", str(run)]) == 2
    message = "no checkpoint 'best'; no validation has finished yet; use --checkpoint last"
    assert message in capsys.readouterr().err
    assert main(["eval", str(run), "--checkpoint", "last", "--batch", "0"]) == 2
    assert "--batch is 0; expected 1 or more" in capsys.readouterr().err


def test_a_task_of_other_shapes_is_refused(tmp_path, capsys):
    sizes = ["--task.length", "120", "--task.series", "4", *SIZES[2:], "--train.batch", "1"]
    out = ["--out", str(tmp_path / "run")]
    assert main(["train", "mackey_glass", *sizes, *out]) == 0
    assert main(["eval", str(tmp_path / "run"), "--task.control", "shift"]) == 0
    assert main(["eval", str(tmp_path / "run"), "--task.horizons", "10", "20"]) == 2
    message = capsys.readouterr().err
    assert "task.horizons (10, 20)" in message
    assert "has Output(size=2, " in message
    assert "trained for Output(size=1, " in message


@pytest.mark.parametrize(
    ("command", "group", "told"),
    [
        ("eval", "task", "--task.delay INT"),
        ("resume", "train", "--train.steps INT Optimizer steps in all. (default: 4)"),
    ],
)
def test_help_knows_the_runs_options(command, group, told, run, capsys):
    for words, listed in (([], False), ([str(run)], True)):
        with pytest.raises(SystemExit) as ended:
            main([command, *words, "--help"])
        assert ended.value.code == 0
        text = " ".join(capsys.readouterr().out.replace("│", "").split())
        assert "--checkpoint" in text
        assert (told in text) == listed
        assert (f"surnn {command} RUN --help lists every --{group}. option" in text) != listed
    assert main([command, "nowhere", "--help"]) == 2
    assert "there is no folder nowhere" in capsys.readouterr().err


# ---------------------------------------------------------------------------- recipes


def test_another_kind_drops_the_defaults_it_has_no_use_for():
    config = RECIPES["selective-copy-input"]()
    other = with_kinds(config, ["--gate.kind", "every_n"])
    assert other.gate == EveryNConfig()
    assert (other.train.anneal, other.train.rate_penalty) == (None, 0.0)
    other = with_kinds(config, ["--gate.kind=ssm"])
    assert other.gate == SSMGateConfig(rate=0.3, target_rate=0.02)
    assert other.train == config.train
    assert with_kinds(config, ["--model.kind", "gru"]) == config.with_model("gru")
    roomy = replace(config, model=replace(config.model, max_rate=0.5))
    assert with_kinds(roomy, ["--gate.kind", "open"]).model.max_rate is None


# ---------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "there is no command 'trian'; did you mean 'train'?"),
        (["train"], "which task?"),
        (["train", "--task.delay", "5"], "no task '5'; see surnn list tasks; it comes before all"),
        (["train", "--task.delay=5"], "which task?"),
        (["train", "copyin"], "did you mean 'copying'?"),
        (["train", "chess"], "see surnn list tasks"),
        (["train", "copying", "--gate.kind", "rythm"], "did you mean 'rhythm'?"),
        (["train", "copying", "--model.kind", "gru", "--gate.kind", "input"], "gru has no gates"),
        (["train", "copying", "--model.kind=su-gru"], "did you mean 'sugru'?"),
        (["train", "copying", "--model.kind", "gru", "--gate.rate", "0.2"], "no use for gate.rate"),
        (["train", "copying", "--gate.target-rate", "0.1"], "train.rate_penalty: set both"),
        (
            ["train", "copying", "--gate.n", "3"],
            "'rhythm' has no option 'n'; gates with that option: every_n",
        ),
        (["train", "copying", "--gate.kind=open", "--gate.no-frozen"], "'open' has no option 'fro"),
        (["train", "copying", "--gate.rat=0.1"], "did you mean 'rate'"),
        (["train", "copying", "--model.kind", "gru", "--gate.kind", "rhythm"], "gru has no gates"),
        (["train", "copying", "--model.open-layers", "1"], "renamed to --model.ungated-layers"),
        (["reproduce", "psmnist", "--train.average=0.9"], "renamed to --train.weight-ema"),
        (["eval", "nowhere"], "there is no folder nowhere; surnn train"),
        (["eval", "nowhere", "--spilt", "test"], "did you mean '--split'?"),
        (["resume", "."], "is not a run"),
        (["resume", "nowhere", "--steps", "5"], "begin it with --train."),
        (["reproduce"], "see surnn list recipes"),
        (["reproduce", "psmist"], "did you mean 'psmnist'?"),
        (["reproduce", "psmnist", "--budget", "..s"], "is not a time"),
        (["reproduce", "psmnist", "--budget", "0.0min"], "'0.0min' is not a time"),
        (["list", "recipe"], "did you mean 'recipes'?"),
        (["list", "recipes", "psmnis-gru"], "did you mean 'psmnist-gru'?"),
        (["list", "gates", "a", "b"], "'b' is one argument too many"),
        (["info", "--xyz"], "there is no option --xyz; see --help"),
        (["train", "copying", "--train.batch", "3", "--train.accumulate", "2"], "a multiple of 2"),
    ],
    ids=str,
)
def test_errors_say_how_to_mend(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--task.delya", "3"], "--task.delay"),
        (["--train.log-every", "0"], "log_every must be at least 1"),
        (["--model.kind", "gru", "--model.heads", "2"], "gru has no use for it"),
        (["--gate.kind", "every_n", "--gate.n", "x"], "--gate.n"),
    ],
    ids=str,
)
def test_flags_are_checked(flags, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["train", "copying", *flags])
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", "").split())


def test_values_before_they_are_parsed():
    assert value_of(["--a", "1", "--b=2", "--a", "3"], "--a") == "3"
    assert value_of(["--a", "1", "--b=2"], "--b") == "2"
    assert value_of(["--abc", "1"], "--a") is None
    assert expand_abbreviations(["--train.lr=1", "--train.lrx"]) == [
        "--train.learning-rate=1",
        "--train.lrx",
    ]
