"""The event lists of the kernels; with ``TRITON_INTERPRET=1`` on a CPU."""

import pytest
import torch

from helpers.kernels import DEVICE, INTERPRETED, ON_GPU
from surnn.nn.runtime import has_triton

if has_triton():
    from surnn.scan.triton.lists import make_lists

pytestmark = pytest.mark.skipif(
    not (INTERPRETED or ON_GPU), reason="needs a GPU or TRITON_INTERPRET=1"
)


@pytest.mark.parametrize(("steps", "heads"), [(1, 1), (150, 64), (70, 33)])
def test_lists_of_a_clock_are_made_by_one_program(steps, heads):
    """In several rounds: a program reads 4096 gates at a time."""
    gate = (torch.rand(steps, 1, heads, 1) < 0.3).float().to(DEVICE)
    lists, _ = make_lists(gate, None)
    is_open = gate[:, 0, :, 0].cpu() != 0
    assert lists.index[:, 0].cpu().equal(is_open.int().cumsum(0).int())
    expected = [[-1, *is_open[:, n].nonzero().flatten().tolist(), steps] for n in range(heads)]
    assert lists.time.cpu().tolist() == [t for each in expected for t in each]
    sizes = torch.tensor([0, *map(len, expected)])
    assert lists.first.cpu().equal(sizes.cumsum(0))
