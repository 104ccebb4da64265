"""Copying, selective copy and Mackey-Glass: what their data is, and how it is judged."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.generated import CPU, get, same
from surnn.tasks.copying import Copying, memoryless_loss
from surnn.tasks.mackey_glass import SETTLING, SHIFT, VARIANCE, MackeyGlass, simulate, trajectories
from surnn.tasks.selective_copy import SelectiveCopy

# ---------------------------------------------------------------- copying


@pytest.mark.parametrize(("marker", "signals"), [("one", 1), ("fill", 11)])
def test_copying_is_laid_out_as_described(marker, signals):
    delay, task = 20, Copying(delay=20, marker=marker)
    x, target, lengths, kinds, *_ = get(task)
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
    x, target, lengths, kinds, *_ = get(task, size=500)
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
        delay, signal = noisy.x[:, 10:49, :8], noisy.x[..., 8]
        assert torch.equal(signal, clean.x[..., 8])  # noise is no signal
        assert torch.equal(noisy.x[:, :10], clean.x[:, :10])
        assert torch.equal(noisy.x[:, 49:], clean.x[:, 49:])
        if kind == "gaussian":
            assert delay.std().item() == pytest.approx(0.5, rel=0.01)
        elif kind == "uniform":
            assert delay.mean().item() == pytest.approx(0.5, rel=0.01)
            assert 0 <= delay.min() <= delay.max() <= 1
        else:
            assert (delay.sum(-1) == 1).all()


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


@pytest.mark.parametrize("variable", [False, True])
def test_both_losses_of_copying_are_told(variable):
    task = Copying(delay=20, variable=variable)
    batch = get(task, "valid", size=8)
    told = task.details(torch.zeros(8, 40, 10), batch)
    assert told["loss of recall"].count == 8 * 10
    assert told["loss of all positions"].count == task.weight(batch)
    prediction = torch.randn(8, 40, 10)
    told = {name: score.value for name, score in task.details(prediction, batch).items()}
    assert told["loss of all positions"] == pytest.approx(task.loss(prediction, batch).item())
    surprise = -prediction.log_softmax(-1).gather(-1, batch.target.clamp(min=0).unsqueeze(-1))
    answers = surprise[..., 0][batch.target > 0]
    assert told["loss of recall"] == pytest.approx(answers.mean().item())


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
    x, target, _, kinds, *_ = get(task, size=50)
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
    history = 1.1 + 0.2 * np.random.default_rng(0).random((2, 170))
    got = simulate(history, np.full(2, 1.2), 60)
    for row in range(2):
        x = [*history[row].tolist(), 1.2]
        for _ in range(600):
            x.append(x[-1] + 0.1 * slope(x[-1], x[-171]))
        np.testing.assert_allclose(got[row], x[180::10], rtol=1e-12)


def test_simulation_approaches_the_differential_equation():
    """Runge and Kutta's, with a thousandth of the delay as its step, is as good as exact."""
    per_delay, x, step = 1000, [1.2] * 1001, 17 / 1000
    for n in range(per_delay, 6 * per_delay):
        now, old, older = x[n], x[n - per_delay], x[n + 1 - per_delay]
        middle = (old + older) / 2
        k1 = slope(now, old)
        k2 = slope(now + step / 2 * k1, middle)
        k3 = slope(now + step / 2 * k2, middle)
        k4 = slope(now + step * k3, older)
        x.append(now + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4))
    exact = np.array(x[2 * per_delay :: per_delay])
    error = []
    for substeps in (10, 100):
        series = simulate(np.full((1, 17 * substeps), 1.2), np.full(1, 1.2), 85)[0, 16::17]
        error.append(abs(series - exact).max())
    assert exact.max() - exact.min() > 0.3
    assert error[0] < 0.02
    assert error[1] < error[0] / 8  # Euler's error is in proportion to the step


def test_trajectories_have_the_published_statistics_and_are_independent():
    series = trajectories(64, 3000, CPU)
    assert series.dtype == torch.float32
    assert series.mean().abs() < 0.005
    assert series.var().item() == pytest.approx(VARIANCE, rel=0.05)
    persistence = (series[:, 15:] - series[:, :-15]).square().mean().item()
    assert math.sqrt(persistence / VARIANCE) == pytest.approx(1.62, rel=0.03)
    power = torch.fft.rfft(series[:, :2976]).abs().square().mean(0)
    assert 2976 / power.argmax().item() == pytest.approx(49.6, rel=0.02)
    between = torch.corrcoef(series).fill_diagonal_(0)
    assert between.abs().max() < 0.95
    assert between.mean().abs() < 0.02
    together = series[:, :300].mean(0).square().mean().item()  # of 64, had all one phase: VARIANCE
    assert together < 5 * VARIANCE / 64
    assert torch.equal(trajectories(64, 500, CPU), series[:, :500])


@pytest.mark.parametrize(("lag", "expected"), [(100, 0.79), (500, 0.57), (1000, 0.45)])
def test_the_past_is_forgotten_as_published(lag, expected):
    """The correlation's envelope: over a period of 50 steps about the lag, where phases agree."""
    series = trajectories(64, 3000, CPU)
    found = [
        (series[:, k:] * series[:, :-k]).mean().item() / VARIANCE for k in range(lag - 25, lag + 26)
    ]
    assert max(found) == pytest.approx(expected, abs=0.06)


def test_trajectories_part_as_chaos_does():
    """What is 1e-7 apart grows by 0.0054 to 0.0065 per step, so the published exponents."""
    history = np.full((40, 170), 1.2) + 0.1 * np.random.default_rng(0).random((40, 1))
    settled = simulate(history, np.full(40, 1.2), 1700)
    history = np.repeat(settled[:, -17:], 10, axis=1)  # any history near the attractor will do
    close = history + 1e-7 * np.random.default_rng(1).standard_normal((40, 170))
    one, other = (simulate(h, h[:, -1], 2200) for h in (history, close))
    apart = np.log(abs(one - other)).reshape(40, -1, 100).mean(2).mean(0)
    growth = np.polyfit(100 * np.arange(4, 16), apart[4:16], 1)[0]
    assert 0.0045 < growth < 0.0075


def test_controls_are_what_they_say():
    forecast = MackeyGlass(horizons=(20,), length=300, series=16)
    x, target, *_ = get(forecast, "test")
    assert x.shape == target.shape == (4, 300, 1)
    assert torch.equal(x[:, 20:], target[:, :-20])
    assert [forecast.size(s) for s in ("train", "valid", "test")] == [4, 4, 8]
    rows = {row.item() for s in ("train", "valid", "test") for row in get(forecast, s).x[:, 0, 0]}
    assert len(rows) == 12  # no series is in two splits

    recall = get(replace(forecast, control="recall"), "test")
    assert torch.equal(recall.x, target)
    assert torch.equal(recall.target, x)

    train = get(forecast)
    leak = replace(forecast, control="leak")
    assert same(get(leak), train)
    order = train.x[:, 0, 0].argsort()
    for split in ("valid", "test"):
        leaked = get(leak, split)
        assert torch.equal(leaked.x[leaked.x[:, 0, 0].argsort()], train.x[order])


def test_the_shift_control_asks_a_forecast_model_the_same_at_a_later_time():
    forecast = MackeyGlass(horizons=(20, 5), length=300, series=16)
    shift = replace(forecast, control="shift")
    assert same(get(shift), get(forecast))
    for split in ("valid", "test"):
        usual, late = get(forecast, split), get(shift, split)
        assert late.x.shape == (4, 300 + SHIFT, 1)
        assert torch.equal(late.x[:, SHIFT:], usual.x)
        assert torch.equal(late.target[:, SHIFT:], usual.target)
        guess = torch.randn(4, 300, 2)
        late_guess = torch.cat((torch.full((4, SHIFT, 2), 1e6), guess), 1)
        assert shift.score(late_guess, late).value == forecast.score(guess, usual).value
        assert shift.loss(late_guess, late) == forecast.loss(guess, usual)


@pytest.mark.parametrize("control", ["forecast", "recall"])
def test_several_horizons_are_several_answers(control):
    task = MackeyGlass(horizons=(7, 50), length=300, series=16, control=control)
    batch = get(task, "test")
    assert task.output.size == 2
    for n, horizon in enumerate(task.horizons):
        x, wanted = batch.x[..., 0], batch.target[..., n]
        if control == "forecast":
            assert torch.equal(wanted[:, :-horizon], x[:, horizon:])
        else:
            assert torch.equal(wanted[:, horizon:], x[:, :-horizon])
    guess = batch.target.clone()
    guess[..., 1] += 0.5
    details = {name: score.value for name, score in task.details(guess, batch).items()}
    assert details == pytest.approx(
        {"mse at 7": 0, "mse at 50": 0.25, "nrmse": math.sqrt(0.125 / VARIANCE)}
    )
    whole = task.details(guess, batch)["nrmse"]
    assert (whole + whole).value == pytest.approx(whole.value)


def test_mackey_glass_does_not_count_the_beginning():
    task = MackeyGlass(length=103, series=16)
    batch = get(task)
    prediction = batch.target.clone()
    prediction[:, :SETTLING] = 7
    assert task.loss(prediction, batch) == 0
    prediction[0, 100] += 0.5
    assert task.loss(prediction, batch).item() == pytest.approx(0.25 / 12)
    score = task.score(prediction, batch)
    assert score.value == pytest.approx(0.25 / 12)
    assert score.count == 12
