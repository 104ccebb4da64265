"""The step function is exactly 0/1, and its gradient is the named derivative."""

import pytest
import torch

from surnn import Surrogate

KINDS = ["sigmoid", "triangle", "rectangle", "arctan"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_forward_is_exactly_binary_and_strict(kind, dtype):
    a = torch.cat((torch.randn(10_000).to(dtype), torch.tensor([0.0, -0.0]).to(dtype)))
    surrogate = Surrogate(kind, slope=3.0)
    g = surrogate.step(a.requires_grad_())
    assert torch.equal(g, (a > 0).to(dtype))
    drawn = surrogate.sample(a)
    assert set(drawn.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("kind", KINDS)
def test_backward_is_the_derivative_of_the_smooth_step(kind):
    surrogate = Surrogate(kind, slope=2.5)
    a = torch.randn(1000, dtype=torch.float64, requires_grad=True)
    for forward in (surrogate.step, surrogate.sample, surrogate.smooth):
        (grad,) = torch.autograd.grad(forward(a).sum(), a)
        torch.testing.assert_close(grad, surrogate.derivative(a.detach()))
    assert torch.autograd.gradcheck(surrogate.smooth, a[:20].detach().requires_grad_())


@pytest.mark.parametrize("kind", KINDS)
def test_smooth_step_is_a_distribution_function(kind):
    a = torch.linspace(-200, 200, 400_001, dtype=torch.float64)
    surrogate = Surrogate(kind, slope=2.0)
    smooth = surrogate.smooth(a)
    assert (smooth.diff() >= 0).all()
    assert abs(smooth[200_000] - 0.5) < 1e-12
    assert abs(smooth[0]) < 2e-3
    assert abs(smooth[-1] - 1) < 2e-3
    area = torch.trapezoid(surrogate.derivative(a), a)
    assert abs(area - 1) < 3e-3


@pytest.mark.parametrize("kind", ["triangle", "rectangle"])
def test_compact_support_is_exact(kind):
    surrogate = Surrogate(kind, slope=4.0)
    a = torch.linspace(-1, 1, 2001, dtype=torch.float64)
    inside = surrogate.support(a)
    assert torch.equal(inside, a.abs() <= 0.25)
    assert (surrogate.derivative(a)[~inside] == 0).all()
    assert not Surrogate("sigmoid").compact
    assert Surrogate("sigmoid").support(a).all()


def test_sampling_has_the_mean_it_differentiates_and_anneals_to_hard():
    surrogate = Surrogate("sigmoid", slope=2.0)
    a = torch.full((200_000,), 0.4)
    assert abs(surrogate.sample(a).mean() - surrogate.smooth(a[:1])).item() < 5e-3
    spread = torch.randn(10_000)
    assert torch.equal(surrogate.sample(spread, noise=0.0), surrogate.step(spread))
    half = surrogate.sample(a, noise=0.5).mean().item()
    assert surrogate.smooth(a[:1]).item() < half < 1


def test_nan_stays_closed_without_gradient():
    a = torch.tensor([float("nan"), 1.0], requires_grad=True)
    g = Surrogate().step(a)
    assert g.tolist() == [0.0, 1.0]
    g.sum().backward()
    assert a.grad[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("sigmod",), "choose one of sigmoid"), (("sigmoid", -1.0), "positive number")],
)
def test_bad_arguments_say_how_to_mend(arguments, message):
    with pytest.raises(ValueError, match=message):
        Surrogate(*arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_long_gradients_are_computed_in_parts(kind, monkeypatch):
    monkeypatch.setattr("surnn.nn.surrogate._CHUNK", 7)
    surrogate = Surrogate(kind, slope=4.0)
    a, by = torch.randn(5, 4, 3), torch.randn(3, 4, 5).permute(2, 1, 0)  # not contiguous
    a[0, 0, 0] = torch.nan
    expected = by * surrogate.derivative(a)
    (found,) = torch.autograd.grad(surrogate.step(a.requires_grad_()), a, by)
    assert torch.equal(found, expected)
