"""Windows and streams of a text."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from helpers.tiny_sets import CPU
from surnn.tasks.batching import set_data
from surnn.tasks.enwik8 import Enwik8
from surnn.tasks.language import IGNORED, Corpus


def corpus(text: bytes = bytes(range(100)) * 3, **options) -> Enwik8:
    """A task on any text: its first byte is given."""
    task = Enwik8(**options)
    split = torch.tensor(list(text), dtype=torch.uint8)
    table = torch.zeros(256, 5, dtype=torch.int64)
    table[:, 0] = 1
    set_data(task, Corpus(dict.fromkeys(("train", "valid", "test"), split), table))
    return task


@pytest.mark.parametrize(("streams", "overlap"), [(True, 0), (False, 0), (False, 3), (False, 7)])
@pytest.mark.parametrize("size", [1, 4, 7])
def test_every_token_is_predicted_once(size, streams, overlap):
    text = np.random.default_rng(0).integers(0, 256, 101, dtype=np.uint8)
    task = corpus(text.tobytes(), context=8, streams=streams, overlap=overlap)
    predicted = []
    for number in range(-(-task.size("valid") // size)):
        batch = task.batch("valid", number, size, 0, CPU)
        counted = batch.target != IGNORED
        predicted += batch.target[counted].tolist()
        if batch.lengths is not None:
            past = torch.arange(8) >= batch.lengths[:, None]
            assert not counted[past].any()
            assert (batch.x[past] == 0).all()
        assert (
            batch.starts_stream is not None and batch.starts_stream.item() == (number == 0)
        ) == streams
    assert sorted(predicted) == sorted(text[1:].tolist())


def test_overlapping_tokens_are_read_but_not_counted():
    task = corpus(bytes(range(41)), context=8, overlap=5)
    batch = task.batch("valid", 0, task.size("valid"), 0, CPU)
    for x, target in zip(batch.x, batch.target, strict=True):
        counted = target[target != IGNORED]
        assert len(counted) == 3 or x[0] == 0 or 40 in counted
        assert torch.equal(x[target != IGNORED], counted - 1)
        if x[0] > 0:
            assert counted[0] == x[0] + 6  # five before it, and its own input
    assert (task.batch("train", 0, 4, 0, CPU).target != IGNORED).all()  # of evaluations alone


def test_every_epoch_cuts_windows_at_other_places():
    task = corpus(bytes(range(100)), context=8)
    epochs = []
    for epoch in range(5):
        batches = [task.batch("train", 4 * epoch + n, 3, 1, CPU) for n in range(4)]
        assert all(torch.equal(b.x + 1, b.target) and b.lengths is None for b in batches)
        epochs.append(torch.cat([b.x[:, 0] for b in batches]).sort().values)
    assert torch.equal(epochs[0], torch.arange(0, 96, 8))
    shifts = [int(starts[0]) for starts in epochs]
    assert len(set(shifts)) > 2
    assert max(shifts) < 8
    for shift, starts in zip(shifts, epochs, strict=True):  # the last ends with the text
        assert torch.equal(starts, torch.arange(shift, shift + 96, 8).clamp(max=91))
    again = corpus(bytes(range(100)), context=8).batch("train", 9, 3, 1, CPU)
    assert torch.equal(again.x, task.batch("train", 9, 3, 1, CPU).x)
    others = [task.batch("train", number, 12, 2, CPU).x.min().item() for number in range(5)]
    assert others[0] == 0
    assert others != shifts


def test_streams_continue_from_batch_to_batch():
    task = corpus(bytes(range(100)), context=8, streams=True)
    batches = [task.batch("train", number, 3, 0, CPU) for number in range(9)]
    assert [b.starts_stream.item() for b in batches] == [
        n % 4 == 0 for n in range(9)
    ]  # four an epoch
    for one, next_one in pairwise(batches[:4]):
        assert torch.equal(next_one.x[:, 0], one.target[:, -1])
    assert torch.equal(batches[0].x[:, 0], torch.tensor([0, 33, 66]))
    assert torch.equal(batches[4].x, batches[0].x)
    assert all(b.lengths is None for b in batches)
    with pytest.raises(ValueError, match="smaller batch or context"):
        task.batch("train", 0, 50, 0, CPU)


@pytest.mark.parametrize(
    "options", [{"context": 0}, {"overlap": -1}, {"context": 4, "overlap": 4},
                {"streams": True, "overlap": 1}],
)  # fmt: skip
def test_wrong_options_are_refused(options):
    with pytest.raises(ValueError, match="expected"):
        Enwik8(**options)
