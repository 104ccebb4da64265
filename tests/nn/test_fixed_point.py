"""Clocks on devices without float64: the decisions of float64, without a float64 operation."""

import math
from fractions import Fraction

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import surnn
from surnn.nn import runtime
from surnn.nn.gates import fixed_point

TIMES = (1, 10**4, 10**6, 10**9 - 300)


class NoFloat64(TorchDispatchMode):
    """Refuses every operation that reads or writes float64."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves((args, kwargs, result)):
            if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
                raise TypeError(f"{func} uses float64")
        return result


@pytest.fixture
def without_float64(monkeypatch):
    """The CPU as a device without float64."""
    return lambda: monkeypatch.setattr(runtime, "_WITHOUT_FLOAT64", {"cpu", "mps"})


def steps(first: int, count: int = 300) -> torch.Tensor:
    return torch.arange(first, first + count)[:, None]


def spread_gate(**options) -> surnn.Gate:
    """64 gates with amplitudes and phases of very different sizes, as training may leave them."""
    gate = surnn.Rhythm(rate=0.3, horizon=500, **options).bind(hidden_size=64).eval()
    with torch.no_grad():
        gate.amplitude *= torch.exp2(torch.randint(-6, 7, gate.amplitude.shape).float())
        gate.phase += torch.randint(-3, 4, gate.phase.shape) * (2 * math.pi)
        gate.bias[:8] = 0.0
    return gate


@pytest.mark.parametrize("options", [{}, {"train_frequencies": True}, {"frequencies": 100}])
def test_decisions_are_those_of_float64(options, without_float64):
    torch.manual_seed(1)
    gates = [spread_gate(**options) for _ in range(5)]
    wanted = [[gate(steps(t))[0].g for t in TIMES] for gate in gates]
    without_float64()
    gates[0](steps(1))  # the grid of frequencies is made once, on the CPU
    for gate, expected in zip(gates, wanted, strict=True):
        for t, g in zip(TIMES, expected, strict=True):
            with NoFloat64():
                found, _ = gate(steps(t))
            assert found.g.dtype == torch.float32
            assert torch.equal(found.g.double(), g)
            assert 0.02 < g.mean() < 0.98


def test_sums_close_to_zero_are_decided_as_in_float64(without_float64):
    """A bias that cancels a sum up to 1e-8: a float32 sum would be 0 or have either sign."""
    torch.manual_seed(2)
    gate = surnn.Rhythm(horizon=500).bind(hidden_size=256).eval()
    t = steps(10**9, 1)
    with torch.no_grad():  # one wave, and a bias that is this wave in float32
        gate.amplitude.zero_()
        gate.amplitude[:, 5] = 1.0
        gate.phase[:, 5] = torch.rand(256) * 6
        gate.bias.copy_(-gate.wave(t)[0, 0])
    exact = gate.wave(t)[0, 0] + gate.bias.double()
    assert exact.abs().max() < 1e-7
    sure = exact.abs() > 1e-12
    assert sure.sum() > 250
    without_float64()
    found, _ = gate(t)
    assert torch.equal(found.g[0, 0][sure] == 1, exact[sure] > 0)


def test_the_phase_is_that_of_the_rounded_product():
    """float64 rounds ω t; at 10^9 the exact product would be off by 1e-7 of a turn."""
    omega = tuple((2 * math.pi / torch.linspace(2, 999, 9).double()).tolist())
    t = torch.randint(10**8, 10**9, (50,))
    found = fixed_point.turns(t, fixed_point.constants(omega, t.device))
    for row, now in zip(found.tolist(), t.tolist(), strict=True):
        for turn, frequency in zip(row, omega, strict=True):
            exact = Fraction(float(now) * frequency) * Fraction(fixed_point._TWO_OVER_PI, 1 << 218)
            error = (Fraction(turn, 1 << 64) - exact) % 1
            assert min(error, 1 - error) < 1e-13


@pytest.mark.parametrize("waves", [3, 400])
def test_products_of_digits_are_exact(waves):
    left = torch.randint(-(2**47), 2**47 + 1, (5, waves))
    right = torch.randint(-(2**47), 2**47 + 1, (4, waves)) // waves
    left[0, 0], right[0, 0] = 2**47, -(2**47) // waves
    found = fixed_point.exact_products(left, right)
    for i, row in enumerate(left.tolist()):
        for j, other in enumerate(right.tolist()):
            exact = sum(a * b for a, b in zip(row, other, strict=True)) / 2**32
            assert abs(found[i, j].item() - exact) < 2.0 ** (62 - 40)


def test_gradients_are_those_of_the_formula(without_float64):
    torch.manual_seed(3)
    gate = surnn.Rhythm(horizon=50, train_frequencies=True, mode="soft").bind(hidden_size=6)
    by = torch.randn(40, 1, 6)

    def gradients() -> list[torch.Tensor]:
        gate.zero_grad()
        (gate(steps(1, 40))[0].g.float() * by).sum().backward()
        return [p.grad.clone() for p in gate.parameters()]

    expected = gradients()
    without_float64()
    with NoFloat64():
        found = gradients()
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", ["full", "input", "ssm", "fixed_random", "cycles", "every_n"])
def test_other_gates_use_no_float64(name, without_float64):
    torch.manual_seed(4)
    layer = surnn.SuGRU(3, 8, heads=2, gate=name, backend="reference").eval()
    x = torch.randn(30, 2, 3)
    expected, _ = layer(x)
    without_float64()
    layer(x)
    with NoFloat64():
        found, _ = layer(x)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["warped", "spline", "spectral", "table"])
def test_clocks_on_the_host_give_the_same_schedule_and_gradients(name, without_float64):
    gate = surnn.nn.gates.GATES[name](horizon=40, rate=0.3).bind(hidden_size=6)
    by = torch.randn(50, 1, 6)
    results = []
    for _ in range(2):
        gate.zero_grad()
        (g, _), _ = gate(steps(10**9, 50))
        (g.float() * by).sum().backward()
        results.append([g.float().detach(), *(p.grad.clone() for p in gate.parameters())])
        without_float64()
    assert g.dtype == torch.float32
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)
