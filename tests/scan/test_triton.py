"""The Triton kernels against ``reference``, on a GPU or in Triton's interpreter.

The interpreter is chosen by ``TRITON_INTERPRET=1`` before Python starts (``make test`` does so in a
process of its own); there, shapes are tiny. On a GPU (``make test-gpu``) the grid is wide. Memory
that the kernels did not write holds NaN in all of these tests.
"""

import dataclasses

import pytest
import torch

import surnn
from helpers.kernels import (
    DEVICE,
    ON_GPU,
    SMALL,
    assert_kernels_equal_reference,
    interpreted,
    kernels,
    pytestmark,  # noqa: F401 (of this module)
)
from helpers.poison import INF, NAN, assert_reads_nothing, closed_gate
from helpers.scans import (
    converted,
    make_inputs,
    poisoned_memory,  # noqa: F401 (a fixture)
    reference_scan,
    run_with_gradients,
)
from surnn.nn.cells import CELLS
from surnn.nn.runtime import has_triton

if has_triton():
    from surnn.scan.triton import launch, sizes

# ------------------------------------------------------------------ everywhere


@interpreted  # a GPU runs the same at larger sizes below, and every variant takes time to compile
@pytest.mark.parametrize("cell", sorted(CELLS))
@pytest.mark.parametrize("kind", SMALL)
def test_small(cell, kind):
    assert_kernels_equal_reference(
        make_inputs(cell, adaptation_always_decays=cell == "alif", **SMALL[kind])
    )


@interpreted
@pytest.mark.parametrize("cell", sorted(CELLS))
@pytest.mark.parametrize("per_unit", [False, True])
def test_lengths(cell, per_unit):
    lengths = torch.tensor([11, 1, 6])
    inputs = make_inputs(cell, per_sequence=True, per_unit=per_unit, lengths=lengths)
    assert_kernels_equal_reference(inputs)


@interpreted
@pytest.mark.parametrize("cell", sorted(CELLS))
@pytest.mark.parametrize(("kind", "padded"), [("plain", False), ("per unit", True)])
def test_resets(cell, kind, padded):
    lengths = torch.tensor([11, 1, 6]) if padded else None
    options = {**SMALL[kind], "lengths": lengths, "adaptation_always_decays": cell == "alif"}
    inputs = make_inputs(cell, **options)
    assert_kernels_equal_reference(inputs.replace(reset=torch.rand(11, 3) < 0.3))


@pytest.mark.parametrize("options", [{"binary": False}, {"batch": 1}, {"steps": 150, "rate": 0.05}])
def test_resets_of_soft_gates_one_sequence_and_long_segments(options):
    inputs = make_inputs("gru", **options)
    reset = torch.rand(inputs.x.shape[:2]) < 4 / len(inputs.x)
    assert_kernels_equal_reference(inputs.replace(reset=reset))


@pytest.mark.parametrize("cell", ["gru", "lstm", "alif"])
def test_soft_gates(cell):
    assert_kernels_equal_reference(make_inputs(cell, binary=False, per_unit=True))


@pytest.mark.parametrize("cell", ["gru", "lstm", "alif"])
@pytest.mark.parametrize("kind", ["plain", "per unit", "lengths"])
def test_heads_that_do_not_fit_on_chip(cell, kind):
    options = SMALL.get(kind, {"per_sequence": True, "lengths": torch.tensor([5, 1, 3])})
    assert_kernels_equal_reference(make_inputs(cell, steps=5, heads=1, width=130, **options))


@pytest.mark.parametrize("schedule", ["never", "always", "first", "last", "uneven"])
@pytest.mark.parametrize("per_sequence", [False, True])
def test_schedules(schedule, per_sequence):
    gate = torch.zeros(9, 3 if per_sequence else 1, 2, 1)
    if schedule == "always":
        gate[:] = 1
    elif schedule == "first":
        gate[0] = 1
    elif schedule == "last":
        gate[-1] = 1
    elif schedule == "uneven":
        gate[:, 0, 0] = 1
        gate[4, -1, 1] = 1
    assert_kernels_equal_reference(make_inputs("gru", steps=9, gate=gate))


def test_segments_longer_than_a_chunk():
    """Output gradients of one segment are summed over several chunks of steps."""
    gate = torch.zeros(200, 2, 2, 1)
    gate[3, 0, 0] = gate[150, 0, 0] = gate[64, 1, 0] = gate[127, 1, 1] = gate[128, 0, 1] = 1
    assert_kernels_equal_reference(make_inputs("gru", steps=200, batch=2, gate=gate))


@pytest.mark.parametrize("cell", sorted(CELLS))
@pytest.mark.parametrize("relevant", [False, True])
def test_gate_gradients_of_some_chunks_at_a_time(cell, relevant, monkeypatch):
    monkeypatch.setattr(launch, "PRODUCTS", 1)
    monkeypatch.setattr(sizes, "CHUNK", 8)
    monkeypatch.setattr(launch, "WALK", 4)
    inputs = make_inputs(cell, steps=19, rate=0.2, features=2, per_sequence=cell == "lstm")
    if relevant:
        inputs = inputs.replace(relevant=torch.ones(inputs.gate.shape[:3], dtype=torch.bool))
    assert_kernels_equal_reference(inputs)


@pytest.mark.parametrize("cell", ["gru", "alif"])
def test_only_relevant_steps_get_a_gate_gradient(cell):
    inputs = make_inputs(cell, per_sequence=True)
    relevant = torch.rand(inputs.gate.shape[:3]) < 0.3
    low = converted(inputs, torch.float32, DEVICE, relevant=relevant.to(DEVICE))
    found = run_with_gradients(kernels, low)["dgate"].cpu()
    expected = run_with_gradients(reference_scan, inputs)["dgate"]
    assert torch.allclose(found[relevant].double(), expected[relevant], rtol=1e-4, atol=1e-5)
    assert (found[~relevant.any(1)[:, None].expand_as(relevant)] == 0).all()


def test_relevant_steps_of_a_clock_with_lengths():
    """One mask for the batch, while lengths give each sequence lists of its own."""
    lengths = torch.tensor([11, 1, 6])
    inputs = make_inputs("gru", lengths=lengths)
    relevant = torch.rand(inputs.gate.shape[:3]) < 0.5
    low = converted(inputs, torch.float32, DEVICE, relevant=relevant.to(DEVICE))
    found = run_with_gradients(kernels, low)["dgate"].cpu().double()
    expected = run_with_gradients(reference_scan, inputs)["dgate"] * relevant.unsqueeze(-1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_long_memories_keep_their_gradient_in_half_precision(cell):
    """The cell keeps nearly all of its state at every event; rounding errors must not add up."""
    inputs = make_inputs(cell, steps=200, batch=2, heads=1, rate=1.1)
    with torch.no_grad():
        inputs.weight.mul_(0.1)
        inputs.recurrent.mul_(0.1)
        inputs.bias[:, 1] = 6.0
    low = converted(inputs, torch.float16, DEVICE)
    low = dataclasses.replace(low, state=low.state.detach().float().requires_grad_())
    exact = converted(low, torch.float64, "cpu")
    found = run_with_gradients(kernels, low)["dstate"].cpu().double()
    expected = run_with_gradients(reference_scan, exact)["dstate"]
    assert (found - expected).norm() / expected.norm() < 5e-3


def test_small_values_keep_their_digits():
    inputs = make_inputs("rnn_tanh", requires_grad=False)
    for part in (inputs.x, inputs.state, inputs.bias):
        part.mul_(1e-6)
    y, _ = kernels(converted(inputs, torch.float32, DEVICE))
    expected, _ = reference_scan(inputs)
    assert (y.cpu().double() - expected).norm() / expected.norm() < 1e-5


def test_nan_propagates_through_open_units():
    inputs = make_inputs("rnn_relu", rate=1.1, requires_grad=False)
    inputs.x[3] = float("nan")
    y, _ = kernels(converted(inputs, torch.float32, DEVICE))
    assert y[3].isnan().all()
    assert y[:3].isfinite().all()


def test_only_spiking_cells_have_a_decay():
    inputs = converted(make_inputs("alif"), torch.float32, DEVICE)
    with pytest.raises(ValueError, match="need a decay"):
        kernels(dataclasses.replace(inputs, decay=None))


@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn_tanh"])
def test_carry_is_exact(cell):
    inputs = converted(make_inputs(cell, steps=40, rate=0.3, per_unit=True), torch.float32, DEVICE)
    y, _ = kernels(inputs)
    closed = (inputs.gate == 0).expand_as(y)
    before = torch.cat((inputs.state[None, :, :, 0], y[:-1]))
    assert torch.equal(y[closed], before[closed])
    assert (y[~closed] != before[~closed]).any()


def test_a_closed_unit_does_not_read_nan():
    gate = torch.ones(9, 1, 2, 1)
    gate[4] = 0
    inputs = make_inputs("gru", steps=9, gate=gate)
    inputs.x.data[4] = float("nan")
    found = run_with_gradients(kernels, converted(inputs, torch.float32, DEVICE))
    for name in ("y", "last", "dgate", "dstate", "drecurrent", "dweight"):
        assert found[name].isfinite().all(), name
    assert (found["dgate"][4] == 0).all()


@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn_relu", "lif"])
@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("per_unit", [False, True])
@pytest.mark.parametrize("value", [NAN, -INF])
def test_closed_units_read_nothing_backward_either(cell, per_sequence, per_unit, value):
    gate = closed_gate(per_sequence, per_unit)

    def run(inputs):
        y, last = kernels(inputs)
        return y.cpu(), last.cpu()

    assert_reads_nothing(run, cell, gate, value, dtype=torch.float32)


def test_x_gets_no_nan_from_a_head_that_is_closed_there():
    """Head 1 opens at the last step only; its weights are NaN."""
    gate = torch.ones(9, 1, 2, 1)
    gate[:-1, :, 1] = 0
    inputs = make_inputs("rnn_relu", steps=9, gate=gate)
    inputs.weight.data[1] = NAN
    inputs = converted(inputs, torch.float32, DEVICE)
    for scan in (kernels, reference_scan):
        grad = run_with_gradients(scan, inputs)["dx"]
        assert grad[:-1].isfinite().all()
        assert grad[-1].isnan().all()


def test_recompute_keeps_less_and_changes_nothing():
    inputs = converted(make_inputs("gru"), torch.float32, DEVICE)
    plain = run_with_gradients(kernels, inputs)
    again = run_with_gradients(kernels, dataclasses.replace(inputs, recompute=True))
    assert all(torch.equal(plain[k], again[k]) for k in plain)

    def kept(recompute: bool) -> int:
        total = 0

        def pack(t):
            nonlocal total
            total += t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            kernels(dataclasses.replace(inputs, recompute=recompute))
        return total

    events = sum(int(n) for n in (inputs.gate != 0).flatten(0, 1).sum(0)) * 3
    assert kept(False) - kept(True) >= events * 3 * 3 * 4  # drives: S * D floats an event


@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("cell", ["gru", "alif"])
def test_capacity(cell, per_sequence):
    inputs = make_inputs(cell, steps=40, rate=0.3, per_sequence=per_sequence)
    inputs = converted(inputs, torch.float32, DEVICE)
    free = run_with_gradients(kernels, inputs)
    large = run_with_gradients(kernels, dataclasses.replace(inputs, max_rate=0.6))
    assert all(torch.equal(free[k], large[k]) for k in free)
    y, last = kernels(dataclasses.replace(inputs, max_rate=0.1))
    assert y.isnan().all()
    assert last.isnan().all()


def test_a_gradient_does_not_depend_on_which_others_are_needed():
    inputs = converted(make_inputs("gru"), torch.float32, DEVICE)
    everything = run_with_gradients(kernels, inputs)
    some = dataclasses.replace(inputs, x=inputs.x.detach(), gate=inputs.gate.detach())
    y, last = kernels(some)
    weights = torch.Generator().manual_seed(1)
    loss = (y * torch.randn(y.shape, generator=weights).to(y)).sum()
    loss = loss + (last * torch.randn(last.shape, generator=weights).to(last)).sum()
    (grad,) = torch.autograd.grad(loss, [some.recurrent])
    assert torch.equal(grad, everything["drecurrent"])
    (grad,) = torch.autograd.grad(kernels(some)[1].sum(), [some.weight])  # the last state alone
    assert grad.isfinite().all()


def test_a_second_derivative_is_an_error():
    inputs = converted(make_inputs("gru"), torch.float32, DEVICE)
    (grad,) = torch.autograd.grad(kernels(inputs)[0].square().sum(), [inputs.x], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dtype": torch.float64}, "torch.float64"),
        ({"width": 2000}, "2000 units in torch.float16"),
    ],
)
def test_errors_give_the_reason(options, reason):
    cell, dtype = options.get("cell", "gru"), options.get("dtype", torch.float16)
    inputs = make_inputs(cell, width=options.get("width", 3), steps=2, requires_grad=False)
    with pytest.raises(ValueError, match=reason):
        kernels(converted(inputs, dtype, DEVICE))


def test_operator():
    """Fakes, schemas and gradients as torch wants them."""
    from surnn.scan.triton.op import triton_backward, triton_forward  # noqa: PLC0415

    inputs = converted(make_inputs("gru", steps=5), torch.float32, DEVICE)
    operands = inputs.flat()
    arguments = (*operands, inputs.state, "ieee", False, 2 * 7)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(triton_forward, arguments, test_utils=checks)
    y, last, *saved = triton_forward(*arguments)
    grads = torch.randn_like(y), torch.randn_like(last)
    backward = (*operands, *grads, *saved, *arguments[-3:], True, True)
    detached = [v.detach() if isinstance(v, torch.Tensor) else v for v in backward]
    torch.library.opcheck(triton_backward, detached, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.filterwarnings("ignore:TensorFloat32")  # inductor's advice, on its own default
def test_compiled_layer_equals_eager():
    layer = surnn.SuGRU(5, 12, heads=2, gate=surnn.Rhythm(horizon=9), backend="triton").to(DEVICE)
    x = torch.randn(9, 3, 5, device=DEVICE, requires_grad=True)
    y, _ = layer(x)
    (expected,) = torch.autograd.grad(y.square().sum(), [layer.weight_hh_l0])
    torch.use_deterministic_algorithms(False)  # poisoning is not traced
    compiled = torch.compile(layer, fullgraph=True, backend="inductor" if ON_GPU else "aot_eager")
    found = compiled(x)[0]
    torch.testing.assert_close(found, y)
    (grad,) = torch.autograd.grad(found.square().sum(), [layer.weight_hh_l0])
    torch.testing.assert_close(grad, expected, rtol=1e-4, atol=1e-5)


def test_function_transforms_are_an_error():
    inputs = converted(make_inputs("gru"), torch.float32, DEVICE)

    def run(x):
        return kernels(dataclasses.replace(inputs, x=x))[0].sum()

    with pytest.raises(ValueError, match="use 'reference'"):
        torch.func.grad(run)(inputs.x.detach())


@pytest.mark.parametrize(("steps", "gates"), [(1, 1), (70, 3), (600, 9)])
def test_sinusoids(steps, gates):
    """The rhythm in one kernel is the rhythm; also very late on its clock."""
    from surnn.nn.gates.triton_sinusoids import FusedSinusoids  # noqa: PLC0415

    gate = surnn.Rhythm(frequencies=20).bind(gates).to(DEVICE)
    omega = gate.angular_frequency()
    parameters = [gate.amplitude, gate.phase, gate.bias]
    for start in (1, 10**9):
        t = torch.arange(start, start + steps, device=DEVICE)[:, None]
        found = FusedSinusoids.apply(t, omega, *parameters)
        expected = gate.wave(t) + gate.bias.double()
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
        by = torch.randn_like(expected)
        grads = torch.autograd.grad(found, parameters, by)
        for a, b in zip(grads, torch.autograd.grad(expected, parameters, by), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    first = FusedSinusoids.apply(t[-1:], omega, *parameters)
    assert torch.equal(first, found[-1:])  # a stream sees what the whole sequence saw
    twice = FusedSinusoids.apply(t, omega, *parameters).square().sum()
    (grad,) = torch.autograd.grad(twice, [gate.phase], create_graph=True)
    assert torch.autograd.grad(grad.sum(), [gate.phase])[0].isfinite().all()


@pytest.mark.parametrize(("steps", "features", "gates"), [(1, 1, 1), (70, 33, 5), (300, 130, 17)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16 if ON_GPU else torch.float16])
def test_gate_projection(steps, features, gates, dtype):
    """A linear map in float32; rows with NaN give NaN, and no gradient to the weights."""
    from surnn.nn.gates.triton_projection import FusedProjection  # noqa: PLC0415

    x = torch.randn(steps, 3, features, device=DEVICE).to(dtype).requires_grad_()
    weight = torch.randn(gates, features, device=DEVICE, requires_grad=True)
    bias = torch.randn(gates, device=DEVICE, requires_grad=True)
    by = torch.randn(steps, 3, gates, device=DEVICE)
    found = FusedProjection.apply(x, weight, bias)
    expected = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
    grads = torch.autograd.grad(found, (x, weight, bias), by)
    for a, b in zip(grads, torch.autograd.grad(expected, (x, weight, bias), by), strict=True):
        error = (a.double() - b.double()).norm() / b.double().norm()
        assert error < (1e-5 if dtype == torch.float32 else 4e-3)
    with torch.no_grad():
        x[0, 1, 0] = float("nan")
    spoiled = FusedProjection.apply(x, weight, bias)
    assert spoiled[0, 1].isnan().all()
    assert spoiled.isfinite().flatten(0, 1).all(-1).sum() == 3 * steps - 1
    by[0, 1] = 0
    assert all(v.isfinite().all() for v in torch.autograd.grad(spoiled, (x, weight, bias), by))


@interpreted
def test_an_infinite_voltage_spikes():
    """No head is open: the gate's gradient is that of a spike."""
    inputs = make_inputs("lif", steps=1, gate=torch.zeros(1, 1, 2, 1))
    inputs.x.data[:, :, 0] = INF
    assert_kernels_equal_reference(inputs)
