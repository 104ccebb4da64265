"""Operands that the native scan's C code must not read as they are: other dtypes and shapes."""

import pytest
import torch

import surnn
from helpers.scans import leaves, make_inputs, native_scan, reference_scan, run_with_gradients
from surnn.nn.layers.fast_step import fast_step
from surnn.scan import native
from surnn.scan.native import op

pytestmark = pytest.mark.skipif(not native.is_available(), reason="needs the C library")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["weight", "bias", "recurrent", "unit", "gate"])
def test_an_operand_of_another_dtype_is_not_read_as_float32(name, dtype):
    """Without the conversion, bfloat16 reads past the end of its memory."""
    inputs = make_inputs("gru", dtype=torch.float32)
    inputs = inputs.replace(**{name: getattr(inputs, name).detach().to(dtype).requires_grad_()})
    found = run_with_gradients(native_scan, inputs)
    expected = run_with_gradients(reference_scan, inputs)
    assert found.keys() == expected.keys()
    rounding = 1e-4 if dtype == torch.float64 else 2e-2  # of the gradient by that operand
    for key, value in expected.items():
        assert found[key].dtype == value.dtype
        limit = rounding if key == f"d{name}" else 1e-4
        error = (found[key].double() - value.double()).norm()
        assert error <= limit * value.double().norm().clamp(min=0.1), key


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["weight_hh_l0", "bias_hh_l0", "bias_ih_l0"])
def test_a_layer_with_one_parameter_of_another_dtype(name, dtype):
    torch.manual_seed(0)
    layer, x = surnn.SuGRU(3, 4, gate="every_n"), torch.randn(9, 2, 3)
    setattr(layer, name, torch.nn.Parameter(getattr(layer, name).detach().to(dtype)))
    assert layer.chosen_backend == "native"
    found, _ = layer(x)
    layer.backend = "reference"
    torch.testing.assert_close(found, layer(x)[0], rtol=1e-4, atol=1e-5)


CUTS = {
    "bias": lambda v: v[:, 1:],
    "recurrent": lambda v: v[..., 1:],
    "unit": lambda v: v[..., 1:],
    "gate": lambda v: v[1:],
    "state": lambda v: v[1:],
}


@pytest.mark.parametrize("name", CUTS)
def test_operands_of_another_shape_are_refused(name):
    """C would read past their end."""
    inputs = make_inputs("gru", dtype=torch.float32)
    short = inputs.replace(**{name: CUTS[name](getattr(inputs, name).detach())})
    with pytest.raises(ValueError, match=f"the native scan takes {name} as float32"):
        native_scan(short)
    assert set(leaves(inputs)) >= {"x", "weight"}


def test_the_operator_checks_too():
    inputs = make_inputs("gru", dtype=torch.float32)
    half = inputs.replace(recurrent=inputs.recurrent.detach().half())
    with pytest.raises(ValueError, match="recurrent as float32"):
        op.native_forward(*half.flat(), half.state, 0, False)
    resets = inputs.replace(reset=torch.zeros(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="reset"):
        op.native_forward(*resets.flat(), resets.state, 0, False)


@torch.no_grad()
@pytest.mark.parametrize("shape", [(12, 1), (4, 4)])
def test_a_step_in_c_gets_no_weights_of_another_shape(shape):
    """It takes addresses, and would read past their end."""
    layer, x = surnn.SuGRU(3, 4), torch.randn(2, 3)
    state = layer.step(x, layer.init_state(2))[1]
    assert fast_step(layer, x, state) is not None
    layer.weight_hh_l0.data = torch.zeros(shape)
    assert fast_step(layer, x, state) is None
