"""The step function is exactly 0/1, and its gradient is the named derivative."""

import pytest
import torch

from surnn import Surrogate
from surnn.nn import native_surrogate

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


@pytest.mark.parametrize("size", [1, 3, 16, 17, 70_000])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_in_c_is_that_of_plain_operations(kind, size):
    surrogate = Surrogate(kind, slope=4.0)
    a, by = torch.randn(size, 4, 3), torch.randn(3, 4, size).permute(2, 1, 0)  # not contiguous
    a[0, 0] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    expected = by * surrogate.derivative(a)
    (found,) = torch.autograd.grad(surrogate.step(a.requires_grad_()), a, by)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_draws_in_c_are_those_of_plain_operations(threads, monkeypatch):
    surrogate, before = Surrogate(slope=4.0), torch.get_num_threads()
    a = torch.randn(300_000, 3)
    a[0] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    torch.set_num_threads(threads)
    try:
        for noise in (1.0, torch.tensor(0.3), 0.0):
            draws = {}
            for available in (True, False):
                monkeypatch.setattr(native_surrogate, "is_available", lambda _, a=available: a)
                torch.manual_seed(0)
                leaf = a.clone().requires_grad_()
                draws[available] = surrogate.sample(leaf, noise)
                by = torch.arange(3.0) - 1
                (draws[available] * by).sum().backward()
                draws[available, "gradient"] = leaf.grad
                with torch.no_grad():
                    torch.manual_seed(0)
                    assert torch.equal(surrogate.sample(a, noise), draws[available])
            assert (draws[True] != draws[False]).sum() <= 2  # sigmoids differ by rounding
            assert draws[True].unique().tolist() == [0, 1]
            torch.testing.assert_close(draws[True, "gradient"], draws[False, "gradient"])
    finally:
        torch.set_num_threads(before)


def test_a_draw_has_second_derivatives():
    a = torch.randn(50, requires_grad=True)
    (first,) = torch.autograd.grad(Surrogate().sample(a).sum(), a, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), a)
    s = torch.sigmoid(a.detach())
    torch.testing.assert_close(second, s * (1 - s) * (1 - 2 * s))
