"""Generated tasks: what all of them promise, and the files that hold what is slow to make."""

import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from helpers.generated import CPU, get, one_hot_logits, same
from surnn.data import cache as cache_files
from surnn.data.cache import load_or_make
from surnn.tasks.base import Batch, Tokens, Values
from surnn.tasks.copying import Copying
from surnn.tasks.listops import ListOps
from surnn.tasks.mackey_glass import MackeyGlass
from surnn.tasks.pathfinder import Pathfinder
from surnn.tasks.selective_copy import SelectiveCopy
from surnn.tasks.state_tracking import StateTracking

TASKS = [
    Copying(delay=30),
    Copying(delay=30, variable=True, marker="fill", noise="uniform"),
    Copying(delay=30, noise="gaussian", objective="recall"),
    SelectiveCopy(body=64),
    SelectiveCopy(body=64, layout="mamba"),
    StateTracking(length=60, events=5),
    StateTracking(group="A5", length=60, density=0.1, noise=3),
    MackeyGlass(length=150, series=16),
    MackeyGlass(length=150, series=16, horizons=(3, 40), control="recall"),
    MackeyGlass(length=150, series=16, control="leak"),
    MackeyGlass(length=150, series=16, control="shift"),
    ListOps(train=30, valid=10, test=10),
    Pathfinder(images=100),
]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SURNN_CACHE", str(folder))
        for task in TASKS:
            task.prepare(CPU)
        yield folder


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_batches_have_the_shapes_that_the_task_announces(task, split):
    batch = get(task, split)
    match task.input:
        case Tokens(vocabulary):
            assert batch.x.dtype == torch.int64
            assert batch.x.ndim == 2
            assert 0 <= batch.x.min() <= batch.x.max() < vocabulary
        case Values(features):
            assert batch.x.dtype == torch.float32
            assert batch.x.shape[2:] == (features,)
    assert len(batch.x) == len(batch.target) == 4
    assert batch.x.shape[1] <= task.steps
    if batch.lengths is None and (split != "train" or "shift" not in str(task)):
        assert batch.x.shape[1] == task.steps
    if batch.lengths is not None:
        assert batch.lengths.shape == (4,)
        assert batch.lengths.max() <= batch.x.shape[1]
    assert (batch.kinds is None) == (not task.kinds)
    if batch.kinds is not None:
        assert batch.kinds.shape == batch.x.shape[:2]
        assert set(batch.kinds.unique().tolist()) == set(range(len(task.kinds)))


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_a_batch_is_a_function_of_its_seed_and_number(task):
    assert same(get(task, number=3, seed=5), get(task, number=3, seed=5))
    others = [get(task, number=4, seed=5), get(task, number=3, seed=6), get(task, "valid", seed=5)]
    assert all(not torch.equal(get(task, number=3, seed=5).x, b.x) for b in others)
    assert same(get(task, "valid", seed=1), get(task, "valid", seed=2))
    assert not torch.equal(get(task, seed=1001).x, get(task, "valid", seed=1001).x)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize("split", ["train", "valid"])
def test_batches_are_made_on_the_gpu(task, split):
    gpu = torch.device("cuda", 0)
    task = replace(task)
    task.prepare(gpu)
    number = 1 if split == "train" else 0  # a validation set may hold no second batch
    one, two = (task.batch(split, number, 4, 7, gpu) for _ in range(2))
    assert same(one, two)
    assert all(part is None or part.device == gpu for part in one)
    assert one.x.dtype == get(task, split).x.dtype


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_fixed_sets_are_the_same_on_all_devices(task):
    gpu = torch.device("cuda", 0)
    there = replace(task)
    there.prepare(gpu)
    batch = there.batch("test", 0, 4, 0, gpu)
    on_cpu = Batch(*[None if part is None else part.cpu() for part in batch])  # type: ignore[arg-type]
    assert same(on_cpu, get(task, "test"))


@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize("split", ["valid", "test"])
def test_fixed_sets_are_gone_through_in_order(task, split):
    size = task.size(split)
    whole = get(task, split, 0, size)
    part = get(task, split, 1, 3)
    assert torch.equal(part.target, whole.target[3:6])
    assert torch.equal(part.x, whole.x[3:6, : part.x.shape[1]])
    assert len(get(task, split, (size - 1) // 3, 3).x) == (size - 1) % 3 + 1
    with pytest.raises(IndexError, match=f"there is no batch {size} of 1 in {size} {split}"):
        get(task, split, size, 1)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_losses_have_gradients_and_scores_add_up(task):
    batch = get(task, "valid")
    output = task.output
    shape = (4, output.size) if output.per == "sequence" else (*batch.x.shape[:2], output.size)
    prediction = torch.randn(shape, requires_grad=True)
    loss = task.loss(prediction, batch)
    loss.backward()
    assert loss.shape == ()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()
    assert prediction.grad.any()
    assert task.loss(prediction.bfloat16(), batch).dtype == torch.float32

    halves = [
        task.score(prediction[rows], Batch(*[None if p is None else p[rows] for p in batch]))  # type: ignore[arg-type]
        for rows in (slice(0, 2), slice(2, 4))
    ]
    whole = task.score(prediction, batch)
    assert sum(h.total for h in halves) == pytest.approx(whole.total.item())
    assert sum(h.count for h in halves) == whole.count


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_the_right_answer_scores_best(task):
    batch = get(task, "test")
    if isinstance(task, MackeyGlass):
        assert task.score(batch.target, batch).value == 0
        silent = task.score(torch.zeros_like(batch.target), batch)
        assert silent.value == pytest.approx(task.chance, 0.6)
        return
    prediction = one_hot_logits(batch.target, task.output.size)
    if isinstance(task, SelectiveCopy):
        prediction = functional.pad(prediction, (0, 0, task.steps - task.data, 0))
    assert task.score(prediction, batch).value == 1.0
    assert task.score(-prediction, batch).value == 0.0
    assert task.loss(prediction, batch) < 1e-6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Copying(delay=1), "delay is 1; expected at least 2"),
        (lambda: Copying(symbols=0), "symbols is 0"),
        (lambda: Copying(marker="two"), "marker is 'two'; expected one of one, fill"),  # type: ignore[arg-type]
        (lambda: Copying(noise="loud"), "noise is 'loud'; expected one of none, gaussian"),  # type: ignore[arg-type]
        (lambda: Copying(objective="x"), "objective is 'x'; expected one of auto"),  # type: ignore[arg-type]
        (lambda: Copying(sigma=0.0), "sigma is 0.0; expected more than 0"),
        (lambda: SelectiveCopy(layout="s4"), "layout is 's4'; expected one of minrnn, mamba"),  # type: ignore[arg-type]
        (lambda: SelectiveCopy(body=15), "body is 15; expected at least 16"),
        (lambda: SelectiveCopy(data=0), "data is 0"),
        (lambda: MackeyGlass(horizons=(5, 0)), r"horizons is \(5, 0\); expected one or more"),
        (lambda: MackeyGlass(horizons=()), r"horizons is \(\); expected one or more"),
        (lambda: MackeyGlass(length=100), "length is 100; expected more than 100"),
        (lambda: MackeyGlass(series=6), "series is 6; expected a multiple of 4"),
        (lambda: MackeyGlass(control="none"), "control is 'none'; expected one of forecast"),  # type: ignore[arg-type]
        (lambda: ListOps(valid=0), "valid is 0; expected at least 1"),
        (lambda: ListOps(shortest=9, longest=8), "1 <= shortest <= longest, got 9 and 8"),
        (lambda: Pathfinder(images=15), "images is 15; expected a multiple of 10"),
    ],
)
def test_wrong_options_are_refused_with_a_reason(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("task", [ListOps(train=1), Pathfinder(images=10)], ids=str)
def test_data_that_was_never_loaded_is_missed(task):
    with pytest.raises(RuntimeError, match="call prepare"):
        get(task)


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("make", [lambda: ListOps(20, 5, 5), lambda: Pathfinder(50)])
def test_data_is_made_once(make, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    first, second, third = make(), make(), make()
    told = []
    first.prepare(CPU, progress=lambda *_: told.append(1))
    assert told
    second.prepare(CPU, progress=lambda *_: pytest.fail("made again"))
    (file,) = tmp_path.iterdir()
    shutil.move(file, tmp_path / "moved")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(tmp_path / "moved", elsewhere / file.name)
    third.prepare(CPU, elsewhere, progress=lambda *_: pytest.fail("made again"))
    for split in ("train", "valid", "test"):
        assert same(get(first, split), get(second, split))
        assert same(get(first, split), get(third, split))


def damaged(file: Path, how: str) -> None:
    content = bytearray(file.read_bytes())
    if how == "flipped":
        content[len(content) // 2] ^= 1
    elif how == "cut":
        del content[len(content) // 2 :]
    elif how == "empty":
        content.clear()
    else:
        content[:] = b"not an archive at all"
    file.write_bytes(content)


@pytest.mark.parametrize("how", ["flipped", "cut", "empty", "other"])
def test_damaged_files_are_noticed_and_made_again(how, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    tasks = [ListOps(20, 5, 5) for _ in range(3)]
    tasks[0].prepare(CPU)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    damaged(file, how)
    with caplog.at_level(logging.WARNING, "surnn"):
        tasks[1].prepare(CPU)
    assert "cannot be used" in caplog.text
    assert str(file) in caplog.text
    assert len(file.read_bytes()) == len(whole)
    tasks[2].prepare(CPU, progress=lambda *_: pytest.fail("made again"))
    assert same(get(tasks[0], "test"), get(tasks[1], "test"))
    assert same(get(tasks[0], "test"), get(tasks[2], "test"))
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_of_something_else_is_not_taken(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    for version in (1, 2):
        made = load_or_make(
            "x.npz", {"version": version}, lambda _, v=version: {"a": np.array([v])}
        )
        assert made["a"].tolist() == [version]
    assert "it holds {'version': 1}, expected {'version': 2}" in caplog.text


def test_a_failed_write_leaves_nothing_behind_and_loses_no_work(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))

    def full(*_, **__) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", full)
    made = load_or_make("x.npz", {}, lambda _: {"a": np.arange(3)})
    assert made["a"].tolist() == [0, 1, 2]
    assert not list(tmp_path.iterdir())
    assert caplog.text.count("no space left on device") == 1
    assert "SURNN_CACHE=FOLDER" in caplog.text


def test_a_cache_that_cannot_be_written_is_known_before_the_work(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path / "file" / "below"))

    def make(_):
        assert "SURNN_CACHE" in caplog.text
        return {"a": np.arange(3)}

    assert load_or_make("x.npz", {}, make)["a"].tolist() == [0, 1, 2]
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "SURNN_CACHE=FOLDER" in caplog.text


def test_a_file_that_cannot_be_read_is_made_anew(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "x.npz").mkdir(parents=True)  # opening it is an OSError
    made = load_or_make("x.npz", {}, lambda _: {"a": np.arange(3)}, elsewhere)
    assert made["a"].tolist() == [0, 1, 2]
    assert f"{elsewhere / 'x.npz'} cannot be used" in caplog.text


def test_making_says_how_far_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    Pathfinder(100).prepare(CPU)
    assert not capsys.readouterr().err  # it was over before there was much to say
    monkeypatch.setattr(cache_files, "EVERY", 0.0)
    Pathfinder(200).prepare(CPU)
    assert "pathfinder-200.npz: 200 of 200, 0 s left" in capsys.readouterr().err


def test_listops_chance_is_the_most_frequent_answers_share(tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    task = ListOps(train=800, valid=100, test=100, shortest=1, longest=30)
    with pytest.raises(RuntimeError, match="call prepare"):
        _ = task.chance
    task.prepare(CPU)
    splits = [task.batch(s, 0, task.size(s), 0, CPU).target for s in ("train", "valid", "test")]
    shares = torch.cat(splits).bincount() / 1000
    assert task.chance == pytest.approx(shares.max().item())
    assert task.chance < 0.16  # short ones have no such preference for 0 and 9
