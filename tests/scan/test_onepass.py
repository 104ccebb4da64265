"""The paper's fused form: which results equal the reference, and which do not."""

import pytest
import torch

import surnn
from helpers.scans import (
    assert_same,
    make_inputs,
    onepass_scan,
    reference_scan,
    run_with_gradients,
)
from surnn.analysis import retention, skip_drive_for_retention
from surnn.scan import onepass


@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("per_unit", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("padded", [False, True])
def test_outputs_and_all_gradients_but_the_gates_equal_reference(
    per_sequence, per_unit, heads, padded
):
    inputs = make_inputs(
        "gru",
        steps=40,
        heads=heads,
        per_sequence=per_sequence,
        per_unit=per_unit,
        lengths=torch.tensor([40, 3, 17]) if padded else None,
    )
    found = run_with_gradients(onepass_scan, inputs)
    expected = run_with_gradients(reference_scan, inputs)
    del found["dgate"], expected["dgate"]
    assert_same(found, expected, rtol=1e-9, atol=1e-11)


def test_its_gate_gradient_vanishes_at_closed_steps_and_is_another_at_open_ones():
    inputs = make_inputs("gru", steps=200, heads=1, width=8, rate=0.4, per_unit=True)
    found = run_with_gradients(onepass_scan, inputs)["dgate"]
    true = run_with_gradients(reference_scan, inputs)["dgate"]
    closed = inputs.gate == 0
    assert (found[closed] == 0).all()
    share = (true[closed].norm() / true.norm()).item()
    assert share > 0.4  # the missing part is large
    # At open steps it is -C dL/dz, which is not parallel to the definition's gradient.
    cosine = torch.nn.functional.cosine_similarity(found[~closed], true[~closed], dim=0)
    assert cosine < 0.9


def test_the_gate_gradient_at_open_steps_is_that_of_the_skip_drive():
    """-C times the gradient by z's pre-activation, which one open step's bias gets."""
    inputs = make_inputs("gru", steps=1, batch=1, heads=1, width=2, features=1, rate=1.1)
    found = run_with_gradients(onepass_scan, inputs)
    constant = onepass.exact_skip_drive(inputs)
    by_z = found["dbias"][0, 1].sum()
    torch.testing.assert_close(found["dgate"].sum(), -constant * by_z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_carry_is_exact_for_inputs_of_any_scale(dtype, scale):
    gate = torch.zeros(1000, 1, 1, 8)
    gate[::5, ..., :4] = 1
    gate[0] = 1
    inputs = make_inputs("gru", steps=1000, heads=1, width=8, gate=gate, dtype=dtype)
    inputs.x.data.mul_(scale)
    y, last = onepass_scan(inputs)
    before = torch.cat((inputs.state[None, :, :, 0], y[:-1]))
    closed = (gate == 0).expand_as(y)
    assert torch.equal(y[closed], before[closed])
    assert torch.equal(last[:, :, 0], y[-1])
    torch.testing.assert_close(y, reference_scan(inputs)[0], rtol=0, atol=5e-5)


def test_outputs_and_gradients_hold_for_large_inputs():
    """A drive of z below -15 would open closed units if C were a constant."""
    inputs = make_inputs("gru", steps=40, per_unit=True)
    inputs.x.data.mul_(10)
    inputs.bias.data[:, 1] -= 40
    found = run_with_gradients(onepass_scan, inputs)
    expected = run_with_gradients(reference_scan, inputs)
    del found["dgate"], expected["dgate"]
    assert_same(found, expected, rtol=1e-9, atol=1e-10)


def test_a_step_without_an_open_unit_is_not_read():
    gate = torch.ones(9, 1, 2, 3)
    gate[4] = 0
    inputs = make_inputs("gru", steps=9, gate=gate)
    expected = run_with_gradients(onepass_scan, inputs)
    inputs.x.data[4] = float("nan")
    found = run_with_gradients(onepass_scan, inputs)
    assert_same(found, expected, rtol=1e-9, atol=1e-10)


def test_a_constant_of_ones_own_carries_as_the_paper_does():
    """It is not exact, and says so: nothing is copied."""
    gate = torch.zeros(50, 1, 1, 8)
    gate[0] = 1
    inputs = make_inputs("gru", steps=50, heads=1, width=8, gate=gate)
    y, _ = onepass_scan(inputs.replace(skip_drive=4.0))
    assert not torch.equal(y[-1], y[0])


def test_with_a_constant_of_ones_own_closed_units_read_x():
    """As in the paper: ``z' = sigmoid(z + C)`` lets a little of the proposal through."""
    inputs = make_inputs("gru", steps=1, heads=1, gate=torch.zeros(1, 1, 1, 1))
    y, _ = onepass_scan(inputs.replace(skip_drive=2.0))
    h, state = inputs.state[:, 0, 0], inputs.state[:, 0, 0] @ inputs.recurrent[0].mT
    r, z, n = torch.einsum("sdi,bi->sbd", inputs.weight[0], inputs.x[0]) + inputs.bias[0, :, None]
    z = torch.sigmoid(z + state[1] + 2.0)
    n = torch.tanh(n + torch.sigmoid(r + state[0]) * (state[2] + inputs.unit[0, 0]))
    torch.testing.assert_close(y[0, :, 0], (1 - z) * n + z * h)
    x = torch.full_like(inputs.x, float("nan"))
    assert onepass_scan(inputs.replace(skip_drive=2.0, x=x))[0].isfinite().all()


def test_retention_bound_and_the_constant_it_asks_for():
    # Values of the table in the project's protocols: steps, loss, C.
    for steps, loss, constant in ((784, 0.1, 8.9), (1024, 0.01, 11.5), (5000, 0.001, 15.4)):
        found = skip_drive_for_retention(loss, steps)
        assert abs(found - constant) < 0.06
        assert abs(retention(found, steps) - (1 - loss)) < 1e-9
    assert abs(skip_drive_for_retention(0.1, 784, z=-5.0) - skip_drive_for_retention(0.1, 784)) == 5
    with pytest.raises(ValueError, match="0 < loss < 1"):
        skip_drive_for_retention(0.0, 10)


def test_a_chosen_constant_keeps_what_the_bound_promises():
    """Pull towards n = 1 from h = 0: what is lost of h over the gap is below the bound."""
    steps, loss = 300, 0.05
    torch_gru = torch.nn.GRU(1, 1, dtype=torch.float64)
    with torch.no_grad():
        for parameter in torch_gru.parameters():
            parameter.zero_()
        torch_gru.bias_ih_l0[2] = 20.0
    constant = skip_drive_for_retention(loss, steps)
    layer = surnn.SuGRU.from_torch(
        torch_gru, gate=surnn.EveryN(10**6), backend="onepass", skip_drive=constant
    )
    _, h_n = layer(torch.zeros(steps, 1, 1, dtype=torch.float64))
    assert abs(h_n.item() - loss) < 1e-6


def test_layers_run_on_it_except_with_soft_gates():
    layer = surnn.SuGRU(3, 8, num_layers=2, bidirectional=True, heads=2, backend="onepass")
    x = torch.randn(30, 2, 3)
    y, _ = layer(x)
    layer.backend = "reference"
    torch.testing.assert_close(y, layer(x)[0])
    with pytest.raises(ValueError, match="soft gate"):
        surnn.SuGRU(3, 8, gate=surnn.Rhythm(mode="soft"), backend="onepass")(x)
    assert surnn.SuGRU(3, 8, gate=surnn.Rhythm(frozen=True)).chosen_backend != "onepass"
