"""minGRU's kernels against a plain loop, on a GPU or in Triton's interpreter."""

import pytest
import torch

from helpers.kernels import DEVICE, ON_GPU, pytestmark  # noqa: F401 (of this module)
from helpers.scans import poisoned_memory  # noqa: F401 (a fixture)
from surnn.models.baselines import MinGRU
from surnn.nn.runtime import has_triton

if has_triton():
    from surnn.models.baselines.triton_mingru import FusedMinGRU

SIZES = [(1, 1, 1), (2, 3, 5), (2, 63, 33), (1, 64, 32), (2, 65, 3), (1, 130, 3)]
if ON_GPU:
    SIZES += [(3, 4097, 100)]


def states_by_steps(gates, initial, reset):
    update, new = gates.chunk(2, -1)
    z = torch.sigmoid(update)
    write = z * torch.where(new >= 0, new + 0.5, torch.sigmoid(new))
    h, states = initial, []
    for t in range(gates.shape[1]):
        keep = 1 - z[:, t]
        if reset is not None:
            keep = keep * (~reset[:, t])[:, None]
        h = keep * h + write[:, t]
        states.append(h)
    return torch.stack(states, 1)


@pytest.mark.parametrize("has_reset", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.usefixtures("poisoned_memory")
def test_states_and_gradients_are_those_of_the_loop(size, has_reset):
    batch, steps, units = size
    gates = 4 * torch.randn(batch, steps, 2 * units, dtype=torch.float64)
    initial, weights = (torch.randn(batch, *n, units).double() for n in ((), (steps,)))
    reset = torch.rand(batch, steps) < 0.1 if has_reset else None
    leaves = (gates.requires_grad_(), initial.requires_grad_())
    expected = states_by_steps(gates, initial, reset)
    exact = torch.autograd.grad((expected * weights).sum(), leaves)
    on_device = [v.detach().to(DEVICE).requires_grad_() for v in leaves]
    found = FusedMinGRU.apply(*on_device, None if reset is None else reset.to(DEVICE))
    got = torch.autograd.grad((found * weights.to(DEVICE)).sum(), on_device)
    for value, wanted in zip((found, *got), (expected, *exact), strict=True):
        torch.testing.assert_close(value.detach().cpu(), wanted, rtol=1e-10, atol=1e-12)


def test_half_precision_gates_have_float32_states():
    gates = torch.randn(2, 70, 6).bfloat16()
    zeros = torch.zeros(2, 3)
    low = gates.to(DEVICE, copy=True).requires_grad_()
    found = FusedMinGRU.apply(low, zeros.to(DEVICE), None)
    exact = gates.double().requires_grad_()
    expected = states_by_steps(exact, zeros.double(), None)
    assert found.dtype == torch.float32
    torch.testing.assert_close(
        found.detach().cpu().double(), expected.detach(), rtol=1e-5, atol=1e-6
    )
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(low.grad.cpu().double(), exact.grad, rtol=1e-2, atol=1e-3)


def test_the_layer_uses_them(monkeypatch):
    """States, outputs and all gradients of the layer with kernels and without."""
    from surnn.models.baselines import mingru  # noqa: PLC0415

    layer, x = MinGRU(3, 5).double(), torch.randn(2, 70, 3, dtype=torch.float64)
    state, reset = torch.randn(2, 5, dtype=torch.float64), torch.rand(2, 70) < 0.1
    lengths = torch.tensor([70, 33])

    def run(device):
        model = MinGRU(3, 5).double().to(device)
        model.load_state_dict(layer.state_dict())
        inputs = [v.to(device) for v in (x, state, lengths, reset)]
        leaf = inputs[0].requires_grad_()
        y, after = model.run(leaf, *inputs[1:])
        grads = torch.autograd.grad(y.square().sum() + after.sum(), [leaf, *model.parameters()])
        return [v.detach().cpu() for v in (y, after, *grads)]

    monkeypatch.setattr(mingru, "has_kernels", lambda x: False)
    expected = run("cpu")
    monkeypatch.setattr(mingru, "has_kernels", lambda x: True)
    for found, wanted in zip(run(DEVICE), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)
