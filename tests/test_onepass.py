"""The paper's fused form: what equals the reference, and what does not."""

import pytest
import torch

import surnn
from conftest import assert_same, make_inputs, run_with_gradients
from surnn.analysis import retention, skip_drive_for_retention
from surnn.cells import get_cell
from surnn.scan import choose, onepass, reference


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
    found = run_with_gradients(onepass.scan, inputs)
    expected = run_with_gradients(reference.scan, inputs)
    del found["dgate"], expected["dgate"]
    assert_same(found, expected, rtol=1e-9, atol=1e-11)


def test_its_gate_gradient_vanishes_at_closed_steps_and_is_another_at_open_ones():
    inputs = make_inputs("gru", steps=200, heads=1, width=8, rate=0.4, per_unit=True)
    found = run_with_gradients(onepass.scan, inputs)["dgate"]
    true = run_with_gradients(reference.scan, inputs)["dgate"]
    closed = inputs.gate == 0
    assert (found[closed] == 0).all()
    share = (true[closed].norm() / true.norm()).item()
    assert share > 0.4  # what it misses is no small part
    # At open steps it is -C dL/dz: parallel to nothing that the definition asks for.
    cosine = torch.nn.functional.cosine_similarity(found[~closed], true[~closed], dim=0)
    assert cosine < 0.9


def test_the_gate_gradient_at_open_steps_is_that_of_the_skip_drive():
    """-C times the gradient by z's pre-activation, which one open step's bias gets."""
    inputs = make_inputs("gru", steps=1, batch=1, heads=1, width=2, features=1, rate=1.1)
    found = run_with_gradients(onepass.scan, inputs)
    constant = onepass.exact_skip_drive(torch.float64)
    by_z = found["dbias"][0, 1].sum()
    torch.testing.assert_close(found["dgate"].sum(), -constant * by_z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_carry_holds_over_a_long_gap(dtype):
    gate = torch.zeros(1000, 1, 1, 8)
    gate[0] = 1
    inputs = make_inputs("gru", steps=1000, heads=1, width=8, gate=gate, dtype=dtype)
    y, _ = onepass.scan(inputs)
    drift = (y[-1] - y[0]).abs().max().item()
    assert drift < 100 * torch.finfo(dtype).eps
    exact, _ = reference.scan(inputs)
    assert torch.equal(exact[-1], exact[0])


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


def test_layer_runs_on_it_and_refuses_what_it_cannot():
    layer = surnn.SuGRU(3, 8, num_layers=2, bidirectional=True, heads=2, backend="onepass")
    x = torch.randn(30, 2, 3)
    y, _ = layer(x)
    layer.backend = "reference"
    torch.testing.assert_close(y, layer(x)[0])
    with pytest.raises(ValueError, match="soft gate"):
        surnn.SuGRU(3, 8, gate=surnn.Rhythm(mode="soft"), backend="onepass")(x)
    assert surnn.SuGRU(3, 8, gate=surnn.Rhythm(frozen=True)).chosen_backend != "onepass"


def test_auto_means_it_on_a_gpu_for_wide_heads_of_units_whose_gates_need_no_gradient():
    cuda = torch.device("cuda")
    wide = get_cell("gru"), 4096, cuda, torch.float64, torch.float64
    assert choose("auto", *wide, one_pass=True) == "onepass"
    assert choose("auto", *wide) == "events"
    assert choose("auto", *wide[:2], torch.device("cpu"), *wide[3:], one_pass=True) == "events"
