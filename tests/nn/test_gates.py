"""Gates: shapes, rates, exact clocks, streaming, and the options all of them share."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

import surnn
from surnn import Surrogate
from surnn.nn.gates import GATES, Gate, as_gate
from surnn.nn.gates.parts import diagonal_scan

CLOCKS = ["rhythm", "warped", "spline", "spectral", "table"]
FIXED = ["open", "every_n", "cycles", "fixed_rhythm", "fixed_random"]
INPUTS = ["input", "ssm", "full", "threshold"]
STEPS, BATCH, FEATURES = 100, 3, 5


def steps(first: int, count: int = STEPS) -> torch.Tensor:
    return torch.arange(first, first + count)[:, None]


def bound(name: str, hidden: int = 12, heads: int = 3, **options) -> Gate:
    if name in [*CLOCKS, "fixed_rhythm"]:
        options.setdefault("horizon", STEPS)
    return GATES[name](**options).bind(hidden, heads, FEATURES).eval()


def test_every_gate_is_listed_and_found_by_name():
    assert sorted(GATES) == sorted(CLOCKS + FIXED + INPUTS)
    for name in GATES:
        assert isinstance(as_gate(name), GATES[name])


@pytest.mark.parametrize("name", sorted(GATES))
def test_schedule_is_binary_and_has_the_right_shape(name):
    x = torch.randn(STEPS, BATCH, FEATURES)
    gate = bound(name, granularity="unit")
    (g, _), _ = gate(steps(1), x)
    assert g.shape == (STEPS, BATCH if name in INPUTS else 1, 12)
    assert ((g == 0) | (g == 1)).all()


@pytest.mark.parametrize("name", sorted(GATES))
def test_any_start_and_any_chunking_give_the_same_schedule(name):
    x = torch.randn(STEPS, BATCH, FEATURES, dtype=torch.float64)
    gate = bound(name).double()
    (whole, _), end = gate(steps(1000), x)
    memory, pieces = None, []
    for first in (0, 37, 38, 90):
        last = {0: 37, 37: 38, 38: 90, 90: STEPS}[first]
        t, piece = steps(1000 + first, last - first), x[first:last]
        (g, _), memory = gate(t, piece, memory)
        pieces.append(g)
    assert torch.equal(torch.cat(pieces), whole)
    torch.testing.assert_close(memory, end)


@pytest.mark.parametrize("name", CLOCKS)
@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("granularity", ["unit", "head", "layer", 4])
def test_initial_schedule_really_has_its_rate(name, rate, granularity):
    gate = bound(name, rate=rate, granularity=granularity)
    (g, _), _ = gate(steps(1))
    assert g.mean(0).tolist() == [[rate] * gate.width]


@pytest.mark.parametrize("name", ["input", "ssm", "full"])
def test_gates_that_see_the_input_reach_their_rate_by_calibration(name):
    x = torch.randn(STEPS, BATCH, FEATURES) * 3 + 2
    layer = surnn.SuGRU(FEATURES, 12, num_layers=2, heads=3, gate=GATES[name](rate=0.2))
    layer.calibrate(x).eval()
    layer(x)
    torch.testing.assert_close(layer.update_rate, torch.tensor([0.2, 0.2]), atol=0.01, rtol=0)


@pytest.mark.parametrize("features", [1, 32])
@pytest.mark.parametrize(
    "spec",
    [
        surnn.InputGate(rate=0.2),
        surnn.InputGate(rate=0.2, hidden=16),
        surnn.SSMGate(rate=0.2),
        surnn.FullGate(rate=0.2, conv=3, horizon=2000),
        surnn.FullGate(rate=0.2, hidden=8, horizon=2000),
    ],
)
def test_gates_that_see_the_input_have_their_rate_on_standard_inputs(spec, features):
    gate = spec.bind(8, 1, features).eval()
    (g, _), _ = gate(steps(1, 2000), torch.randn(2000, 4, features))
    assert (g.mean((0, 1)) - 0.2).abs().max() < 0.05


@pytest.mark.parametrize("name", ["input", "ssm", "full"])
@pytest.mark.parametrize("mode", ["hard", "sampled", "soft"])
def test_a_gate_that_sees_nan_stays_closed_and_recovers(name, mode):
    gate = GATES[name](mode=mode).bind(12, 3, FEATURES)
    x = torch.randn(STEPS, BATCH, FEATURES)
    x[10, 1, 2] = float("nan")
    schedule, memory = gate(steps(1), x)
    assert (schedule.g[10, 1] == 0).all()
    assert schedule.g.isfinite().all()
    assert memory.isfinite().all()
    assert schedule.g[11:, 1].mean() > 0.05
    schedule.g.sum().backward()
    assert all(p.grad.isfinite().all() for p in gate.parameters())


def test_a_large_seed_is_fine():
    schedule, _ = bound("fixed_random", seed=2**80 + 1)(steps(1))
    assert 0 < schedule.g.mean() < 1


def test_gates_are_made_in_float32_whatever_the_default():
    torch.set_default_dtype(torch.bfloat16)
    try:
        gate = bound("rhythm")
    finally:
        torch.set_default_dtype(torch.float32)
    assert gate.phase.dtype == torch.float32


# ------------------------------------------------------------------ clocks that run for years


def test_rhythm_at_a_billion_steps_is_the_float64_formula():
    gate = bound("rhythm", hidden=64, heads=1, rate=0.3)
    first = 10**9
    (g, _), _ = gate(steps(first, 2000))
    t = np.arange(first, first + 2000, dtype=np.float64)
    period = np.exp2(np.linspace(1, math.log2(2 * STEPS), 64))
    amplitude, phase = (p.detach().double().numpy() for p in (gate.amplitude, gate.phase))
    angle = t[:, None, None] * (2 * np.pi / period) + phase
    a = (amplitude * np.sin(angle)).sum(-1) + gate.bias.detach().double().numpy()
    assert np.array_equal(g[:, 0].detach().numpy() == 1, a > 0)

    single = (2 * np.pi / period).astype(np.float32) * t.astype(np.float32)[:, None, None]
    a32 = (amplitude * np.sin(single + phase)).sum(-1) + gate.bias.detach().double().numpy()
    assert (g[:, 0].detach().numpy() == 1).tolist() != (a32 > 0).tolist()


@pytest.mark.parametrize("name", ["spline", "spectral", "table"])
def test_periodic_gates_repeat_exactly_after_years(name):
    gate = bound(name, rate=0.3)
    turns = 10**7 * STEPS
    (early, _), _ = gate(steps(1))
    (late, _), _ = gate(steps(1 + turns))
    assert torch.equal(early, late)


def test_warped_rhythm_starts_as_the_rhythm_and_its_clock_stays_monotone():
    plain = bound("rhythm", granularity="unit")
    for per_unit in (False, True):
        gate = bound("warped", granularity="unit", per_unit=per_unit)
        state = {k: v for k, v in gate.state_dict().items() if k != "speed"}
        plain.load_state_dict(state)
        for first in (1, 10**9):
            torch.testing.assert_close(
                gate.wave(steps(first)), plain.wave(steps(first)), atol=1e-6, rtol=0
            )
        gate.speed.data.normal_()
        tau = gate.warped(steps(0, 3 * STEPS))
        assert (tau.diff(dim=0) > 0).all()
        torch.testing.assert_close(tau[STEPS], torch.full_like(tau[0], STEPS))


def test_spline_is_a_partition_of_unity_with_compact_support():
    gate = bound("spline", knots=10)
    gate.coefficient.data.fill_(1.0)
    torch.testing.assert_close(gate.wave(steps(1)), torch.ones(STEPS, 1, 3).double())
    gate.coefficient.data.zero_()
    gate.coefficient.data[5] = 1.0
    touched = (gate.wave(steps(1)) != 0)[:, 0, 0]
    assert 0 < touched.sum() <= 4 * STEPS / 10


def test_spectral_is_the_inverse_transform_of_its_masked_coefficients():
    gate = bound("spectral", hidden=3, heads=1, bins=16)
    spectrum = torch.zeros(3, STEPS // 2 + 1, dtype=torch.complex128)
    on = (gate.mask > 0).double()
    assert 0 < on.mean() < 1
    for k, cycle in enumerate(gate.cycles):
        spectrum[:, cycle] = torch.complex(gate.real[:, k].double(), gate.imag[:, k].double())
        spectrum[:, cycle] *= on[:, k] * (STEPS if cycle == STEPS // 2 else STEPS / 2)
    signal = torch.fft.irfft(spectrum, STEPS).t()  # t = 0 ... T-1
    torch.testing.assert_close(gate.wave(steps(0))[:, 0], signal)
    gate.density.backward()
    assert gate.mask.grad is not None


def test_random_schedule_is_fair_and_depends_on_its_seed():
    gate = bound("fixed_random", hidden=256, heads=1, rate=0.17)
    (g, _), _ = gate(steps(1, 4000))
    assert abs(g.mean().item() - 0.17) < 0.003
    assert abs(g.mean(0).std().item() - math.sqrt(0.17 * 0.83 / 4000)) < 2e-3
    neighbours = (g[1:] * g[:-1]).mean().item()
    assert abs(neighbours - 0.17**2) < 2e-3
    other = bound("fixed_random", hidden=256, heads=1, rate=0.17, seed=1)
    assert not torch.equal(other(steps(1, 4000))[0].g, g)


def test_every_n():
    gate = bound("every_n", n=4, granularity="unit")
    (g, _), _ = gate(steps(1, 12))
    assert g[:, 0, 0].nonzero().flatten().tolist() == [3, 7, 11]
    staggered = bound("every_n", n=4, granularity="unit", staggered=True)(steps(1, 12))[0].g
    assert (staggered.sum(-1) == 3).all()


def rhythm_snn_mask(units: int, shortest: int, longest: int, count: int) -> np.ndarray:
    """Their mask [count, units], pattern by pattern, with ceil for the open steps."""
    rows = []
    for j in range(units):
        along = Fraction(j, units - 1)
        period = round(shortest + (longest - shortest) * along)
        steps_open = math.ceil((1 + 9 * along) / 100 * period)
        pattern = np.roll(np.arange(period) < steps_open, round(longest / 2 * along))
        rows.append(np.resize(pattern, count))
    return np.array(rows).T


@pytest.mark.parametrize(
    ("units", "shortest", "mean"), [(64, 10, 0.0697), (256, 20, 0.0653), (256, 30, 0.0635)]
)
def test_cycles_are_the_mask_of_rhythm_snn(units, shortest, mean):
    gate = surnn.Cycles(min_period=shortest).bind(units)
    (g, _), _ = gate(steps(1, 784))
    assert np.array_equal(g[:, 0].numpy(), rhythm_snn_mask(units, shortest, 100, 784))
    assert g.any(0).all()
    assert round(gate.rate, 4) == mean


def test_cycles_share_their_gates_and_may_be_alone():
    gate = surnn.Cycles(always_on=0.25, granularity=3).bind(12)
    (g, _), _ = gate(steps(1, 2800))  # cycles of 10, 40, 70 and 100 steps
    assert g.sum(0).flatten().tolist() == [2800, 2 * 70, 5 * 40, 10 * 28]
    alone = surnn.Cycles(min_period=7, max_period=7, granularity="layer").bind(12)
    assert alone(steps(1, 21))[0].g.flatten().nonzero().flatten().tolist() == [0, 7, 14]
    assert alone.rate == 1 / 7


def test_cycles_are_exact_after_ages():
    gate = surnn.Cycles(min_period=10, max_period=10**9).bind(1000)
    period, steps_open, shift = (each.tolist() for each in gate.cycles())
    for first in (6 * 10**8 - 20, 10**15, 2**62):  # at first the last gate closes
        (g, _), _ = gate(steps(first, 50))
        wanted = [
            [(t - 1 - s) % p < o for p, o, s in zip(period, steps_open, shift, strict=True)]
            for t in range(first, first + 50)
        ]
        assert g[:, 0].bool().tolist() == wanted
        assert 0 < g.mean() < 1


def test_threshold_opens_where_any_channel_exceeds_it():
    x = torch.tensor([[0.0, 0.0], [0.5, -1.0], [-1.0, -2.0]])[:, None]
    (g, _), _ = surnn.Threshold(0.2).bind(4, 1, 2)(steps(1, 3), x)
    assert g.flatten().tolist() == [0.0, 1.0, 0.0]


# ------------------------------------------------------------------ options of all gates


def test_always_on_units_are_open_and_get_no_gradient():
    gate = bound("rhythm", granularity="unit", always_on=0.3, rate=0.1)
    schedule, _ = gate(steps(1))
    forced = math.ceil(0.3 * 12)
    assert (schedule.g[..., :forced] == 1).all()
    assert abs(schedule.g[..., forced:].mean().item() - 0.1) < 1e-6
    assert not schedule.relevant[..., :forced].any()
    schedule.g.sum().backward()
    assert (gate.bias.grad[:forced] == 0).all()
    assert (gate.bias.grad[forced:] != 0).all()


def test_frozen_gates_never_learn():
    layer = surnn.SuGRU(FEATURES, 12, heads=3, gate=surnn.Rhythm(frozen=True))
    y, _ = layer(torch.randn(STEPS, BATCH, FEATURES))
    y.sum().backward()
    assert all(not p.requires_grad and p.grad is None for p in layer.gates.parameters())


def test_target_rate_penalty_pulls_the_rate_to_its_target():
    layer = surnn.SuGRU(
        FEATURES, 12, heads=3, gate=surnn.Rhythm(rate=0.6, target_rate=0.2, horizon=STEPS)
    )
    x = torch.randn(STEPS, BATCH, FEATURES)
    optimiser = torch.optim.Adam(layer.gates.parameters(), lr=0.02)
    layer(x)
    assert abs(layer.rate_penalty().item() - 0.4) < 1e-6
    for _ in range(200):
        layer(x)
        optimiser.zero_grad()
        layer.rate_penalty().backward()
        optimiser.step()
    assert abs(layer.update_rate.item() - 0.2) < 0.05
    without = surnn.SuGRU(FEATURES, 12, heads=3)
    without(x)
    assert without.rate_penalty() == 0


def test_the_target_moves_from_the_first_rate():
    gate = surnn.Rhythm(rate=0.6, target_rate=0.2)
    rate = torch.tensor(0.9)
    expected = {0.0: 0.3, 0.5: 0.5, 1.0: 0.7}
    for progress, penalty in expected.items():
        gate.target_progress = progress
        torch.testing.assert_close(gate.rate_penalty(rate), torch.tensor(penalty))
    gate.target_progress = 1.0
    assert torch.equal(gate.rate_penalty(rate), (rate - 0.2).abs())


def test_sampled_mode_draws_in_training_and_anneals():
    gate = surnn.InputGate(rate=0.3, surrogate=Surrogate(slope=2.0)).bind(64, 1, FEATURES)
    x = torch.randn(STEPS, BATCH, FEATURES)
    hard = gate.eval()(steps(1), x)[0].g
    gate.train()
    drawn = [gate(steps(1), x)[0].g for _ in range(2)]
    assert not torch.equal(*drawn)
    gate.noise = 0.0
    assert torch.equal(gate(steps(1), x)[0].g, hard)


def test_soft_mode_is_the_sigmoid():
    gate = surnn.Rhythm(mode="soft", surrogate=Surrogate(slope=3.0), horizon=STEPS).bind(12)
    (g, _), _ = gate(steps(1))
    a, _ = gate.preactivation(steps(1), None, torch.zeros(0))
    torch.testing.assert_close(g, torch.sigmoid(3 * a))
    assert not gate.binary


def test_compact_surrogate_marks_what_matters():
    gate = bound("rhythm", surrogate=Surrogate("triangle", slope=2.0))
    schedule, _ = gate(steps(1))
    a, _ = gate.preactivation(steps(1), None, torch.zeros(0))
    assert torch.equal(schedule.relevant, a.abs() <= 0.5)
    assert 0 < schedule.relevant.float().mean() < 1


def test_half_precision_moves_everything_but_the_clock():
    layer = surnn.SuGRU(FEATURES, 12, heads=3)
    before = layer.gates[0].phase.clone()
    layer.to(torch.bfloat16)
    assert layer.weight_ih_l0.dtype == torch.bfloat16
    assert torch.equal(layer.gates[0].phase, before)
    assert layer.double().gates[0].phase.dtype == torch.float64


def test_trainable_frequencies():
    gate = bound("rhythm", train_frequencies=True)
    gate(steps(1))[0].g.sum().backward()
    assert gate.omega.grad.abs().sum() > 0
    assert "omega" not in dict(bound("rhythm").named_parameters())


def test_state_space_gate_equals_its_recurrence():
    decay = torch.rand(4, dtype=torch.float64)
    u = torch.randn(37, 2, 4, dtype=torch.float64)
    s = initial = torch.randn(2, 4, dtype=torch.float64)
    expected = []
    for u_t in u:
        s = decay * s + u_t
        expected.append(s)
    torch.testing.assert_close(diagonal_scan(decay, u, initial), torch.stack(expected))


def test_streams_may_run_on_clocks_of_their_own():
    gate = bound("rhythm")
    starts = torch.tensor([1, 500])
    t = starts + torch.arange(10)[:, None]
    (both, _), _ = gate(t)
    assert both.shape == (10, 2, 3)
    for column, start in enumerate(starts.tolist()):
        assert torch.equal(both[:, column], gate(steps(start, 10))[0].g[:, 0])


def test_a_gate_of_ones_own_is_a_small_class():
    class Weekend(surnn.Gate):
        def setup(self, width, input_size):
            self.offset = torch.nn.Parameter(torch.zeros(width))

        def preactivation(self, t, x, memory):
            weekend = (t % 7 >= 5).double().unsqueeze(-1)
            return weekend - 0.5 + self.offset, memory

    layer = surnn.SuGRU(FEATURES, 12, heads=3, gate=Weekend())
    y, _ = layer(torch.randn(70, BATCH, FEATURES))
    assert abs(layer.update_rate.item() - 2 / 7) < 1e-6
    y.sum().backward()
    assert (layer.gates[0].offset.grad != 0).all()
