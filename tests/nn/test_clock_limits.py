"""Clocks far from 0: schedules are exact up to the limit, which every state is checked against."""

import pytest
import torch

import surnn
from surnn.nn.gates import parts
from surnn.nn.state import MAX_CLOCK

FAR = (2**45, 2**45 + 12_345, MAX_CLOCK - 7)


@pytest.mark.parametrize(
    ("gate", "period"),
    [
        (surnn.Spectral(horizon=10**6), 10**6),
        (surnn.Spline(horizon=10**6, knots=640_000), 10**6),
        (surnn.Table(horizon=1000), 1000),
        (surnn.EveryN(7), 7),
        (surnn.Cycles(min_period=10, max_period=10), 10),
    ],
    ids=lambda value: type(value).__name__,
)
def test_periodic_gates_repeat_exactly_at_any_time(gate, period):
    """The schedule at t is that at t reduced by whole periods, computed in Python's integers."""
    gate = gate.bind(hidden_size=32)
    for t in FAR:
        far, _ = gate(torch.tensor([[t]]))
        near, _ = gate(torch.tensor([[t % period + period]]))
        assert torch.equal(far.g, near.g)


def test_a_horizon_whose_products_overflow_is_refused():
    with pytest.raises(ValueError, match=r"at most 2\^31"):
        surnn.Spectral(horizon=2**32)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
def test_a_clock_of_small_integers_does_not_wrap(dtype):
    layer = surnn.SuGRU(2, 4, gate=surnn.EveryN(7))
    state = layer.init_state(1)
    last = torch.iinfo(dtype).max
    x = torch.randn(20, 1, 2)
    small = state._replace(t=torch.tensor(last, dtype=dtype))
    wide = state._replace(t=torch.tensor(last))
    (y, after), (expected, expected_after) = layer(x, small), layer(x, wide)
    assert torch.equal(y, expected)
    assert after.t.item() == expected_after.t.item() == last + 20
    _, stepped = layer.step(x[0], small)
    assert stepped.t.item() == last + 1


@pytest.mark.parametrize("t", [-1, MAX_CLOCK + 1])
def test_a_clock_past_its_limits_is_refused(t):
    layer = surnn.SuGRU(2, 4)
    state = layer.init_state(1)._replace(t=torch.tensor(t))
    with pytest.raises(ValueError, match=r"0 to 2\^50 time steps"):
        layer(torch.randn(3, 1, 2), state)
    with pytest.raises(ValueError, match=r"0 to 2\^50 time steps"):
        layer.step(torch.randn(1, 2), state)


@pytest.mark.parametrize("t", [torch.tensor(True), torch.tensor(1 + 0j)])
def test_a_clock_that_is_no_number_of_steps_is_refused(t):
    layer = surnn.SuGRU(2, 4)
    with pytest.raises(ValueError, match="integer tensor"):
        layer.step(torch.randn(1, 2), layer.init_state(1)._replace(t=t))


# ------------------------------------------------------------------ long sequences


@pytest.mark.parametrize(
    "gate",
    [
        surnn.Rhythm(horizon=23),
        surnn.Rhythm(horizon=23, train_frequencies=True),
        surnn.WarpedRhythm(horizon=23, per_unit=True),
        surnn.Spline(horizon=23),
        surnn.Spectral(horizon=23),
        surnn.Rhythm(horizon=23, frozen=True),
    ],
    ids=lambda gate: type(gate).__name__,
)
def test_waves_in_chunks_equal_waves_at_once(gate, monkeypatch):
    gate = gate.bind(hidden_size=5).double()
    t = torch.arange(1, 24)[:, None]
    by = torch.randn(23, 1, 5, dtype=torch.float64)
    leaves = [p for p in gate.parameters() if p.requires_grad]

    def run() -> list[torch.Tensor]:
        a, _ = gate.preactivation(t, None, torch.zeros(1, 0))
        if not leaves:
            return [a]
        first = torch.autograd.grad((a * by).square().sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), leaves)
        return [a.detach(), *first, *second]

    whole = run()
    monkeypatch.setattr(parts, "_CHUNK_STEPS", 5)
    for found, expected in zip(run(), whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["Rhythm", "Spectral", "Spline", "WarpedRhythm"])
def test_a_schedule_keeps_little_of_each_step(name):
    """The graph of 40,000 steps holds the schedule, not the waves of 64 frequencies (1 kB)."""
    steps = 40_000
    gate = getattr(surnn, name)(horizon=steps).bind(hidden_size=4)
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        schedule, _ = gate(torch.arange(1, steps + 1)[:, None])
    assert schedule.g.requires_grad
    assert sum(saved.values()) < 100 * steps
