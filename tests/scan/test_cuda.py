"""Backends and layers on a GPU; run with ``pytest tests/scan/test_cuda.py`` where there is one."""

import dataclasses

import pytest
import torch

import surnn
from helpers.scans import (
    assert_same,
    events_scan,
    make_inputs,
    onepass_scan,
    reference_scan,
    run_with_gradients,
)
from surnn.nn.cells import CELLS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def on_gpu(inputs):
    moved = {}
    for field in dataclasses.fields(inputs):
        value = getattr(inputs, field.name)
        if isinstance(value, torch.Tensor):
            value = value.detach().cuda().requires_grad_(value.requires_grad)
        moved[field.name] = value
    return inputs.__class__(**moved)


def from_gpu(scan, inputs):
    return {k: v.cpu() for k, v in run_with_gradients(scan, on_gpu(inputs)).items()}


@pytest.mark.parametrize("cell", sorted(CELLS))
@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("per_unit", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_events_equal_reference(cell, per_sequence, per_unit, padded):
    inputs = make_inputs(
        cell,
        per_sequence=per_sequence,
        per_unit=per_unit,
        lengths=torch.tensor([11, 1, 6]) if padded else None,
        adaptation_always_decays=cell == "alif",
    )
    expected = run_with_gradients(reference_scan, inputs)
    assert_same(from_gpu(events_scan, inputs), expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_cudnn_carries_bit_for_bit(dtype):
    gate = torch.zeros(1000, 1, 1, 8)
    gate[0] = 1
    inputs = on_gpu(make_inputs("gru", steps=1000, heads=1, width=8, gate=gate, dtype=dtype))
    y, _ = onepass_scan(inputs)
    assert torch.equal(y[0], y[-1])


def test_onepass_equals_reference_but_for_the_gate():
    inputs = make_inputs("gru", steps=60, heads=2, width=8, per_unit=True)
    found, expected = from_gpu(onepass_scan, inputs), run_with_gradients(reference_scan, inputs)
    del found["dgate"], expected["dgate"]
    assert_same(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.filterwarnings("ignore:TensorFloat32")  # inductor's advice, on its own default
@pytest.mark.parametrize("gate", ["rhythm", "ssm", surnn.FullGate(conv=2)])
def test_compiled_layer_equals_eager(gate):
    layer = surnn.SuGRU(9, 64, num_layers=2, heads=4, gate=gate).cuda().eval()
    x = torch.randn(100, 8, 9, device="cuda")
    y, _ = layer(x)
    torch.testing.assert_close(torch.compile(layer, fullgraph=True)(x)[0], y)


def test_autocast_layer():
    # Clock gates: one that sees a half-precision layer below may rightly decide otherwise.
    layer = surnn.SuGRU(9, 64, num_layers=2, heads=4, gate="rhythm").cuda()
    x = torch.randn(100, 8, 9, device="cuda")
    y, _ = layer(x)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        half, h_n = layer(x)
    assert (half.dtype, h_n.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(half.float(), y, rtol=0.05, atol=0.05)


def test_streamed_layer():
    layer = surnn.SuGRU(9, 64, num_layers=2, heads=4, gate="ssm").cuda().eval()
    x = torch.randn(20, 8, 9, device="cuda")
    y, _ = layer(x)
    state = layer.init_state(8)
    for t in range(20):
        y_t, state = layer.step(x[t], state)
        torch.testing.assert_close(y_t, y[t], rtol=1e-4, atol=1e-5)
    assert state.t.is_cuda
