"""Jacobian rows, path counts and Proposition 1, on real layers."""

import pytest
import torch

import surnn
from surnn import analysis

STEPS, FEATURES, HIDDEN = 30, 3, 8


def trajectory(cls=surnn.SuGRU, heads=1, **options):
    layer = cls(
        FEATURES, HIDDEN, heads=heads, gate=surnn.Rhythm(rate=0.3, horizon=STEPS), **options
    )
    layer = layer.double()
    x = torch.randn(STEPS, FEATURES, dtype=torch.float64)
    return layer, x, analysis.jacobians(layer, x)


def test_counts_and_rates():
    g = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
    assert analysis.update_set(g, 0) == [0, 2, 3]
    assert analysis.update_set(g, 0, 1, 3) == [2]
    assert analysis.update_count(g).tolist() == [3, 1]
    assert analysis.update_count(g, 1, 3).tolist() == [1, 1]
    assert analysis.update_rate(g) == 0.5
    assert analysis.effective_depth(g) == 2.0
    assert analysis.effective_depth(g, 1, 2) == 0.0


@pytest.mark.parametrize("cls", [surnn.SuRNN, surnn.SuGRU, surnn.SuLSTM])
@pytest.mark.parametrize("heads", [1, 4])
def test_a_carried_units_row_is_the_identity_row_exactly(cls, heads):
    _, _, jac = trajectory(cls, heads)
    assert 0 < (jac.g == 0).double().mean() < 1
    for step, g in zip(jac.step, jac.g, strict=True):
        assert torch.equal(analysis.identity_rows(step), g == 0)


def test_a_carried_spiking_unit_keeps_membrane_and_adaptation_and_emits_nothing():
    layer = surnn.SuSNN(FEATURES, HIDDEN, gate=surnn.Rhythm(rate=0.3, horizon=STEPS)).double()
    jac = analysis.jacobians(layer, torch.randn(STEPS, FEATURES, dtype=torch.float64) * 20)
    kept = torch.arange(3 * HIDDEN) >= HIDDEN  # coordinates are s, u, b of all units in turn
    for step, g in zip(jac.step, jac.g, strict=True):
        carried = g == 0
        assert analysis.identity_rows(step)[carried & kept].all()
        assert (step[carried & ~kept] == 0).all()


def test_the_step_jacobian_has_the_papers_form():
    _, _, jac = trajectory()
    eye = torch.eye(HIDDEN, dtype=torch.float64)
    for step, proposal, g in zip(*jac, strict=True):
        torch.testing.assert_close(step, eye + torch.diag(g) @ (proposal - eye))


def test_the_proposals_jacobian_is_that_of_the_open_step():
    layer, x, jac = trajectory()
    opened = surnn.SuGRU(FEATURES, HIDDEN, gate=surnn.AlwaysOpen()).double()
    opened.load_state_dict(layer.state_dict(), strict=False)
    torch.testing.assert_close(jac.proposal[0], analysis.jacobians(opened, x, steps=1).step[0])
    assert not analysis.identity_rows(jac.proposal[0]).any()


@pytest.mark.parametrize("backend", ["reference", "events"])
def test_sensitivity_is_what_autograd_finds(backend):
    layer, x, jac = trajectory(heads=2)
    layer.backend = backend
    h_0 = torch.zeros(1, 1, HIDDEN, dtype=torch.float64, requires_grad=True)
    y, _ = layer(x[:, None], h_0)
    rows = [
        torch.autograd.grad(y[-1, 0, i], h_0, retain_graph=True)[0][0, 0] for i in range(HIDDEN)
    ]
    torch.testing.assert_close(analysis.sensitivity(jac, 0, STEPS), torch.stack(rows))
    assert torch.equal(analysis.sensitivity(jac, 5, 5), torch.eye(HIDDEN, dtype=torch.float64))


def test_proposition_1_with_its_measured_constant():
    _, _, jac = trajectory()
    bound = analysis.row_bound(jac, 0, STEPS)
    torch.testing.assert_close(bound.norm, bound.constant * bound.rho**bound.count)
    assert torch.equal(bound.count, analysis.update_count(jac.g))
    never = analysis.row_bound(jac, 3, 3 + 1)
    carried = never.count == 0
    assert carried.any()
    assert (never.norm[carried] == 1).all()
    assert (never.constant[carried] == 1).all()


def test_row_growth_is_the_bound_of_every_window_from_the_start():
    _, _, jac = trajectory()
    growth = analysis.row_growth(jac)
    for t in (1, 7, STEPS):
        bound = analysis.row_bound(jac, 0, t)
        torch.testing.assert_close(growth.norm[t - 1], bound.norm)
        assert torch.equal(growth.count[t - 1], bound.count)
    torch.testing.assert_close(growth.constant[-1], analysis.row_bound(jac, 0, STEPS).constant)


def test_jacobians_of_a_layer_within_a_model():
    gate = surnn.Rhythm(rate=0.3, horizon=STEPS)
    stack = surnn.SuGRU(FEATURES, HIDDEN, 2, heads=2, gate=gate, expand=2, batch_first=True)
    x = torch.randn(1, STEPS, FEATURES)
    second = analysis.jacobians(stack, x, layer=1, steps=7)
    assert second.step.shape == (7, 2 * HIDDEN, 2 * HIDDEN)
    assert torch.equal(second.g, analysis.record(stack, x).layers[1].gate[0, :7])
    for step, g in zip(second.step, second.g, strict=True):
        assert torch.equal(analysis.identity_rows(step), g == 0)


def test_jacobians_are_of_one_layer_and_sequence():
    layer = surnn.SuGRU(3, 8, batch_first=True)
    with pytest.raises(ValueError, match="no layer 1; SuGRU has 1"):
        analysis.jacobians(layer, torch.zeros(4, 3), layer=1)
    with pytest.raises(ValueError, match="one sequence, got 2"):
        analysis.jacobians(layer, torch.zeros(2, 4, 3))
