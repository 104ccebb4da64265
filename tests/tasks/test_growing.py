"""Tasks that begin with something easier: shorter lines, shorter expressions."""

from dataclasses import replace

import pytest
import torch

from helpers.generated import CPU
from helpers.listops import work_out
from surnn.tasks.listops import ListOps
from surnn.tasks.pathfinder import Pathfinder
from surnn.tasks.pathfinder_snakes import images


def test_expressions_grow_in_training_and_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    options = {"train": 12, "valid": 6, "test": 6, "shortest": 250, "longest": 300}
    task, full = ListOps(**options, growing=7, one_length=True), ListOps(**options, one_length=True)
    task.prepare(CPU)
    full.prepare(CPU)
    for number in range(7):
        least, most = (10, 62) if number < 4 else (63, 249)
        batch = task.batch("train", number, 5, 0, CPU)
        assert batch.x.shape == (5, most + 1)
        assert all(least < length <= most + 1 for length in batch.lengths.tolist())
        for tokens, answer in zip(batch.x.tolist(), batch.target.tolist(), strict=True):
            assert work_out(tokens)[0] == answer
    both = torch.cat([task.batch("train", number, 6, 0, CPU).x for number in (0, 1)])
    assert len(both.unique(dim=0)) == 12  # an epoch of them, each once
    for split, number in (("train", 7), ("valid", 0), ("test", 0)):
        mine, theirs = (t.batch(split, number, 6, 0, CPU) for t in (task, full))
        assert all((a == b).all() for a, b in zip(mine[:3], theirs[:3], strict=True))
    assert task.chance == full.chance
    assert (task.easy_batches, full.easy_batches) == (7, 0)
    assert task.as_tested() == full
    with pytest.raises(ValueError, match="growing is -1; expected 0 or more"):
        ListOps(growing=-1)
    with pytest.raises(ValueError, match=r"no longer than those of up to 249 .* or growing 0"):
        ListOps(growing=9, shortest=249)


def test_lines_grow_in_training_and_nowhere_else(tmp_path, monkeypatch):
    """Half of a batch is of the longest lines so far, the rest of those and of shorter ones."""
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    task = Pathfinder(images=100, paddles=5, growing=9, ladder=(2, 4))
    full = Pathfinder(images=100, paddles=5)
    task.prepare(CPU)
    full.prepare(CPU)
    sets = {p: images(10, 42, paddles=p)["images"].reshape(10, -1) for p in (2, 4)}

    def lengths(number: int) -> list[int]:
        """Paddles of the lines in a batch; 0 is none of the shorter ones."""
        pixels = (task.batch("train", number, 10, 0, CPU).x * 255).round().squeeze(-1).numpy()
        return [next((p for p in sets if (sets[p] == x).all(1).any()), 0) for x in pixels]

    for number in range(9):
        newest = 2 if number < 5 else 4
        assert lengths(number)[::2] == [newest] * 5
        assert all(paddles in (2, newest) for paddles in lengths(number)[1::2])
    assert {p for number in range(5, 9) for p in lengths(number)[1::2]} == {2, 4}
    assert not any(lengths(9))
    for split, number in (("train", 9), ("valid", 0), ("test", 0)):
        mine, theirs = (t.batch(split, number, 10, 0, CPU) for t in (task, full))
        assert (mine.x == theirs.x).all()
        assert (mine.target == theirs.target).all()
    again = replace(task, ladder=[2, 4])
    again.prepare(CPU)
    assert again == task
    assert (again.batch("train", 7, 10, 0, CPU).x == task.batch("train", 7, 10, 0, CPU).x).all()
    assert (again.batch("train", 7, 10, 1, CPU).x != task.batch("train", 7, 10, 0, CPU).x).any()
    with pytest.raises(ValueError, match="a batch of 90 is more than the 80"):
        task.batch("train", 0, 90, 0, CPU)  # now, and not when they are grown


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"growing": -1}, "growing is -1; expected 0 or more"),
        ({"growing": 9, "paddles": 9}, "less than the 9 of full lines; or growing 0"),
        ({"growing": 9, "ladder": (1, 2)}, "expected numbers of paddles from 2 on"),
        ({"growing": 9, "ladder": (2, 4, 4)}, "each more than the one before"),
        ({"growing": 9, "ladder": (4, 2)}, "each more than the one before"),
        ({"growing": 9, "ladder": ()}, "at least a batch for each"),
        ({"growing": 2, "ladder": (2, 3, 4)}, "at least a batch for each"),
        ({"ladder": (2, 5)}, "set growing too"),
    ],
)
def test_lines_that_cannot_grow_so_are_refused(wrong, told):
    with pytest.raises(ValueError, match=told):
        Pathfinder(**wrong)
