"""The event lists of the kernels, and a loop over open heads; in the interpreter or on a GPU."""

import pytest
import torch

from helpers.kernels import DEVICE, INTERPRETED, ON_GPU, assert_kernels_equal_reference, kernels
from helpers.poison import NAN
from helpers.scans import converted, make_inputs, reference_scan, run_with_gradients
from surnn.nn.runtime import has_triton

if has_triton():
    from surnn.scan.triton.lists import ListShape, count_events

pytestmark = pytest.mark.skipif(
    not (INTERPRETED or ON_GPU), reason="needs a GPU or TRITON_INTERPRET=1"
)


@pytest.mark.parametrize(("steps", "heads"), [(1, 1), (150, 64), (70, 33)])
def test_lists_of_a_clock_are_made_by_one_program(steps, heads):
    """In several rounds: a program reads 4096 gates at a time."""
    gate = (torch.rand(steps, 1, heads, 1) < 0.3).float().to(DEVICE)
    shape = ListShape(steps, 1, heads, at_once=True)
    _, (first, index, _, time) = count_events(gate, None, shape)
    is_open = gate[:, 0, :, 0].cpu() != 0
    assert index.tensor()[:, 0].cpu().equal(is_open.int().cumsum(0).int())
    expected = [[-1, *is_open[:, n].nonzero().flatten().tolist(), steps] for n in range(heads)]
    used = sum(map(len, expected))
    assert time.tensor()[:used].cpu().tolist() == [t for each in expected for t in each]
    sizes = torch.tensor([0, *map(len, expected)])
    assert first.tensor().cpu().equal(sizes.cumsum(0))


@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.*")  # numpy, on masked values
@pytest.mark.parametrize(("steps", "batch"), [(3, 65), (1, 3)])
def test_input_gradients_where_a_tile_is_one_step(steps, batch):
    """Many sequences share the events of one step; the columns of a head fill two tiles."""
    gate = torch.ones(steps, 1, 3, 1)
    gate[:, :, 1] = 0  # between open heads
    gate[1:] = 0
    gate[2:, :, 2] = 1
    inputs = make_inputs(steps=steps, batch=batch, heads=3, width=12, gate=gate)
    found = assert_kernels_equal_reference(inputs)
    assert not found["dx"][(gate == 0).all(2).flatten()].any()


def test_a_closed_head_reads_nothing_at_a_reset():
    """Where a sequence is reset and head 1 is closed, x and the weights of head 1 are NaN."""
    gate = torch.ones(9, 1, 2, 1)
    gate[:, :, 1] = 0
    gate[4] = 0
    inputs = make_inputs("rnn_relu", steps=9, gate=gate)
    inputs.x.data[4] = NAN
    inputs.weight.data[1] = NAN
    reset = torch.zeros(inputs.x.shape[:2], dtype=torch.bool)
    reset[4, 0] = reset[6, 1] = True
    inputs = converted(inputs.replace(reset=reset), torch.float32, DEVICE)
    for scan in (kernels, reference_scan):
        found = run_with_gradients(scan, inputs)
        assert found["dx"].isfinite().all()
        assert not found["dx"][4].any()
        assert found["dweight"].isfinite().all()
