"""The trainer on a GPU: it never waits for the device, and its CUDA graph is what it captured."""

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch

from helpers.training import record, resumed, trainer, weights
from surnn.config import GateKind, ModelConfig, RhythmConfig, RunConfig, TrainConfig, gate_config
from surnn.tasks.base import Batch
from surnn.tasks.copying import Copying
from surnn.tasks.listops import ListOps
from surnn.tasks.text_file import TextFile
from surnn.train.cuda_graphs import WARM_UP, GraphedStep
from surnn.train.prefetch import MAX_AHEAD, BatchPrefetcher
from surnn.train.trainer import NotFinite, Trainer

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node"),  # of the warm-up's side stream
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
    pytest.mark.filterwarnings("ignore:TensorFloat32"),  # inductor's advice, on its own default
]

CONFIG = RunConfig(
    Copying(delay=20),
    ModelConfig(width=64, heads=4, layers=3, max_rate=0.9),
    RhythmConfig(rate=0.2, target_rate=0.1),
    TrainConfig(
        steps=12, batch=32, warmup=6, log_every=2, evaluate_every=6, evaluation_batches=2,
        checkpoint_every=5, rate_penalty=0.1, device="cuda",
    ),
)  # fmt: skip


def options(parts: dict[str, Any] | None = None, **train) -> RunConfig:
    """The run with other options of training, and other parts."""
    return replace(CONFIG, train=replace(CONFIG.train, **train), **(parts or {}))


@pytest.mark.parametrize("kind", get_args(GateKind))
def test_a_run_is_captured_with_any_gate(tmp_path, kind):
    stack = ModelConfig(width=64, heads=4, layers=2, block="stack")
    parts: dict[str, Any] = {"gate": gate_config(kind), "model": stack}
    run = trainer(tmp_path, options(parts, cuda_graph=True, rate_penalty=0.0))
    run.fit()
    (shape,) = run.optimizer_step._run.shapes.values()
    assert shape.graph is not None


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"precision": "bfloat16"},
        {"accumulate": 2},
        {"weight_ema": 0.7},
        {"ragged": True},
        {"compile": True},
        {"ragged": True, "compile": True},
    ],
    ids=str,
)
def test_a_captured_run_is_the_run(tmp_path, changes):
    """Losses, gradient norms, learning rates and update rates, with evaluations in between."""
    train = {k: v for k, v in changes.items() if k != "ragged"}
    task = Copying(delay=20, variable="ragged" in changes)  # lengths vary, the shape does not
    parts: dict[str, Any] = {"task": task}
    if "accumulate" in changes:  # parts know no rate of the whole batch
        parts["gate"], train["rate_penalty"] = RhythmConfig(rate=0.2), 0.0
    for name, captured in (("eager", False), ("graph", True)):
        run = trainer(tmp_path / name, options(parts, cuda_graph=captured, **train))
        run.fit()
        assert isinstance(run.optimizer_step._run, GraphedStep) == captured
        if captured:
            (shape,) = run.optimizer_step._run.shapes.values()
            assert shape.graph is not None
            assert shape.runs == 12 > WARM_UP
    tolerance = 0.02 if "precision" in changes else 1e-4
    for found, expected in zip(record(tmp_path / "graph"), record(tmp_path / "eager"), strict=True):
        assert found.keys() == expected.keys()
        for key in found.keys() - {"kind", "update_rate_by_kind", "accuracy"}:
            assert found[key] == pytest.approx(expected[key], rel=tolerance), (key, found["step"])


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"convolution": 4},
        {"convolution": 12},
        {"attention_every": 1, "attention_heads": 2, "window": 9},
    ],
    ids=str,
)
def test_a_captured_run_carries_its_state(tmp_path, model):
    """Streams: states are in the same memory all the time, and begin anew with an epoch."""
    text = torch.randint(97, 105, (3000,), generator=torch.Generator().manual_seed(0))
    (tmp_path / "text").write_bytes(bytes(text.tolist()))
    parts = {
        "task": TextFile(context=32, streams=True, path=str(tmp_path / "text")),
        "model": replace(CONFIG.model, layers=1, block="feedforward", **model),
    }
    for name, captured in (("eager", False), ("graph", True)):
        trainer(tmp_path / name, options(parts, cuda_graph=captured, batch=16)).fit()
    losses = [
        [line["loss"] for line in record(tmp_path / name) if line["kind"] == "train"]
        for name in ("graph", "eager")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_captured_run_draws_anew_in_every_update(tmp_path):
    """Dropout and sampled gates, whose annealing is a number on the device."""
    parts = {
        "model": replace(CONFIG.model, dropout=0.5),
        "gate": RhythmConfig(rate=0.2, mode="sampled", target_rate=0.1),
    }
    config = options(parts, cuda_graph=True, anneal=(0.5, 0.8), learning_rate=1e-12)
    run = trainer(tmp_path / "run", config)
    batch = run.batches.take(0)
    run.model.train()
    losses = []
    for _ in range(WARM_UP + 3):
        run.optimizer_step(0, batch)
        losses.append(run.optimizer_step.read().loss)
    assert len(set(losses)) == len(losses)
    run.optimizer_step(12, batch)
    assert run.optimizer_step.noise.item() == 0


@pytest.mark.parametrize("captured", [False, True])
def test_an_update_does_not_wait_for_the_device(captured):
    run = Trainer(options(cuda_graph=captured, log_every=100, evaluate_every=100))
    run.model.train()
    for _ in range(WARM_UP + 2):  # the first is looked at; then a graph is captured
        run._train_step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            run._train_step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert run.optimizer_step.read().steps == WARM_UP + 5


@pytest.mark.parametrize("captured", [False, True])
def test_what_is_not_finite_never_reaches_the_weights(tmp_path, captured):
    parts = {"model": replace(CONFIG.model, norm="batch")}
    config = options(parts, cuda_graph=captured, log_every=100)
    run = trainer(tmp_path / "run", config)
    run.model.train()
    for _ in range(6):
        run._train_step()
    good = weights(run)
    bad = run.batches.take(6)
    run.optimizer_step(6, bad._replace(x=bad.x * float("nan")))
    run.step += 1
    for _ in range(2):  # good batches after it, and nobody has looked yet
        run._train_step()
    with pytest.raises(NotFinite, match="at update 6"):
        run.save()
    saved, state = run.folder.load("last")
    assert state["step"] == 6
    assert all(torch.equal(saved[k], v.cpu()) for k, v in good.items())
    again = resumed(tmp_path / "run", config)
    again.fit()
    assert again.step == 12


@pytest.mark.parametrize("compiled", [False, True])
def test_a_few_shapes_are_captured_one_by_one(tmp_path, compiled):
    """Expressions that grow: a graph for each length, and the run is what it is without."""
    task = ListOps(
        train=40, valid=8, test=8, shortest=250, longest=300, growing=10, one_length=True
    )
    parts: dict[str, Any] = {"task": task, "gate": RhythmConfig(rate=0.2)}
    losses = []
    for captured in (False, True):
        config = options(
            parts, cuda_graph=captured, compile=compiled, steps=15, batch=4, rate_penalty=0.0,
            evaluate_every=15,
        )  # fmt: skip
        run = trainer(tmp_path / str(captured), config)
        run.fit()
        lines = record(tmp_path / str(captured))
        losses.append([line["loss"] for line in lines if line["kind"] == "train"])
        if captured:
            shapes = run.optimizer_step._run.shapes.values()
            assert [shape.batch.x.shape[1] for shape in shapes] == [63, 250, 301]
            assert [shape.runs for shape in shapes] == [5, 5, 5]
            assert all(shape.graph is not None for shape in shapes)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-3, atol=1e-4)


def test_shapes_that_change_are_refused():
    lengths = []

    def work(batch: Batch) -> None:
        lengths.append(batch.x.shape[1])

    captured = GraphedStep(work)
    for length in (5, 6, 7, 8, 5):
        captured(Batch(torch.zeros(4, length, device="cuda"), torch.zeros(4, device="cuda")))
    with pytest.raises(
        ValueError, match=r"after 4 others this one is \[4, 9\].*--train\.cuda-graph"
    ):
        captured(Batch(torch.zeros(4, 9, device="cuda"), torch.zeros(4, device="cuda")))
    assert lengths == [5, 6, 7, 8, 5]


def test_batches_made_ahead_are_the_batches():
    device = torch.device("cuda", 0)
    made: list[int] = []

    def make(number: int) -> Batch:
        made.append(number)
        values = torch.full((4,), number).to(device)  # a copy that waits, as row numbers are
        return Batch(values, values + 1)

    ahead = BatchPrefetcher(make, device)
    for number in range(12):
        batch = ahead.take(number)
        ahead.prepare(number + 1)
        assert (batch.x == number).all()
        assert (batch.target == number + 1).all()
    assert made == list(range(13))
    assert len(ahead.taken) == MAX_AHEAD
    assert (ahead.take(99).x == 99).all()  # another than was expected
