"""Language models whose state goes on from window to window."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

from helpers.tiny_sets import CPU
from helpers.training import record, resumed, same, train_steps, trainer
from surnn.config import ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.models.model import SequenceModel
from surnn.tasks.batching import get_data
from surnn.tasks.text_file import TextFile
from surnn.train.distributed import World
from surnn.train.evaluate import evaluate

MODELS = {
    "sugru": {"heads": 2},
    "sulstm": {"heads": 2},
    "convolved": {"heads": 2, "convolution": 4},
    "gru": {"kind": "gru"},
    "lstm": {"kind": "lstm"},
    "mingru": {"kind": "mingru"},
    "hybrid": {"heads": 2, "attention_every": 1, "attention_heads": 2, "window": 5},
    "transformer": {"kind": "transformer", "heads": 2, "window": 5},
}
TRAIN = TrainConfig(
    steps=9, batch=4, warmup=1, log_every=1, evaluate_every=3, checkpoint_every=2, device="cpu"
)


@pytest.fixture
def streams(tmp_path) -> TextFile:
    path = tmp_path / "text"
    path.write_bytes(bytes(np.random.default_rng(0).integers(97, 105, 700, dtype=np.uint8)))
    return TextFile(context=16, streams=True, path=str(path))


def config_of(task, kind: str = "sugru", **train) -> RunConfig:
    options = {"kind": kind if kind == "sulstm" else "sugru", **MODELS[kind]}
    model = ModelConfig(layers=2, width=16, block="feedforward", tied_embedding=True, **options)
    gate = RhythmConfig(rate=0.4) if model.kind.startswith("su") else RhythmConfig()
    return RunConfig(task, model, gate, replace(TRAIN, **train))


@pytest.mark.parametrize("kind", MODELS)
def test_a_stream_in_windows_is_the_stream(kind, streams):
    """Evaluated window by window with the state carried, and as one sequence: the same loss."""
    config = config_of(streams, kind)
    torch.manual_seed(0)
    model = SequenceModel(config.model, config.gate, streams.input, streams.output, streams.steps)
    model.eval()
    streams.prepare(CPU)
    text = get_data(streams).texts["test"].long()
    found = evaluate(model, streams, "test", 1, CPU)
    logits = model(text[None, :-1])[0]
    expected = torch.nn.functional.cross_entropy(logits, text[1:]).item()
    assert found["loss"] == pytest.approx(expected, rel=1e-5)
    windows = replace(streams, streams=False)
    windows.prepare(CPU)
    assert evaluate(model, windows, "test", 1, CPU)["loss"] != pytest.approx(expected, rel=1e-5)
    other = evaluate(model, streams, "test", 1, CPU, world=World(0, 1))
    assert other["loss"] == found["loss"]


@pytest.mark.parametrize("kind", MODELS)
def test_training_carries_the_state(kind, streams):
    run = trainer(config=config_of(streams, kind))
    windows = (len(get_data(streams).texts["train"]) - 1) // 4 // 16
    assert windows > 3
    train_steps(run, 2)
    for number in (2, windows):  # the latter is the next epoch's first: it begins from nothing
        batch = streams.batch("train", number, 4, 0, CPU)
        begun = run.optimizer_step.stream_states[0] if number == 2 else run.model.init_state(4)
        with torch.no_grad():
            _, expected = run.model(batch.x, None, begun)
        run.optimizer_step(1.0, batch)
        torch.testing.assert_close(
            flat(run.optimizer_step.stream_states[0]), flat(expected), rtol=1e-4, atol=1e-5
        )


def flat(state) -> torch.Tensor:
    tensors = [v for v in tree_leaves(state) if isinstance(v, torch.Tensor)]
    return torch.cat([v.flatten().double() for v in tensors])


def test_accumulated_streams_are_the_batch(streams):
    whole = trainer(config=config_of(streams, "gru"))
    parts = trainer(config=config_of(streams, "gru", accumulate=2))
    for run in (whole, parts):
        train_steps(run, 4)
    assert whole.optimizer_step.read().loss_sum == pytest.approx(
        parts.optimizer_step.read().loss_sum, rel=1e-5
    )


@pytest.mark.parametrize("kind", ["sugru", "hybrid"])
def test_resumed_streams_are_bit_for_bit_the_same(kind, streams, tmp_path):
    config = config_of(streams, kind)
    whole = trainer(tmp_path / "whole", config)
    whole.fit()
    first = trainer(tmp_path / "parts", config)
    first.folder.lock()
    train_steps(first, 5)
    first.save()
    first.close()
    second = resumed(tmp_path / "parts", config)
    assert all(
        v.any() for v in second.optimizer_step.stream_tensors() if v.numel() and v.dim() == 0
    )
    second.fit()
    assert same(whole, second)
    last = [line for line in record(tmp_path / "whole") if line["step"] == 9]
    assert [line for line in record(tmp_path / "parts") if line["step"] == 9] == last


def test_streams_of_another_batch_size_start_from_zero(streams, tmp_path):
    config = config_of(streams)
    first = trainer(tmp_path / "run", config)
    first.folder.lock()
    train_steps(first, 5)
    first.save()
    first.close()
    second = resumed(tmp_path / "run", config, batch=2)
    assert second._notes == ["stream states start from zero, at their places in the text"]
    assert not any(v.any() for v in second.optimizer_step.stream_tensors())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "transformer", "heads": 2}, "--model.window"),
        ({"kind": "s4d"}, "DiagonalSSM"),
        ({"kind": "sugru", "bidirectional": True}, "bidirectional"),
    ],
)
def test_models_without_a_stream_state_are_refused(options, message, streams):
    model = ModelConfig(layers=1, width=16, block="feedforward", **options)
    with pytest.raises(ValueError, match=message):
        trainer(config=RunConfig(streams, model, RhythmConfig(), TRAIN))
