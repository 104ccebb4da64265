"""The gate with all parts: its sum, its special cases, its memory; margins and annealing."""

import copy

import pytest
import torch
from torch.nn import functional

import surnn
from surnn import FullGate, Surrogate
from surnn.scan import ScanInputs

STEPS, BATCH, FEATURES = 60, 3, 5
ALONE = {"rhythm": False, "input": False, "ssm": False, "conv": 0}


def steps(count: int = STEPS, first: int = 1) -> torch.Tensor:
    return torch.arange(first, first + count)[:, None]


def bound(**options) -> surnn.Gate:
    return FullGate(horizon=STEPS, **options).bind(12, 3, FEATURES)


def test_the_sum_is_that_of_its_parts():
    gate = bound(conv=3).double()
    x = torch.randn(STEPS, BATCH, FEATURES, dtype=torch.float64)
    a, _ = gate.preactivation(steps(), x, gate.init_memory(BATCH))
    decay = torch.exp(-torch.exp(-gate.log_time))
    s = torch.zeros(BATCH, gate.modes, dtype=torch.float64)
    for t in range(STEPS):
        s = decay * s + (1 - decay) * functional.linear(x[t], gate.lift)
        expected = gate.bias + functional.linear(x[t], gate.read_input)
        expected = expected + functional.linear(s, gate.read_state)
        for lag in (1, 2, 3):
            if t >= lag:
                expected = expected + functional.linear(x[t - lag], gate.read_recent[:, lag - 1])
        angle = gate.angular_frequency() * (t + 1) + gate.phase
        expected = expected + (gate.amplitude * angle.sin()).sum(-1)
        torch.testing.assert_close(a[t], expected)


def test_with_a_hidden_layer_the_parts_that_see_the_input_lead_there():
    gate = bound(conv=1, hidden=7).double()
    x = torch.randn(STEPS, BATCH, FEATURES, dtype=torch.float64)
    with torch.no_grad():
        gate.joint_bias.normal_()
    a, _ = gate.preactivation(steps(), x, gate.init_memory(BATCH))
    decay = torch.exp(-torch.exp(-gate.log_time))
    s = torch.zeros(BATCH, gate.modes, dtype=torch.float64)
    for t in range(STEPS):
        s = decay * s + (1 - decay) * functional.linear(x[t], gate.lift)
        seen = gate.joint_bias + functional.linear(x[t], gate.read_input)
        seen = seen + functional.linear(s, gate.read_state)
        if t:
            seen = seen + functional.linear(x[t - 1], gate.read_recent[:, 0])
        angle = gate.angular_frequency() * (t + 1) + gate.phase
        waves = (gate.amplitude * angle.sin()).sum(-1)
        read = functional.linear(functional.gelu(seen), gate.read_joint)
        torch.testing.assert_close(a[t], gate.bias + waves + read)


@pytest.mark.parametrize(
    ("special", "parts"),
    [
        (surnn.Rhythm(horizon=STEPS), {"rhythm": True}),
        (surnn.Rhythm(horizon=STEPS, train_frequencies=True), {"rhythm": True}),
        (surnn.InputGate(), {"input": True}),
        (surnn.SSMGate(horizon=STEPS), {"ssm": True, "input": True}),
    ],
)
def test_other_gates_are_special_cases(special, parts):
    """With the same parameters it computes the same numbers, gradients included."""
    other = special.bind(12, 3, FEATURES)
    learned = getattr(special, "train_frequencies", False)
    full = bound(**{**ALONE, **parts}, train_frequencies=learned, mode=special.mode)
    names = {"weight": "read_input"}
    full.load_state_dict({names.get(n, n): v for n, v in other.state_dict().items()})
    assert (full.sees_input, full.reads_clock) == (other.sees_input, other.reads_clock)
    x = torch.randn(STEPS, BATCH, FEATURES)
    results = []
    for gate in (full, other):
        torch.manual_seed(0)
        schedule, memory = gate(steps(), x)
        schedule.g.square().sum().backward()
        grads = {names.get(n, n): p.grad for n, p in gate.named_parameters()}
        results.append([schedule.g, memory, *(grads[n] for n in sorted(grads))])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_a_part_that_is_left_out_has_no_parameters():
    names = {
        "rhythm": {"amplitude", "phase"},
        "input": {"read_input"},
        "ssm": {"log_time", "lift", "read_state"},
        "conv": {"read_recent"},
    }
    for part, own in names.items():
        gate = bound(**{**ALONE, part: 2 if part == "conv" else True})
        assert {name for name, _ in gate.named_parameters()} == own | {"bias"}
        assert gate.needs_state() == (part != "input")


def test_the_memory_holds_each_sequence_at_its_own_end():
    gate = bound(conv=2, mode="hard")
    x = torch.randn(STEPS, BATCH, FEATURES)
    lengths = torch.tensor([STEPS, 1, 17])
    _, memory = gate(steps(), x, None, lengths)
    for b, length in enumerate(lengths.tolist()):
        _, alone = gate(steps(length), x[:length, b : b + 1])
        torch.testing.assert_close(memory[b], alone[0])
    window = memory[:, gate.modes :].unflatten(-1, (FEATURES, 2))
    assert torch.equal(window[2], x[15:17, 2].t())
    assert torch.equal(window[1, :, 0], torch.zeros(FEATURES))


def test_gradients_flow_into_all_parts_and_the_input():
    gate = FullGate(conv=2, hidden=6, horizon=STEPS)
    layer = surnn.SuGRU(FEATURES, 12, heads=3, gate=gate)
    x = torch.randn(STEPS, BATCH, FEATURES, requires_grad=True)
    layer(x)[0].square().sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in layer.gates.parameters())


def test_it_needs_a_part_that_exists():
    with pytest.raises(ValueError, match="needs a part: set rhythm, input, ssm or conv"):
        FullGate(**ALONE)
    with pytest.raises(ValueError, match="at least 0, got -1"):
        FullGate(conv=-1)
    with pytest.raises(ValueError, match="modes and horizon must be at least 1"):
        FullGate(modes=0)
    with pytest.raises(ValueError, match="frequencies must be at least 1"):
        FullGate(frequencies=0)
    with pytest.raises(ValueError, match="units that read the input, at least 1, got 0"):
        FullGate(hidden=0)
    with pytest.raises(ValueError, match="it needs input, ssm or conv"):
        FullGate(input=False, ssm=False, hidden=3)


def test_calibration_counts_no_padding():
    layer = surnn.SuGRU(FEATURES, 12, heads=3, gate=FullGate(rate=0.2, conv=2, horizon=STEPS))
    x = torch.randn(STEPS, 8, FEATURES) + 3
    lengths = torch.randint(5, 20, (8,))
    layer.calibrate(x, lengths=lengths).eval()
    layer(x, lengths=lengths)
    assert abs(layer.update_rate.item() - 0.2) < 0.02
    layer.calibrate(x)  # on the padding too
    layer(x, lengths=lengths)
    assert abs(layer.update_rate.item() - 0.2) > 0.001


# ------------------------------------------------------------------ margins


def test_the_margin_penalty_empties_the_margin():
    torch.manual_seed(0)
    gate = FullGate(horizon=STEPS, margin=0.3, conv=1)
    layer = surnn.SuGRU(FEATURES, 12, heads=3, gate=gate)
    x = torch.randn(STEPS, BATCH, FEATURES)
    inside = []

    def count(module, inputs, output):
        a, _ = module.preactivation(steps(), x, module.init_memory(BATCH))
        inside.append((a.abs() < 0.3).float().mean().item())

    layer.gates[0].register_forward_hook(count)
    optimizer = torch.optim.Adam(layer.gates.parameters(), lr=0.03)
    for _ in range(150):
        layer(x)
        optimizer.zero_grad()
        layer.margin_penalty().backward()
        optimizer.step()
    assert inside[0] > 0.1
    assert inside[-1] < 0.2 * inside[0]


def test_the_margin_penalty_is_the_formula():
    layer = surnn.SuGRU(
        FEATURES, 12, 2, heads=3, gate=[FullGate(margin=0.5, always_on=0.3), surnn.Rhythm()]
    )
    gate = layer.gates[0]
    x = torch.randn(STEPS, BATCH, FEATURES)
    x[3, 1] = float("nan")  # such a gate is closed whatever its sum is
    lengths = torch.tensor([STEPS, 10, 30])
    layer(x, lengths=lengths)
    a, _ = gate.preactivation(steps(), x.nan_to_num(), gate.init_memory(BATCH))
    near = (1 - a / 0.5 * a.sign()).clamp(min=0)[..., 1:].mean(-1)
    near[3, 1] = 0
    exists = steps() <= lengths
    torch.testing.assert_close(layer.margin_penalty(), near[exists].mean())


def test_a_penalty_needs_a_pass_in_training():
    layer = surnn.SuGRU(FEATURES, 12, heads=3, gate=surnn.InputGate(margin=0.1))
    x = torch.randn(STEPS, BATCH, FEATURES)
    layer.eval()(x)
    with pytest.raises(RuntimeError, match=r"run layer.train\(\)\(x\) first"):
        layer.margin_penalty()
    layer.train()(x)
    assert layer.margin_penalty().requires_grad
    assert copy.deepcopy(layer).gates[0]._near == ()
    plain = surnn.SuGRU(FEATURES, 12)
    plain(x)
    assert plain.margin_penalty() == 0
    with pytest.raises(ValueError, match="margin is a distance from 0"):
        surnn.Rhythm(margin=-1)


# ------------------------------------------------------------------ annealing


def test_relaxed_gates_are_smooth_in_training_and_hard_at_evaluation():
    gate = surnn.Rhythm(mode="relaxed", surrogate=Surrogate(slope=3.0), horizon=STEPS).bind(12)
    a, _ = gate.preactivation(steps(), None, torch.zeros(0))
    torch.testing.assert_close(gate(steps())[0].g, torch.sigmoid(3 * a))
    assert not gate.binary
    gate.eval()
    assert gate.binary
    assert torch.equal(gate(steps())[0].g, (a > 0).double())


@pytest.mark.parametrize("mode", ["sampled", "relaxed"])
def test_annealing_ends_at_the_hard_gate(mode):
    layer = surnn.SuGRU(FEATURES, 12, heads=3, gate=FullGate(mode=mode, horizon=STEPS))
    gate, x = layer.gates[0], torch.randn(STEPS, BATCH, FEATURES)
    hard = copy.deepcopy(gate).eval()(steps(), x)[0].g
    assert surnn.anneal(layer, 10, begin=10, end=20) == 1.0
    assert surnn.anneal(layer, 15, begin=10, end=20) == 0.5
    noise = gate.noise
    assert not torch.equal(gate(steps(), x)[0].g, hard)
    assert surnn.anneal(layer, 20, begin=10, end=20) == 0.0
    assert gate.noise is noise  # a graph or a compiled layer reads the same tensor
    g = gate(steps(), x)[0].g
    assert torch.equal(g, hard)
    g.sum().backward()
    assert (gate.bias.grad != 0).all()


def test_a_relaxed_layer_gives_fractions_to_the_scan():
    """Backends that skip closed units must not see a half-open gate as binary."""
    layer = surnn.SuGRU(FEATURES, 12, heads=3, gate=surnn.Rhythm(mode="relaxed", horizon=STEPS))
    seen: list[ScanInputs] = []
    run = layer._scan

    def watch(inputs, backend):
        seen.append(inputs)
        return run(inputs, backend)

    layer._scan = watch
    x = torch.randn(STEPS, BATCH, FEATURES)
    y, _ = layer(x)
    layer.backend = "reference"
    torch.testing.assert_close(layer(x)[0], y)
    layer.eval()(x)
    assert [inputs.binary for inputs in seen] == [False, False, True]
