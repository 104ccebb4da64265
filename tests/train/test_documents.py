"""Packed documents: a model restarts at each document's first token, in training and tests."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from helpers.tiny_sets import CPU
from helpers.training import trainer, weights
from surnn.config import ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.errors import ConfigError
from surnn.models.model import SequenceModel
from surnn.tasks.batching import get_data
from surnn.tasks.documents import document_starts
from surnn.tasks.text_file import TextFile
from surnn.train.evaluate import evaluate

MODELS = {
    "sugru": {"heads": 2},
    "convolved": {"heads": 2, "convolution": 4},
    "long convolution": {"heads": 2, "convolution": 12},
    "mingru": {"kind": "mingru"},
    "hybrid": {"heads": 2, "attention_every": 1, "attention_heads": 2, "window": 5},
    "transformer": {"kind": "transformer", "heads": 2, "window": 5},
}


@pytest.fixture
def text(tmp_path) -> str:
    """Documents of 5 to 25 letters that start with #."""
    draws = np.random.default_rng(0)
    sizes = draws.integers(5, 25, 60)
    documents = [bytes(draws.integers(97, 105, size).astype(np.uint8)) for size in sizes]
    path = tmp_path / "text"
    path.write_bytes(b"#" + b"#".join(documents))
    return str(path)


def task_of(path: str, **options) -> TextFile:
    return TextFile(context=16, path=path, documents="#", **options)


def model_of(task: TextFile, kind: str) -> SequenceModel:
    torch.manual_seed(0)
    options = {"kind": "sugru", **MODELS[kind]}
    model = ModelConfig(layers=2, width=16, block="feedforward", **options)
    return SequenceModel(model, RhythmConfig(rate=0.4), task.input, task.output, task.steps).eval()


@pytest.mark.parametrize("kind", MODELS)
def test_a_packed_text_is_its_documents(kind, text):
    """In one stream of windows: the loss is that of the documents, each read on its own."""
    task = task_of(text, streams=True)
    task.prepare(CPU)
    model = model_of(task, kind)
    found = evaluate(model, task, "test", 1, CPU)
    tokens, starts = (v["test"] for v in (get_data(task).texts, get_data(task).starts))
    first = [0, *starts.nonzero()[:, 0].tolist(), len(tokens) - 1]
    total = torch.zeros(())
    for begin, end in pairwise(first):
        if begin < end:
            logits = model(tokens[None, begin:end].long())[0]
            target = tokens[begin + 1 : end + 1].long()
            total += torch.nn.functional.cross_entropy(logits, target, reduction="sum")
    assert found["loss"] == pytest.approx(total.item() / (len(tokens) - 1), rel=1e-5)


def test_windows_mark_document_starts(text):
    task = task_of(text)
    task.prepare(CPU)
    batch = task.batch("train", 3, 4, 0, CPU)
    assert batch.reset is not None
    assert torch.equal(batch.reset, batch.x == ord("#"))
    whole = TextFile(context=16, path=text)
    whole.prepare(CPU)
    assert whole.batch("train", 3, 4, 0, CPU).reset is None


@pytest.mark.parametrize("streams", [False, True])
def test_training(text, streams, tmp_path):
    task = task_of(text, streams=streams)
    model = ModelConfig(layers=2, width=16, heads=2, block="feedforward", convolution=3)
    train = TrainConfig(steps=3, batch=4, warmup=1, evaluate_every=3, device="cpu")
    config = RunConfig(task, model, RhythmConfig(rate=0.4), train)
    run = trainer(tmp_path / "run", config)
    before = weights(run)
    run.fit()
    assert run.step == 3
    assert any((before[name] != value).any() for name, value in weights(run).items())
    run.close()


@pytest.mark.parametrize("kind", ["gru", "ssm"])
def test_models_that_cannot_start_anew_say_so(text, kind):
    task = task_of(text)
    task.prepare(CPU)
    model = ModelConfig(kind=kind, layers=1, width=16)
    built = SequenceModel(model, RhythmConfig(), task.input, task.output, task.steps)
    with pytest.raises(ConfigError, match="cannot restart inside a sequence"):
        evaluate(built, task, "test", 2, CPU)


def test_starts_of_tokens():
    values = [b"a", b"b#", b"#c", None, b"#"]
    tokens = np.array([0, 1, 0, 2, 3, 4, 0])  # a b# a #c (end) # a
    # The first # lies inside a token: its document starts with the next one.
    assert document_starts(tokens, values, "#").tolist() == [0, 0, 1, 1, 1, 0, 0]


def test_patterns_that_match_nothing_or_are_none(text):
    with pytest.raises(ValueError, match="not a regular expression"):
        TextFile(path=text, documents="(")
    with pytest.raises(ValueError, match="no document starts"):
        TextFile(path=text, context=16, documents="never").prepare(CPU)
