"""A run that begins with the weights of another: which ones, in whose options, and alone then."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

import surnn
from helpers.tiny_sets import article
from helpers.training import (
    CONFIG,
    finished_run,
    fit_until,
    record,
    resumed,
    same,
    trainer,
    weights,
)
from surnn.cli.main import main
from surnn.config import (
    AlwaysOpenConfig,
    InputGateConfig,
    ModelConfig,
    RhythmConfig,
    RunConfig,
    SSMGateConfig,
    TableConfig,
    TrainConfig,
)
from surnn.errors import RunError
from surnn.models import Output
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunFolder
from surnn.tasks.copying import Copying
from surnn.tasks.selective_copy import SelectiveCopy
from surnn.train.finetune import with_options_of


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A run whose best weights are not its last ones."""
    path = finished_run(tmp_path_factory.mktemp("runs") / "other")
    run = resumed(path, steps=4)
    with torch.no_grad():
        run.model.head.weight += 1
    run._saved = None
    run.save()
    run.close()
    return path


def test_it_begins_with_the_best_weights_and_nothing_else(other, tmp_path):
    run = trainer(tmp_path / "run", start=str(other), steps=1, seed=5)
    run.load_start_weights()
    best, _ = RunFolder(other).load("best")
    assert all(torch.equal(value, best[name]) for name, value in weights(run).items())
    assert not run.optimizer_step.optimizer.state
    assert (run.step, run.seconds, run.best) == (0, 0.0, None)
    said: list[str] = []
    run.reporter.message = said.append  # type: ignore[method-assign]
    run.fit()
    assert said == [f"starts with the weights of {other}, step 4"]
    by_itself = trainer(start=str(other), steps=1, seed=5)
    by_itself.fit()
    assert same(run, by_itself)
    assert RunFolder(tmp_path / "run").config()["train"]["start"] == str(other)


def test_weights_that_training_makes_worse_stay_the_best(other, tmp_path):
    run = trainer(tmp_path / "run", start=str(other), steps=3, learning_rate=10.0)
    run.fit()
    (first, *later) = [v for v in RunFolder(tmp_path / "run").metrics() if v["kind"] == "valid"]
    assert first["step"] == 0
    assert run.best == first["accuracy"] >= max(line["accuracy"] for line in later)
    best, state = RunFolder(tmp_path / "run").load("best")
    start, _ = RunFolder(other).load("best")
    assert state["step"] == 0
    assert all(torch.equal(value, start[name]) for name, value in best.items())


@pytest.mark.parametrize("gone_at", [1, 4])
def test_it_goes_on_without_that_run(other, tmp_path, gone_at):
    """Also before its first checkpoint is due, which is at update 3."""
    lent = shutil.copytree(other, tmp_path / "other")
    whole = trainer(tmp_path / "whole", start=str(lent))
    whole.fit()
    broken = trainer(tmp_path / "broken", start=str(lent))
    fit_until(broken, gone_at)
    shutil.rmtree(lent)
    again = resumed(tmp_path / "broken", start=str(lent))
    again.fit()
    assert same(whole, again)
    assert record(tmp_path / "broken") == record(tmp_path / "whole")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model": replace(CONFIG.model, width=32)},
            r"encoder.weight \(\[16, 9\] there, \[32, 9\] here\).* and \d+ more. Use its "
            "options, --model.width 16 instead of 32; or leave out train.start",
        ),
        (
            {"gate": InputGateConfig()},
            r"gate.*weight \(not there, .* here\).*--gate.kind rhythm instead of input",
        ),
        (
            {"task": SelectiveCopy(20, 2), "gate": RhythmConfig(horizon=30)},
            r"encoder.bias \(\[16\] there, not here\).*run reads Values\(features=9.*\), "
            r"and selective_copy has Tokens\(vocabulary=16\)",
        ),
        (
            {"task": Copying(delay=30)},
            "a clock for 30 time steps, .* 50: .*--gate.horizon 30",
        ),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_refused(other, change, message):
    with pytest.raises(ValueError, match=message):
        trainer(config=replace(CONFIG, **change), start=str(other)).load_start_weights()


class TwelveAnswers(Copying):
    """The same input, other answers."""

    @property
    def output(self) -> Output:
        return Output(12, "step")


def test_a_task_with_other_answers_gets_a_new_readout(other):
    config = replace(CONFIG, task=TwelveAnswers(**asdict(CONFIG.task)))
    run = trainer(config=config, start=str(other))
    before = {name: value.clone() for name, value in weights(run).items()}
    run.load_start_weights()
    best, _ = RunFolder(other).load("best")
    for name, value in weights(run).items():
        expected = before if name.startswith("head.") else best
        assert torch.equal(value, expected[name]), name
    assert run._notes[-1].endswith("; the readout is new, because this task has other answers")


def test_a_table_of_another_length_is_refused_by_its_horizon(tmp_path):
    short = replace(CONFIG, gate=TableConfig(horizon=5))
    run = trainer(tmp_path / "run", config=short, steps=1)
    run.fit()
    run.close()
    longer = replace(CONFIG, gate=TableConfig(horizon=7))
    with pytest.raises(ValueError, match=r"options, --gate.horizon 5 instead of 7; or"):
        trainer(config=longer, start=str(tmp_path / "run")).load_start_weights()


def test_a_clock_may_be_kept_or_changed_knowingly(other):
    longer = replace(CONFIG, task=Copying(delay=30))
    for horizon in (30, 50):
        gate = RhythmConfig(rate=0.3, horizon=horizon)
        trainer(config=replace(longer, gate=gate), start=str(other)).load_start_weights()


@pytest.mark.parametrize(
    ("model", "gate", "train"),
    [
        (ModelConfig("gru", half_state=True), RhythmConfig(), {"precision": "bfloat16"}),
        (ModelConfig(), RhythmConfig(target_rate=0.2, horizon=9), {"rate_penalty": 0.5}),
        (ModelConfig(), AlwaysOpenConfig(), {}),
        (ModelConfig(), SSMGateConfig(horizon=9), {}),
    ],
)
def test_options_come_with_those_that_they_need(tmp_path, model, gate, train):
    was = RunConfig(Copying(delay=30), model, gate, TrainConfig(steps=7, batch=2, **train))
    run = RunFolder.create(tmp_path / "run", config_to_dict(was)).path
    assert with_options_of(run, RunConfig(CONFIG.task)) == RunConfig(
        CONFIG.task, model, gate, TrainConfig(**train)
    )


def test_options_of_a_run_that_was_on_a_gpu(tmp_path):
    was = RunConfig(Copying(delay=30), ModelConfig(backend="triton"))
    run = RunFolder.create(tmp_path / "run", config_to_dict(was)).path
    found = with_options_of(run, RunConfig(CONFIG.task))
    assert (found.model.backend, found.gate.horizon) == ("auto", 50)


def test_runs_without_weights_are_refused(other, tmp_path):
    with pytest.raises(RunError, match=r"there is no folder .*nowhere"):
        trainer(start=str(tmp_path / "nowhere")).fit()
    run = shutil.copytree(other, tmp_path / "run")
    shutil.rmtree(run / "best")
    with pytest.raises(RunError, match=r"no best weights.*surnn resume .*run"):
        trainer(start=str(run)).load_start_weights()


# ---------------------------------------------------------------- the command

BRIEF = (
    "--train.steps", "2", "--train.batch", "2", "--train.warmup", "1", "--train.device", "cpu",
    "--train.evaluation-batches", "1",
)  # fmt: skip


@pytest.fixture
def language(tmp_path, monkeypatch, capsys):
    """Trains on a text: which, in which folder, with which options; what was said."""
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("one.txt").write_text(article(60))
    Path("two.txt").write_text(article(60).upper())  # its own encoding would differ

    def call(text: str, out: str, *more: str, wrong: bool = False) -> str:
        words = ["train", "text_file", "--task.path", f"{text}.txt", "--out", out, *BRIEF, *more]
        assert main(words) == (2 if wrong else 0)
        said = capsys.readouterr()
        return said.err if wrong else said.out

    return call


TINY = ("--task.context", "16", "--model.width", "16", "--model.block", "feedforward")
TOKENS = ("--task.tokens", "bpe", "--task.vocabulary", "280")
RATES = ("--gate.rate", "0.4", "--gate.target-rate", "0.4", "--train.rate-penalty", "0.1")


def test_options_and_tokens_are_those_of_the_run(language, capsys):
    pytest.importorskip("tokenizers")
    language("one", "first", *TINY, *TOKENS, *RATES)
    again = ("--task.context", "24", "--train.start", "first", "--model.dropout", "0.1")
    said = language("two", "second", *again)
    assert f"starts with the weights of {Path('first').absolute()}, step 2" in said
    was, now = (json.loads(Path(run, "config.json").read_text()) for run in ("first", "second"))
    assert now["model"] == was["model"] | {"dropout": 0.1}
    assert now["gate"] == was["gate"] | {"horizon": 16}
    assert now["train"]["rate_penalty"] == 0.1
    assert now["task"]["context"] == 24
    tokens = Path("first", "tokenizer.json").read_bytes()
    assert Path("second", "tokenizer.json").read_bytes() == tokens

    own = language("two", "third", "--train.start", "first", "--task.tokenizer", "", wrong=True)
    assert "other tokens than this run's: use --task.tokens bpe" in own
    assert "--task.vocabulary 280 --task.tokenizer" in own
    wide = language("two", "third", "--train.start", "first", "--model.width", "32", wrong=True)
    assert "--model.width 16 instead of 32" in wide
    Path("first", "tokenizer.json").unlink()
    told = language("two", "third", "--train.start", "first", wrong=True)
    assert "first/tokenizer.json is missing" in told
    assert not Path("third").exists()

    shutil.rmtree("first")
    surnn.load("second").task.prepare(torch.device("cpu"))  # figures need it so
    assert main(["eval", "second"]) == 0
    assert main(["resume", "second", "--train.steps", "3"]) == 0
    assert main(["eval", "second"]) == 0
    assert main(["generate", "second", "--tokens", "3"]) == 0
    capsys.readouterr()
    assert main(["resume", "second", "--train.start", "elsewhere"]) == 2
    assert "the run has its weights already" in capsys.readouterr().err


def test_bytes_stay_bytes(language):
    language("one", "first", *TINY, "--model.kind", "gru", "--task.streams")
    language("two", "second", "--train.start", "first")
    now = RunFolder(Path("second")).config()
    read = tuple(now["task"][name] for name in ("tokens", "context", "streams"))
    assert read == ("bytes", 16, True)
    assert now["model"]["kind"] == "gru"
    pytest.importorskip("tokenizers")
    told = language("two", "third", "--train.start", "first", *TOKENS, wrong=True)
    assert "run reads Tokens(vocabulary=256)" in told
    assert "text_file has Tokens(vocabulary=280)" in told
