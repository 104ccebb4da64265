"""Generated tasks: what their data is, how it is judged, and that it is the same every time."""

import logging
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from surnn.tasks import listops_trees
from surnn.tasks.base import Batch, Split, Task, Tokens, Values
from surnn.tasks.cache import load_or_make
from surnn.tasks.copying import Copying, memoryless_loss
from surnn.tasks.listops import ListOps
from surnn.tasks.listops_trees import MOST_ARGUMENTS, expressions, grow, lengths
from surnn.tasks.mackey_glass import (
    SETTLING,
    SHIFT,
    VARIANCE,
    MackeyGlass,
    nrmse,
    simulate,
    trajectories,
)
from surnn.tasks.pathfinder import Pathfinder
from surnn.tasks.pathfinder_draw import ANGLE, DEGREES, LENGTH, shrink
from surnn.tasks.pathfinder_snakes import Scene, images, render, scenes
from surnn.tasks.selective_copy import SelectiveCopy

CPU = torch.device("cpu")
TASKS = [
    Copying(delay=30),
    Copying(delay=30, variable=True, marker="fill", noise="uniform"),
    Copying(delay=30, noise="gaussian", objective="recall"),
    SelectiveCopy(body=64),
    SelectiveCopy(body=64, layout="mamba"),
    MackeyGlass(length=150, series=16),
    MackeyGlass(length=150, series=16, control="recall"),
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


def get(task: Task, split: Split = "train", number=0, size=4, seed=0) -> Batch:
    return task.batch(split, number, size, seed, CPU)


def same(a: Batch, b: Batch) -> bool:
    return all(
        (p is None and q is None) or (p is not None and q is not None and torch.equal(p, q))
        for p, q in zip(a, b, strict=True)
    )


def one_hot_logits(target: torch.Tensor, classes: int) -> torch.Tensor:
    return 20 * functional.one_hot(target.clamp(min=0), classes).float()


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
    if batch.lengths is None:
        assert batch.x.shape[1] == task.steps
    else:
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
    one, two = (task.batch(split, 1, 4, 7, gpu) for _ in range(2))
    assert same(one, two)
    assert all(part is None or part.device == gpu for part in one)
    assert one.x.dtype == get(task, split).x.dtype


@pytest.mark.parametrize("task", TASKS, ids=str)
@pytest.mark.parametrize("split", ["valid", "test"])
def test_fixed_sets_are_gone_through_in_order(task, split):
    size = task.size(split)
    whole = get(task, split, 0, size)
    part = get(task, split, 1, 3)
    assert torch.equal(part.target, whole.target[3:6])
    assert torch.equal(part.x, whole.x[3:6, : part.x.shape[1]])
    assert len(get(task, split, (size - 1) // 3, 3).x) == (size - 1) % 3 + 1


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
        assert task.score(batch.target.unsqueeze(-1), batch).value == 0
        assert task.score(torch.zeros(*batch.x.shape), batch).value == pytest.approx(0.0467, 0.6)
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
        (lambda: MackeyGlass(horizon=0), "horizon is 0"),
        (lambda: MackeyGlass(length=100), "length is 100; expected more than 100"),
        (lambda: MackeyGlass(series=6), "series is 6; expected a multiple of 4"),
        (lambda: MackeyGlass(control="none"), "control is 'none'; expected one of forecast"),  # type: ignore[arg-type]
        (lambda: ListOps(valid=0), "valid is 0; expected at least 1"),
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


# ---------------------------------------------------------------- copying


@pytest.mark.parametrize(("marker", "signals"), [("one", 1), ("fill", 11)])
def test_copying_is_laid_out_as_described(marker, signals):
    delay, task = 20, Copying(delay=20, marker=marker)
    x, target, lengths, kinds = get(task)
    assert lengths is None
    assert kinds is not None
    assert x.shape == (4, delay + 20, 9)
    assert (x[:, :10, :8].sum(-1) == 1).all()
    assert not x[:, 10 : delay + 9].any()
    assert (x[:, delay + 9 :, 8].sum(1) == signals).all()
    assert (x[:, delay + 9, 8] == 1).all()
    assert torch.equal(target[:, -10:], x[:, :10].argmax(-1) + 1)
    assert not target[:, :-10].any()
    assert kinds[0].tolist() == [0] * 10 + [1] * (delay - 1) + [2] * 11


def test_copying_symbols_are_uniform():
    counts = get(Copying(delay=2), size=4000).x[:, :10].sum((0, 1))
    torch.testing.assert_close(counts[:8] / 40_000, torch.full((8,), 1 / 8), rtol=0.05, atol=0)


@pytest.mark.parametrize("delay", [21, 20])
def test_variable_delays_cover_half_to_all(delay):
    task = Copying(delay=delay, variable=True)
    x, target, lengths, kinds = get(task, size=500)
    assert lengths is not None
    assert kinds is not None
    assert set((lengths - 20).tolist()) == set(range((delay + 1) // 2, delay + 1))
    for row in range(50):
        end = int(lengths[row])
        assert torch.equal(target[row, end - 10 : end], x[row, :10].argmax(-1) + 1)
        assert not target[row, : end - 10].any()
        assert (target[row, end:] == -100).all()
        assert x[row, end - 11, 8] == 1
        assert not x[row, end - 10 :].any()
        assert kinds[row, :end].tolist() == [0] * 10 + [1] * (end - 21) + [2] * 11


def test_noise_is_for_the_delay_of_fixed_sets_only():
    silent = Copying(delay=40)
    for kind in ("gaussian", "symbols", "uniform"):
        task = Copying(delay=40, noise=kind, sigma=0.5)
        assert torch.equal(get(task).x, get(silent).x)
        noisy, clean = get(task, "test", size=1000), get(silent, "test", size=1000)
        assert torch.equal(noisy.target, clean.target)
        delay = noisy.x[:, 10:49]
        assert torch.equal(noisy.x[:, :10], clean.x[:, :10])
        assert torch.equal(noisy.x[:, 49:], clean.x[:, 49:])
        if kind == "gaussian":
            assert delay.std().item() == pytest.approx(0.5, rel=0.01)
        elif kind == "uniform":
            assert delay.mean().item() == pytest.approx(0.5, rel=0.01)
            assert 0 <= delay.min() <= delay.max() <= 1
        else:
            assert (delay.sum(-1) == 1).all()
            assert not delay[..., 8].any()


def test_copying_losses_are_those_worked_out_by_hand():
    batch = get(Copying(delay=20))
    prediction = torch.zeros(4, 40, 10)
    prediction[:, :30, 0] = prediction[:, 30:, 1:9] = 50.0
    memoryless = 10 * math.log(8) / 40
    assert memoryless_loss(20) == pytest.approx(memoryless)
    for objective in ("auto", "all"):
        loss = Copying(delay=20, objective=objective).loss(prediction, batch)
        assert loss.item() == pytest.approx(memoryless)
    recall = Copying(delay=20, objective="recall").loss(prediction, batch)
    assert recall.item() == pytest.approx(math.log(8) + 0.1 * memoryless)
    assert memoryless_loss(1000) == pytest.approx(0.02039, abs=5e-6)

    long = Copying(delay=2000)
    every = torch.zeros(1, 2020, 10)
    assert long.loss(every, get(long, size=1)).item() == pytest.approx(1.1 * math.log(10))


def test_padding_has_no_loss():
    task = Copying(delay=20, variable=True)
    batch = get(task)
    prediction = torch.randn(4, 40, 10)
    loss, score = task.loss(prediction, batch), task.score(prediction, batch)
    assert batch.lengths is not None
    for row, length in enumerate(batch.lengths.tolist()):
        prediction[row, length:] = 100 * torch.randn(40 - length, 10)
    assert task.loss(prediction, batch) == loss
    assert task.score(prediction, batch).total == score.total


# ---------------------------------------------------------------- selective copy


@pytest.mark.parametrize(
    ("layout", "noise", "prompt", "steps"), [("minrnn", 15, 0, 66), ("mamba", 0, 15, 72)]
)
def test_selective_copy_is_laid_out_as_described(layout, noise, prompt, steps):
    task = SelectiveCopy(body=60, data=6, layout=layout)
    x, target, _, kinds = get(task, size=50)
    assert kinds is not None
    assert task.steps == steps
    assert x.shape == (50, steps)
    assert (x[:, -6:] == prompt).all()
    body = x[:, :-6]
    data = body != noise
    assert (data.sum(1) == 6).all()
    assert torch.equal(body[data].reshape(50, 6), target)
    assert target.min() == 1
    assert target.max() == 14
    assert torch.equal(kinds[:, :-6] == 0, data)
    assert (kinds[:, -6:] == 2).all()


def test_selective_copy_has_the_published_sizes():
    assert SelectiveCopy().steps == 4112
    assert SelectiveCopy(layout="mamba").steps == 4128
    places = (get(SelectiveCopy(body=32, data=4), size=4000).kinds == 0).float().mean(0)[:32]
    torch.testing.assert_close(places, torch.full((32,), 4 / 32), rtol=0.2, atol=0)


def test_selective_copy_is_judged_at_the_prompt_only():
    task = SelectiveCopy(body=20, data=3)
    batch = get(task)
    prediction = torch.randn(4, 23, 16)
    expected = -prediction[:, -3:].log_softmax(-1).gather(-1, batch.target.unsqueeze(-1)).mean()
    torch.testing.assert_close(task.loss(prediction, batch), expected)


# ---------------------------------------------------------------- mackey-glass


def slope(x: float, delayed: float) -> float:
    return 0.2 * delayed / (1 + delayed**10) - 0.1 * x


def test_simulation_is_eulers_method():
    history = 1.1 + 0.2 * torch.rand(2, 170, dtype=torch.float64)
    got = simulate(history, torch.full((2,), 1.2, dtype=torch.float64), 60)
    for row in range(2):
        x = [*history[row].tolist(), 1.2]
        for _ in range(600):
            x.append(x[-1] + 0.1 * slope(x[-1], x[-171]))
        expected = torch.tensor(x[180::10], dtype=torch.float64)
        torch.testing.assert_close(got[row], expected, rtol=1e-12, atol=1e-12)


def test_simulation_approaches_the_differential_equation():
    """Runge and Kutta's, with a thousandth of the delay as its step, is as good as exact."""
    per_delay, x, step = 1000, [1.2] * 1001, 17 / 1000
    for n in range(per_delay, 3 * per_delay):
        now, old, older = x[n], x[n - per_delay], x[n + 1 - per_delay]
        middle = (old + older) / 2
        k1 = slope(now, old)
        k2 = slope(now + step / 2 * k1, middle)
        k3 = slope(now + step / 2 * k2, middle)
        k4 = slope(now + step * k3, older)
        x.append(now + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4))
    exact = torch.tensor([x[2 * per_delay], x[3 * per_delay]], dtype=torch.float64)
    error = []
    for substeps in (10, 100):
        history = torch.full((1, 17 * substeps), 1.2, dtype=torch.float64)
        series = simulate(history, history[:, 0], 34)[0, [16, 33]]
        error.append((series - exact).abs().max().item())
    assert error[0] < 1e-2
    assert error[1] < error[0] / 8


def test_trajectories_have_the_published_statistics_and_are_independent():
    series = trajectories(64, 2000, CPU)
    assert series.dtype == torch.float32
    assert series.mean().abs() < 0.005
    assert series.var().item() == pytest.approx(VARIANCE, rel=0.05)
    persistence = (series[:, 15:] - series[:, :-15]).square().mean().item()
    assert nrmse(persistence) == pytest.approx(1.62, rel=0.03)
    between = torch.corrcoef(series).fill_diagonal_(0)
    assert between.abs().max() < 0.95
    assert between.mean().abs() < 0.1
    assert torch.equal(trajectories(64, 500, CPU), series[:, :500])


def test_controls_are_what_they_say():
    forecast = MackeyGlass(horizon=20, length=300, series=16)
    x, target, *_ = get(forecast, "test")
    assert torch.equal(x[:, 20:, 0], target[:, :-20])
    assert [forecast.size(s) for s in ("train", "valid", "test")] == [4, 4, 8]

    recall = get(replace(forecast, control="recall"), "test")
    assert torch.equal(recall.x[..., 0], target)
    assert torch.equal(recall.target, x[..., 0])

    train = get(forecast)
    leak = replace(forecast, control="leak")
    assert same(get(leak), train)
    leaked = get(leak, "test")
    order = train.x[:, 0, 0].argsort()
    assert torch.equal(leaked.x[leaked.x[:, 0, 0].argsort()], train.x[order])

    shift = replace(forecast, control="shift")
    assert same(get(shift), train)
    assert torch.equal(get(shift, "test").x[:, :-SHIFT], leaked.x[:, SHIFT:])


def test_mackey_glass_does_not_count_the_beginning():
    task = MackeyGlass(length=103, series=16)
    batch = get(task)
    prediction = batch.target.unsqueeze(-1).clone()
    prediction[:, :SETTLING] = 7
    assert task.loss(prediction, batch) == 0
    prediction[0, 100] += 0.5
    assert task.loss(prediction, batch).item() == pytest.approx(0.25 / 12)
    score = task.score(prediction, batch)
    assert score.value == pytest.approx(0.25 / 12)
    assert score.count == 12


# ---------------------------------------------------------------- listops

NAMES = {3: "MIN", 4: "MAX", 5: "MED", 6: "SM"}


def work_out(tokens: list[int], place: int = 0) -> tuple[int, int, int]:
    """Value, where it ends, and depth of the expression at ``place``; raises if it is not one."""
    token = tokens[place]
    if 8 <= token <= 17:
        return token - 8, place + 1, 1
    name, place, values, depth = NAMES[token], place + 1, [], 0
    while tokens[place] != 7:
        value, place, below = work_out(tokens, place)
        values.append(value)
        depth = max(depth, below)
    assert 2 <= len(values) <= MOST_ARGUMENTS
    results = {
        "MIN": min(values),
        "MAX": max(values),
        "MED": int(np.median(values)),
        "SM": sum(values) % 10,
    }
    return results[name], place + 1, depth + 1


def test_listops_answers_are_right():
    made = expressions(400, seed=7)
    offsets, depths, operators = made["offsets"], [], set()
    for n in range(400):
        tokens = made["tokens"][offsets[n] : offsets[n + 1]].tolist()
        value, end, depth = work_out(tokens)
        assert tokens[end:] == [2]
        assert value == made["labels"][n]
        assert 500 < end < 2000
        depths.append(depth)
        operators |= set(tokens)
    assert max(depths) == 10
    assert operators == set(range(2, 18))


def test_listops_has_the_published_statistics():
    sizes = lengths(grow(np.random.default_rng(0), 50_000))[0]
    assert ((sizes > 500) & (sizes < 2000)).mean() == pytest.approx(0.082, abs=0.005)
    made = expressions(4000, seed=1)
    length = np.diff(made["offsets"]) - 1
    assert length.min() == 501
    assert length.max() >= 1990
    assert length.max() < 2000
    assert length.mean() == pytest.approx(1036, abs=25)
    assert np.percentile(length, [5, 95]) == pytest.approx([540, 1800], rel=0.03)
    shares = np.bincount(made["labels"], minlength=10) / 4000
    assert shares[[0, 9]] == pytest.approx([0.168, 0.168], abs=0.025)
    assert (abs(shares[1:9] - 0.083) < 0.025).all()
    rows = {bytes(p) for p in np.split(made["tokens"], made["offsets"][1:-1])}
    assert len(rows) == 4000


def test_expressions_that_come_twice_are_kept_once(monkeypatch):
    chunk = listops_trees.some_expressions(np.random.default_rng(0))
    other = listops_trees.some_expressions(np.random.default_rng(1))
    chunks = iter([chunk, chunk, other])
    monkeypatch.setattr(listops_trees, "some_expressions", lambda _: next(chunks))
    labels = expressions(len(chunk[2]) + 5, seed=0)["labels"]
    assert labels.tolist() == [*chunk[2], *other[2][:5]]


def test_more_expressions_begin_with_the_fewer():
    few, many = expressions(50, seed=3), expressions(80, seed=3)
    assert np.array_equal(many["labels"][:50], few["labels"])
    assert np.array_equal(many["tokens"][: len(few["tokens"])], few["tokens"])


def test_listops_batches_are_padded_to_their_longest():
    task = next(t for t in TASKS if isinstance(t, ListOps))
    x, target, lengths, _ = get(task, size=6)
    assert lengths is not None
    assert lengths.max() == x.shape[1]
    for row, length in enumerate(lengths.tolist()):
        assert x[row, length - 1] == 2
        assert not x[row, length:].any()
        assert work_out(x[row].tolist())[0] == target[row]


def test_progress_is_told():
    told = []
    expressions(3000, seed=0, progress=lambda done, total: told.append((done, total)))
    images(200, seed=0, progress=lambda done, total: told.append((done, total)))
    assert (3000, 3000) in told
    assert told[-1] == (200, 200)
    assert told[0][0] < 3000


# ---------------------------------------------------------------- pathfinder


@pytest.fixture(scope="module")
def scene() -> Scene:
    return scenes(np.random.default_rng(0))


def segments(points: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Ends [..., 2, 2] of paddles: first ones go ahead from their point, others come back."""
    angle = ANGLE[directions]
    ahead = np.where(directions < DEGREES, LENGTH, -LENGTH)[..., None]
    other = points + ahead * np.stack([np.sin(angle), np.cos(angle)], -1)
    return np.stack([points.astype(float), other], -2)


def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Least distances [..., A, B] of segments [..., A, 2, 2] and [..., B, 2, 2], by many points."""
    share = np.linspace(0, 1, 9)[:, None]
    first, second = (s[..., :1, :] * (1 - share) + s[..., 1:, :] * share for s in (a, b))
    apart = first[..., :, None, :, None, :] - second[..., None, :, None, :, :]
    return np.sqrt((apart**2).sum(-1)).min((-1, -2))


def test_the_label_says_whether_both_markers_are_on_one_snake(scene):
    begins = (scene.markers[:, None, 0] == scene.points[:, :, 0]).all(-1)
    ends = (scene.markers[:, None, 1] == scene.points[:, :, -1]).all(-1)
    assert (begins.sum(1) == 1).all()
    assert (ends.sum(1) == 1).all()
    assert np.array_equal((begins == ends).all(1), scene.labels == 1)


def test_snakes_are_whole_and_clear_of_one_another(scene):
    assert scene.points.shape[1:] == (2, 14, 2)
    assert len(scene.points) > 80
    first, second = (segments(scene.points[:, s], scene.directions[:, s]) for s in (0, 1))
    assert distance(first, second).min() > 0.5
    for snake in (first, second):
        own = distance(snake, snake)
        assert np.diagonal(own, 1, -2, -1).max() < 5
        apart = abs(np.subtract.outer(np.arange(14), np.arange(14))) > 1
        assert own[:, apart].min() > 0.5
        assert snake.min() >= 1
        assert snake.max() <= 30
    seeds = scene.points[:, :, 0]
    assert seeds[:, 0].min() >= 14
    assert seeds[:, 0].max() <= 17
    apart = np.linalg.norm(seeds[:, 0] - seeds[:, 1], axis=1)
    assert abs(apart - 7).max() <= 0.75


def test_distractors_are_clear_of_the_snakes(scene):
    assert scene.present.mean() > 0.8
    long = segments(scene.points, scene.directions).reshape(-1, 28, 2, 2)
    short = segments(scene.distractor_points, scene.distractor_directions).reshape(-1, 20, 2, 2)
    there = np.repeat(scene.present, 4, axis=1)
    assert distance(long, short).transpose(0, 2, 1)[there].min() > 0.25


def test_images_show_what_the_scene_says(scene):
    shown = render(scene)
    assert shown.dtype == np.uint8
    assert shown.shape[1:] == (32, 32)
    every = np.arange(len(shown))
    for marker in (0, 1):
        y, x = scene.markers[:, marker].T
        assert (shown[every, y, x] == 255).all()
    for snake in range(2):
        for paddle in range(14):
            y, x = scene.points[:, snake, paddle].T
            assert (shown[every, y, x] > 50).all()
    lit = segments(scene.points, scene.directions).reshape(len(shown), -1, 2)
    lonely = scene._replace(present=np.zeros_like(scene.present))
    for n, image in enumerate(render(lonely)[:30]):
        pixels = np.argwhere(image > 60)
        near = np.linalg.norm(pixels[:, None] - lit[n], axis=-1).min(1)
        assert near.max() < 2.3


def test_pathfinder_classes_are_balanced_and_images_differ():
    made = images(600, seed=1)
    assert made["labels"].mean() == pytest.approx(0.5, abs=0.07)
    assert len({image.tobytes() for image in made["images"]}) == 600
    assert np.array_equal(images(50, seed=1)["images"], made["images"][:50])
    brightness = made["images"].mean((1, 2))
    one, other = (brightness[made["labels"] == label].mean() for label in (0, 1))
    assert one == pytest.approx(other, rel=0.03)


def test_shrinking_is_pillows():
    pillow = pytest.importorskip("PIL.Image")
    large = (np.random.default_rng(0).random((17, 17)) > 0.7).astype(np.uint8)
    size = (9, 9)
    expected = pillow.fromarray(255 * large).resize(size, pillow.Resampling.LANCZOS)
    difference = shrink(large.astype(float), 9).astype(int) - np.asarray(expected).astype(int)
    assert abs(difference).max() <= 1


def test_pathfinder_hands_out_rows_of_pixels():
    task = next(t for t in TASKS if isinstance(t, Pathfinder))
    made = images(100, seed=42)
    batch = get(task, "valid", size=10)
    assert [task.size(s) for s in ("train", "valid", "test")] == [80, 10, 10]
    expected = torch.from_numpy(made["images"][80:90]).reshape(10, 1024, 1) / 255
    torch.testing.assert_close(batch.x, expected)
    assert batch.target.tolist() == made["labels"][80:90].tolist()


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
        made = load_or_make("x.npz", {"version": version}, lambda v=version: {"a": np.array([v])})
        assert made["a"].tolist() == [version]
    assert "it holds {'version': 1}, expected {'version': 2}" in caplog.text


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))

    def full(*_, **__) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="no space"):
        load_or_make("x.npz", {}, lambda: {"a": np.zeros(3)})
    assert not list(tmp_path.iterdir())
