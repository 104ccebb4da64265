"""The trainer learns, logs, and takes parts of a batch for what they weigh."""

import json
import sys
import types
from contextlib import nullcontext
from dataclasses import replace
from functools import partialmethod
from typing import ClassVar

import pytest
import torch

from helpers.tiny_sets import SMALL_TASKS
from helpers.training import (
    BRIEF,
    CONFIG,
    RAGGED,
    SMALL,
    TASK,
    resumed,
    same,
    train_steps,
    trainer,
    weights,
)
from surnn.cli.main import main
from surnn.config import AlwaysOpenConfig, InputGateConfig, ModelConfig, RhythmConfig, RunConfig
from surnn.errors import RunError
from surnn.models.model import SequenceModel
from surnn.runs.folder import RunFolder
from surnn.tasks import TASKS, load_task
from surnn.tasks.copying import Copying
from surnn.tasks.listops import ListOps
from surnn.train.evaluate import autocast, evaluate
from surnn.train.optimizer_step import compile_blocks
from surnn.train.trainer import NotFinite, Trainer


def test_it_learns():
    """Copying over a short gap, far above guessing."""
    config = RunConfig(
        Copying(delay=10), ModelConfig(width=64, heads=8, layers=1, block="stack"),
        RhythmConfig(rate=0.3),
        replace(BRIEF, steps=300, batch=32, learning_rate=2e-2, evaluate_every=300, log_every=50),
    )  # fmt: skip
    assert Trainer(config).fit()["accuracy"] > 0.35  # guessing: 0.125


def test_the_folder_is_the_record(tmp_path):
    trainer(tmp_path / "run").fit()
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert {"config.json", "environment.json", "metrics.jsonl", "last", "best"} <= names
    lines = RunFolder.open(tmp_path / "run").metrics()
    train = [m for m in lines if m["kind"] == "train"]
    assert [m["step"] for m in train] == list(range(1, 13))
    assert all(0 < m["gradient_norm"] < 100 for m in train)
    valid = [m for m in lines if m["kind"] == "valid"]
    assert [m["step"] for m in valid] == [4, 8, 12]
    assert valid[0]["sequences"] == 16
    times = [m["seconds"] for m in lines]
    assert times[0] > 0
    assert times == sorted(times)
    assert all(m["took"] > 0 for m in valid)
    assert set(valid[0]["update_rate_by_kind"][0]) == set(TASK.kinds)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["task"]["name"] == "copying"
    assert config["task"]["delay"] == 10


def test_a_folder_is_never_overwritten(tmp_path):
    trainer(tmp_path / "run")
    with pytest.raises(RunError, match="surnn resume"):
        trainer(tmp_path / "run")


# ---------------------------------------------------------------- parts of a batch


@pytest.mark.parametrize("name", TASKS)
def test_a_loss_is_the_weighted_mean_over_parts(name, data):
    task = load_task(name)(**SMALL_TASKS.get(name, {}))
    task.prepare(torch.device("cpu"), data)
    whole = task.batch("train", 0, 4, 0, torch.device("cpu"))
    if name == "enwik8":  # a short window, as at the end of the validation text
        whole.target[1, 2:] = -100
    steps = () if task.output.per == "sequence" else whole.x.shape[1:2]
    prediction = torch.randn(4, *steps, task.output.size)
    expected, total = task.loss(prediction, whole), 0.0
    for rows in (slice(0, 1), slice(1, 4)):
        part = type(whole)(*(v if v is None or not v.ndim else v[rows] for v in whole))
        total += task.loss(prediction[rows], part) * task.weight(part)
    torch.testing.assert_close(total / task.weight(whole), expected)


@pytest.mark.parametrize("task", [TASK, RAGGED], ids=["even", "ragged"])
def test_accumulated_parts_are_the_batch(task):
    model = replace(SMALL, dropout=0.0, block="stack")
    config = RunConfig(task, model, InputGateConfig(mode="hard"), BRIEF)
    whole, parts = trainer(config=config), trainer(config=config, accumulate=4)
    for run in (whole, parts):
        train_steps(run, 2)
    first, second = whole.optimizer_step.read(), parts.optimizer_step.read()
    assert first.loss_sum == pytest.approx(second.loss_sum, rel=1e-5)
    assert first.norm == pytest.approx(second.norm, rel=1e-4)
    assert first.rates == pytest.approx(second.rates, rel=1e-5)
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)


def test_a_rate_penalty_is_of_a_whole_batch():
    gate = RhythmConfig(rate=0.3, target_rate=0.1)
    train = replace(BRIEF, accumulate=4, rate_penalty=1.0)
    with pytest.raises(ValueError, match=r"rate_penalty .* train\.accumulate"):
        RunConfig(TASK, SMALL, gate, train)


def test_a_batch_that_cannot_be_divided():
    with pytest.raises(ValueError, match="use a multiple of 3"):
        trainer(accumulate=3)


# ---------------------------------------------------------------- compilation


@pytest.fixture
def graphs(monkeypatch):
    """All that is compiled, and not."""
    made = []

    def backend(graph, inputs):
        made.append(graph)
        return graph

    in_place = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", partialmethod(in_place, backend=backend))
    torch.compiler.reset()
    yield made
    torch.compiler.reset()


def test_blocks_that_are_alike_are_compiled_once_and_evaluations_not_at_all(graphs):
    model = replace(SMALL, layers=4, drop_path=0.5, dropout=0.0)
    run = trainer(config=replace(CONFIG, model=model), compile=True, evaluate_every=2)
    train_steps(run, 3)
    assert len(graphs) == 2  # the first block is never skipped, the others are alike
    assert run._evaluate()["accuracy"] >= 0
    run.close()
    run.model(torch.zeros(2, 33, 9))  # a plain model again
    assert len(graphs) == 2


@pytest.mark.parametrize(("few_shapes", "compiled"), [(True, 3), (False, 2)])
def test_a_few_shapes_are_compiled_one_by_one_and_many_for_all(graphs, few_shapes, compiled):
    model = SequenceModel(SMALL, RhythmConfig(rate=0.3), TASK.input, TASK.output, TASK.steps)
    compile_blocks(model, few_shapes)
    for steps in (20, 30, 40):
        model(torch.zeros(2, steps, 9))
    assert len(graphs) == compiled


def test_what_is_not_compiled_does_not_wait_for_the_compiler():
    assert isinstance(
        trainer().optimizer_step.eager(), nullcontext
    )  # dynamo takes seconds to import


def test_blocks_that_are_all_unlike_are_all_compiled(graphs):
    model = ModelConfig(widths=tuple(range(4, 48, 4)), heads=1, block="stack")
    train_steps(trainer(config=replace(CONFIG, model=model), compile=True), 1)
    assert len(graphs) == 11  # dynamo's own limit is 8


def test_a_compiled_update_is_the_same():
    model = replace(SMALL, layers=2, dropout=0.0)
    config = replace(CONFIG, model=model)
    torch.compiler.reset()
    runs = [trainer(config=config, compile=compile) for compile in (False, True)]
    for run in runs:
        train_steps(run, 2)
    for eager, compiled in zip(*(run.model.parameters() for run in runs), strict=True):
        torch.testing.assert_close(compiled, eager, rtol=1e-3, atol=1e-5)
    torch.compiler.reset()


# ---------------------------------------------------------------- evaluation


def test_an_evaluation_does_not_depend_on_its_batches():
    config = replace(CONFIG, task=RAGGED, model=replace(SMALL, bidirectional=True))
    run = trainer(config=config)
    with torch.no_grad():
        run.model.head.weight.mul_(20)  # steps have very different losses
    found = [
        evaluate(run.model, RAGGED, "valid", size, run.device, batches=21 // size)
        for size in (1, 3, 21)
    ]
    assert {f["sequences"] for f in found} == {21}
    for name in ("accuracy", "loss"):
        assert [f[name] for f in found[1:]] == pytest.approx([found[0][name]] * 2, rel=1e-5)
    for few, more, most in zip(*(f["update_rate_by_kind"] for f in found), strict=True):
        assert few == pytest.approx(most)
        assert more == pytest.approx(most)


def test_rates_are_of_all_layers_and_both_directions():
    """Gates by hand: open on data tokens only, forwards; and, backwards, on the first steps."""
    model = ModelConfig(width=16, heads=2, layers=2, block="stack", bidirectional=True)
    run = trainer(config=RunConfig(RAGGED, model, AlwaysOpenConfig(), BRIEF))
    (stack,) = run.model.selective_layers()
    assert len(stack.gates) == 4

    def opened(steps: int):
        return lambda t, *_: (t.unsqueeze(-1) <= steps).float() - 0.5

    for gate, steps in zip(stack.gates, (10, 11, 0, 100), strict=True):
        gate.preactivation = lambda t, x, memory, s=steps: (opened(s)(t), memory)
    found = evaluate(run.model, RAGGED, "valid", 100, run.device, batches=1)
    lengths = run.task.batch("valid", 0, 100, 0, run.device).lengths
    expected = (10 + 11) * 100 / (2 * lengths.sum().item())
    assert found["update_rate"] == pytest.approx([expected, 0.5])
    first, second = found["update_rate_by_kind"]
    # Forwards the ten data tokens; backwards the last eleven steps, signal and answer.
    assert first == pytest.approx({"data": 0.5, "delay": 0.0, "answer": 0.5})
    assert second == pytest.approx(dict.fromkeys(TASK.kinds, 0.5))
    train_steps(run, 1)
    assert run.optimizer_step.read().rates == pytest.approx(found["update_rate"], abs=0.1)


def test_an_evaluation_can_be_ended_early():
    run = trainer()
    asked = iter([True, False])
    found = evaluate(run.model, TASK, "valid", 10, run.device, may_continue=lambda: next(asked))
    assert found["sequences"] == 20


def test_a_metric_that_is_no_number_is_never_the_best():
    run = trainer()
    assert not run._is_better(float("nan"))
    run.best = 0.5
    assert [run._is_better(v) for v in (float("nan"), float("inf"), 0.6, 0.4)] == [
        False, False, True, False,
    ]  # fmt: skip


# ---------------------------------------------------------------- what is not finite


@pytest.mark.parametrize("log_every", [1, 100])
def test_nan_stops_with_the_step_and_keeps_the_good_state(tmp_path, log_every, monkeypatch):
    config = replace(CONFIG, model=replace(SMALL, norm="batch"))
    good = trainer(config=config)
    train_steps(good, 5)
    run = trainer(tmp_path / "run", config, log_every=log_every)
    train_steps(run, 2)
    original = Copying.loss

    def bad_after_five(*arguments):
        return original(*arguments) * (float("nan") if run.step == 5 else 1.0)

    monkeypatch.setattr(Copying, "loss", bad_after_five)
    with pytest.raises(NotFinite, match=r"loss nan.* at step 5.*surnn resume .*learning-rate 0.0"):
        run.fit()
    saved, state = RunFolder.open(tmp_path / "run").load("last")
    assert state["step"] == 5
    assert saved.keys() == weights(good).keys()
    assert all(torch.equal(saved[k], v) for k, v in weights(good).items())
    for name, parameter in good.model.named_parameters():
        for key, value in good.optimizer_step.optimizer.state[parameter].items():
            assert torch.equal(state["optimizer"]["state"][name][key], value)
    monkeypatch.undo()
    again = resumed(tmp_path / "run", config, learning_rate=1e-3)
    again.fit()
    assert again.step == 12


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_never_reaches_the_weights(value, monkeypatch):
    """As on a GPU, where nobody looks before the next line of the log."""
    run = trainer(config=replace(CONFIG, model=replace(SMALL, norm="batch")))
    train_steps(run, 2)
    good = weights(run)
    original, calls = Copying.loss, 0

    def bad_once(*arguments):
        nonlocal calls
        calls += 1
        return original(*arguments) + (value if calls == 1 else 0.0)

    monkeypatch.setattr(Copying, "loss", bad_once)
    for number in (2, 3, 4):
        run.optimizer_step(number, run.batches.take(number))
    reading = run.optimizer_step.read()
    assert (reading.steps, reading.failed) == (2, True)
    assert str(reading.loss) == str(value)
    assert all(torch.equal(v, good[k]) for k, v in weights(run).items())


# ---------------------------------------------------------------- TensorBoard


class Board:
    """As TensorBoard's writer is called."""

    made: ClassVar[list["Board"]] = []

    def __init__(self, folder: str, purge_step: int) -> None:
        self.purge_step = purge_step
        self.scalars: dict[tuple[str, int], float] = {}
        self.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars[name, step] = value

    def close(self) -> None:
        """Nothing is open."""


def test_tensorboard_is_told_of_every_layer_and_of_what_is_made_again(tmp_path, monkeypatch):
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Board  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    config = replace(CONFIG, model=replace(SMALL, layers=2))
    run = trainer(tmp_path / "run", config, tensorboard=True)
    train_steps(run, 3)
    run.save()
    again = resumed(tmp_path / "run", config, tensorboard=True, steps=4)
    again.fit()
    (board,) = Board.made
    assert board.purge_step == 4
    line = run.folder.metrics()[-1]
    assert board.scalars["valid/update_rate/layer2", 4] == line["update_rate"][1]
    by_kind = line["update_rate_by_kind"][0]
    assert board.scalars["valid/update_rate_by_kind/layer1/delay", 4] == by_kind["delay"]
    assert ("train/update_rate/layer1", 4) in board.scalars
    assert ("train/loss", 4) in board.scalars


def test_tensorboard_that_is_not_there_is_noticed_first(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    out = ["--out", str(tmp_path / "run"), "--train.device", "cpu"]
    assert main(["train", "copying", "--train.tensorboard", *out]) == 2
    assert "pip install 'surnn[log]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------- options


def test_gates_have_a_group_of_their_own():
    run = trainer(gate_learning_rate=0.5, weight_decay=0.1)
    gates = {id(p) for p in run.model.gate_parameters()}
    for group in run.optimizer_step.optimizer.param_groups:
        own = {id(p) for p in group["params"]} <= gates
        assert (group["full"] == 0.5) == own
        matrices = all(p.dim() > 1 for p in group["params"])
        assert (group["weight_decay"] > 0) == (matrices and not own)


def test_a_state_space_models_dynamics_do_not_decay():
    model = replace(SMALL, kind="s4d", heads=None)
    run = trainer(config=RunConfig(TASK, model, train=BRIEF), weight_decay=0.1)
    names = {id(p): n for n, p in run.model.named_parameters()}
    groups = run.optimizer_step.optimizer.param_groups
    decayed = [names[id(p)] for g in groups if g["weight_decay"] for p in g["params"]]
    assert not any("frequency" in n or "log_decay" in n for n in decayed)
    assert any("out.weight" in n for n in decayed)


def test_rate_target_holds_rates_down():
    def rate(penalty: float) -> float:
        gate = RhythmConfig(rate=0.5, target_rate=0.1)
        train = replace(BRIEF, rate_penalty=penalty, steps=60, learning_rate=2e-2)
        run = Trainer(RunConfig(TASK, SMALL, gate, replace(train, evaluate_every=60)))
        return run.fit()["update_rate"][0]

    assert rate(10.0) < rate(1e-9) - 0.1


def test_half_precision_is_for_gpus():
    with autocast(torch.device("cpu"), "bfloat16"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    runs = []
    for precision in ("bfloat16", "float32"):
        runs.append(trainer(precision=precision))
        train_steps(runs[-1], 2)
    assert same(*runs)


def test_a_cuda_graph_without_a_gpu_is_refused():
    with pytest.raises(ValueError, match="needs a GPU"):
        trainer(cuda_graph=True)


@pytest.mark.parametrize(("one_length", "told"), [(False, "--task.one-length"), (True, "a GPU")])
def test_a_graph_needs_batches_of_one_length(tmp_path, monkeypatch, one_length, told):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    task = ListOps(train=8, valid=8, test=8, one_length=one_length)
    with pytest.raises(ValueError, match=told):
        trainer(config=replace(CONFIG, task=task), cuda_graph=True)
