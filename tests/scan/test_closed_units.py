"""A closed unit reads nothing: NaN, infinity and huge numbers, forward and backward."""

import pytest
import torch

from helpers.poison import INF, NAN, assert_reads_nothing, closed_gate
from helpers.scans import (
    events_scan,
    make_inputs,
    native_scan,
    reference_scan,
    run_with_gradients,
)
from surnn.nn.cells import CELLS
from surnn.scan import native
from surnn.scan.contract import blend
from surnn.scan.events import packed

SCANS = pytest.mark.parametrize("scan", [reference_scan, events_scan], ids=["reference", "events"])


@SCANS
@pytest.mark.parametrize("cell", sorted(CELLS))
@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("per_unit", [False, True])
@pytest.mark.parametrize("value", [NAN, INF, -INF, 1e100])
def test_nothing_reaches_outputs_or_gradients(scan, cell, per_sequence, per_unit, value):
    assert_reads_nothing(scan, cell, closed_gate(per_sequence, per_unit), value)


@pytest.mark.skipif(not native.is_available(), reason="needs the C library")
@pytest.mark.parametrize("cell", sorted(CELLS))
@pytest.mark.parametrize("per_sequence", [False, True])
@pytest.mark.parametrize("per_unit", [False, True])
@pytest.mark.parametrize("value", [NAN, INF, -INF, 1e30])
def test_nothing_reaches_the_native_scan(cell, per_sequence, per_unit, value):
    gate = closed_gate(per_sequence, per_unit)
    assert_reads_nothing(native_scan, cell, gate, value, dtype=torch.float32)


@pytest.mark.parametrize("per_sequence", [False, True])
def test_gathered_projections_read_nothing_either(per_sequence, monkeypatch):
    monkeypatch.setattr(packed, "GATHERING_COST", -1)
    monkeypatch.setattr(packed, "DENSE_SHARE", 2.0)
    assert_reads_nothing(events_scan, "gru", closed_gate(per_sequence, True), NAN)


@SCANS
@pytest.mark.parametrize("cell", ["gru", "lstm", "rnn_relu", "alif"])
def test_padding_past_the_length_is_not_read(scan, cell):
    lengths = torch.tensor([9, 3, 5])
    inputs = make_inputs(cell, steps=9, lengths=lengths, rate=0.7)
    expected = run_with_gradients(scan, inputs)
    for b, length in enumerate(lengths.tolist()):
        inputs.x.data[length:, b] = NAN
    found = run_with_gradients(scan, inputs)
    for name in set(expected) - {"dgate"}:
        torch.testing.assert_close(found[name], expected[name])
    torch.testing.assert_close(found["dgate"], expected["dgate"])


@SCANS
@pytest.mark.parametrize("value", [NAN, INF])
def test_a_state_that_is_never_read_reaches_no_gradient(scan, value):
    """Sequence 1 never opens: it carries its state, whatever it is."""
    gate = torch.ones(6, 3, 2, 1)
    gate[:, 1] = 0
    inputs = make_inputs("rnn_relu", steps=6, gate=gate)
    inputs.state.data[1] = value
    found = run_with_gradients(scan, inputs)
    carried = torch.full((6, 2, 3), value, dtype=torch.float64)
    torch.testing.assert_close(found["y"][:, 1], carried, rtol=0, atol=0, equal_nan=True)
    for name in ("dx", "dweight", "dbias", "drecurrent", "dgate", "dstate"):
        assert found[name].isfinite().all(), name


def test_blend_is_exact_where_numbers_are_not_finite():
    kept = torch.tensor([INF, NAN, 1.0, INF, 1.0, 1e308], dtype=torch.float64)
    proposed = torch.tensor([1.0, 2.0, NAN, 5.0, INF, -1e308], dtype=torch.float64)
    gate = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    result = blend(kept, proposed, gate)
    assert result.tolist() == [INF, 2.0, 1.0, 5.0, 1.0, 1e308]
    result.sum().backward()
    assert gate.grad is not None
    assert gate.grad.tolist() == [0.0] * 6


def test_a_change_that_is_not_finite_counts_as_none_at_open_steps_too():
    inputs = make_inputs("rnn_relu", steps=3, batch=1, heads=1, width=1, rate=1.1)
    inputs.weight.data.fill_(1.0)
    inputs.recurrent.data.fill_(0.5)
    inputs.x.data.fill_(1.0)
    inputs.x.data[2] = INF
    for scan in (reference_scan, events_scan):
        found = run_with_gradients(scan, inputs)
        assert found["y"][2].isinf().all()
        assert found["dgate"][2].item() == 0
