"""Copying, selective copy and Mackey-Glass: what their data is, and how it is judged."""

import math
from dataclasses import replace

import pytest
import torch

from generated import CPU, get, same
from surnn.tasks.copying import Copying, memoryless_loss
from surnn.tasks.mackey_glass import (
    SETTLING,
    SHIFT,
    VARIANCE,
    MackeyGlass,
    nrmse,
    simulate,
    trajectories,
)
from surnn.tasks.selective_copy import SelectiveCopy

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
