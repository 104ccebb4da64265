"""Tasks on stored data: what all of them promise, and the real sets where they are."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.tiny_sets import (
    CPU,
    REAL,
    ready,
    same,
)
from surnn.data import DataError, images
from surnn.tasks import TASKS, load_task
from surnn.tasks.article_pairs import ArticlePairs
from surnn.tasks.base import Tokens
from surnn.tasks.batching import row_numbers
from surnn.tasks.cifar import SequentialCifar
from surnn.tasks.ecg import EcgBeats
from surnn.tasks.enwik8 import Enwik8
from surnn.tasks.mnist import PermutedMnist, SequentialMnist
from surnn.tasks.retrieval import LraRetrieval
from surnn.tasks.spoken_digits import SpokenDigits
from surnn.tasks.text import LraText

# ------------------------------------------------------------ what all tasks promise


def test_the_names_are_registered():
    for name in REAL:
        assert name in TASKS
        assert load_task(name).name == name


@pytest.mark.parametrize("name", REAL)
def test_batches_keep_the_contract(data, name):
    task, size = ready(name, data), 4
    features = () if isinstance(task.input, Tokens) else (task.input.features,)
    for split in ("train", "valid", "test"):
        count = task.size(split)
        number = 0 if split == "train" else (count - 1) // size  # the last, maybe smaller
        batch = task.batch(split, number, size, 3, CPU)
        rows = size if split == "train" else count - number * size
        steps = batch.x.shape[2 if task.output.pairs else 1]
        lead = (rows, 2) if task.output.pairs else (rows,)
        assert batch.x.shape == (*lead, steps, *features)
        assert 0 < steps <= task.steps
        assert batch.target.shape == ((rows,) if task.output.per == "sequence" else (rows, steps))
        if batch.lengths is not None:
            assert batch.lengths.shape == lead
            assert 1 <= batch.lengths.min() <= batch.lengths.max() <= steps
        if task.kinds:
            assert batch.kinds.shape == (rows, steps)
            assert set(batch.kinds.unique().tolist()) <= set(range(len(task.kinds)))
        assert same(batch, task.batch(split, number, size, 3, CPU))
        prediction = torch.randn(*batch.target.shape, task.output.size, requires_grad=True)
        task.loss(prediction, batch).backward()
        assert prediction.grad.isfinite().all()
        assert math.isfinite(task.score(prediction, batch).value)
    with pytest.raises(IndexError, match="there is no batch"):
        task.batch("test", task.size("test"), 1, 0, CPU)


@pytest.mark.parametrize("name", REAL)
def test_training_is_shuffled_by_seed_and_epoch(data, name):
    task = ready(name, data)
    epoch = task.size("train") // 4
    first = task.batch("train", 0, 4, 0, CPU)
    assert not same(first, task.batch("train", 0, 4, 1, CPU))
    assert not same(first, task.batch("train", epoch, 4, 0, CPU))


@pytest.mark.parametrize("name", REAL)
def test_unprepared_tasks_say_so(name):
    with pytest.raises(RuntimeError, match=r"call prepare\(device\)"):
        load_task(name)().batch("train", 0, 2, 0, CPU)


@pytest.mark.parametrize("name", REAL)
def test_evaluation_does_not_depend_on_batch_size(data, name):
    task = ready(name, data)
    whole = task.batch("test", 0, 4, 0, CPU)
    half = task.batch("test", 1, 2, 5, CPU)
    width = half.x.shape[2 if task.output.pairs else 1]
    cut = whole.x[2:4, :, :width] if task.output.pairs else whole.x[2:4, :width]
    torch.testing.assert_close(cut, half.x)  # a transform's last bit may depend on the shape


def test_the_first_batches_are_a_fair_sample():
    """Reviews are sorted by class, clips by digit, windows by patient."""
    batches = [row_numbers("test", 1000, number, 100, 0) for number in range(10)]
    assert torch.equal(torch.cat(batches).sort().values, torch.arange(1000))
    for rows in batches:
        assert (rows // 100).bincount(minlength=10).min() > 0
        assert abs(rows.float().mean() - 500) < 100


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", REAL)
def test_a_gpu_has_the_same_sequences(data, name):
    here, there = ready(name, data), ready(name, data)
    gpu = torch.device("cuda")
    there.prepare(gpu, data)
    for split in ("valid", "test"):
        found = there.batch(split, 0, 2, 0, gpu)
        assert all(part is None or part.is_cuda for part in found)
        expected = here.batch(split, 0, 2, 0, CPU)
        torch.testing.assert_close(found.x.cpu(), expected.x, rtol=1e-3, atol=1e-3)
        assert torch.equal(found.target.cpu(), expected.target)
    batch = there.batch("train", 1, 2, 0, gpu)
    assert same(batch, there.batch("train", 1, 2, 0, gpu))
    prediction = torch.randn(*batch.target.shape, there.output.size, device=gpu)
    assert there.loss(prediction, batch).isfinite()
    assert there.score(prediction, batch).count > 0


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("smnist", "train-images-idx3-ubyte.gz"),
        ("smnist", "t10k-labels-idx1-ubyte.gz"),
        ("scifar", "cifar-10-python.tar.gz"),
        ("lra_text", "aclImdb_v1.tar.gz"),
        ("lra_retrieval", "new_aan_pairs.eval.tsv"),
        ("ecg_beats", "mit-bih-arrhythmia-database-1.0.0.zip"),
        ("spoken_digits", "recordings/7_ann_5.wav"),
        ("spoken_digits", "_background_noise_/pink_noise.wav"),
        ("enwik8", "enwik8.zip"),
    ],
)
@pytest.mark.parametrize("kept", [0.6, 0.0])
def test_files_that_are_cut_off_are_named(data, name, file, kept):
    path = data / file
    raw = path.read_bytes()
    end = int(kept * len(raw))
    if name == "lra_retrieval" and end:  # a text may end anywhere, but lines have columns
        end = raw.rindex(b"\t", 0, end)
    path.write_bytes(raw[:end])
    with pytest.raises(DataError, match=path.name):
        ready(name, data)


@pytest.mark.parametrize(
    ("task", "option"),
    [
        (PermutedMnist, {"permutation": "odd"}),
        (SequentialMnist, {"augment": "crop_flip"}),
        (SequentialCifar, {"augment": "odd"}),
        (LraText, {"vocabulary": "odd"}),
        (LraText, {"max_length": 0}),
        (LraRetrieval, {"max_length": 0}),
        (ArticlePairs, {"length": 0}),
        (SpokenDigits, {"background": "odd"}),
        (SpokenDigits, {"seconds": 0.001}),
        (EcgBeats, {"window": 0}),
        (Enwik8, {"context": 0}),
    ],
)
def test_wrong_options_are_refused(task, option):
    with pytest.raises(ValueError, match="expected"):
        task(**option)


# ------------------------------------------------------------ the real sets, where they are

FOLDER = os.environ.get("SURNN_TEST_DATA")
SIZES = {
    "smnist": (54_000, 6_000, 10_000),
    "psmnist": (54_000, 6_000, 10_000),
    "scifar": (45_000, 5_000, 10_000),
    "lra_image": (45_000, 5_000, 10_000),
    "lra_text": (22_500, 2_500, 25_000),
    "ecg_beats": (2_686, 632, 3_476),
    "spoken_digits": (2_400, 300, 300),
    "enwik8": (87_890, 4_883, 4_883),
    "wikitext2_words": (16_317, 1_701, 1_919),
    "article_pairs": (2_852, 1_424, 2_848),
}


@pytest.mark.skipif(not FOLDER, reason="SURNN_TEST_DATA does not name a folder with the real sets")
@pytest.mark.parametrize("name", SIZES)
def test_the_real_sets(name):
    task = load_task(name)()
    task.prepare(CPU, Path(str(FOLDER)))
    assert tuple(task.size(s) for s in ("train", "valid", "test")) == SIZES[name]
    batch = task.batch("train", 5, 8, 0, CPU)
    prediction = torch.randn(*batch.target.shape, task.output.size)
    assert task.loss(prediction, batch).isfinite()
    if batch.x.is_floating_point():
        assert abs(batch.x.mean()) < 1
        assert 0.2 < batch.x.std() < 3


@pytest.mark.skipif(not FOLDER, reason="SURNN_TEST_DATA does not name a folder with the real sets")
def test_real_labels_go_with_their_images():
    """Mean images tell digits apart, if labels and images belong together."""
    found = images.mnist(Path(str(FOLDER)))
    flat = found.train.reshape(-1, 784).astype(np.float32)
    means = np.stack([flat[found.train_labels == digit].mean(0) for digit in range(10)])
    test = found.test.reshape(-1, 784).astype(np.float32)
    distance = (means**2).sum(1) - 2 * test @ means.T
    assert (distance.argmin(1) == found.test_labels).mean() == pytest.approx(0.8203, abs=1e-3)
