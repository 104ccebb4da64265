"""Effective depth and path counts against sums and enumeration."""

from itertools import combinations
from math import comb

import pytest
import torch

from surnn import analysis

STEPS, HIDDEN = 7, 4


def schedule(rate=0.5):
    return (torch.rand(STEPS, HIDDEN, dtype=torch.float64) < rate).double()


def enumerated(g, unit, heads):
    """Subsets of steps whose term of the expanded product is not 0 in the unit's row, by size."""
    size = HIDDEN // heads
    same_head = torch.arange(HIDDEN)[:, None] // size == torch.arange(HIDDEN) // size
    change = (torch.rand(HIDDEN, HIDDEN, dtype=torch.float64) + 0.1) * same_head  # J - I
    counts = [0] * (STEPS + 1)
    for length in range(STEPS + 1):
        for steps in combinations(range(STEPS), length):
            term = torch.eye(HIDDEN, dtype=torch.float64)
            for t in steps:
                term = torch.diag(g[t]) @ change @ term
            counts[length] += bool((term[unit] != 0).any())
    return counts


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("unit", [0, 3])
def test_path_counts_are_those_of_all_subsets(heads, unit):
    g = schedule()
    found = analysis.path_counts(g, unit, heads)
    assert found + [0] * (STEPS + 1 - len(found)) == enumerated(g, unit, heads)


def test_path_counts_of_a_shared_gate_and_of_a_dense_unit_are_binomial():
    shared = schedule()[:, :1].expand(-1, HIDDEN)
    updates = int(shared[:, 0].sum())
    assert 0 < updates < STEPS
    expected = [comb(updates, k) for k in range(updates + 1)]
    assert analysis.path_counts(shared, 1) == expected
    long = torch.ones(1200, 1)
    assert sum(analysis.path_counts(long, 0)) == 2**1200


def test_depth_curve_is_the_sum_of_the_gates():
    gate = (torch.rand(3, STEPS, HIDDEN) < 0.4).float()
    layer = analysis.LayerRecord("layer 1", "unit", gate, gate)
    curve = analysis.depth_curve(layer)
    assert curve.shape == (STEPS + 1, HIDDEN)
    for t in range(STEPS + 1):
        torch.testing.assert_close(curve[t], gate[:, :t].sum(1).double().mean(0))
    g = gate[0].double()
    assert analysis.effective_depth(g, 2, 6) == pytest.approx(g[2:6].sum().item() / HIDDEN)


def test_depth_goes_on_where_sequences_do():
    gate = torch.ones(2, STEPS, HIDDEN)
    gate[1, 3:] = 0  # the second has ended
    layer = analysis.LayerRecord("layer 1", "unit", gate, gate)
    found = analysis.depth_curve(layer, torch.tensor([STEPS, 3]))
    assert torch.equal(found, torch.arange(STEPS + 1.0).double()[:, None].expand(-1, HIDDEN))
