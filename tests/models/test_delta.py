"""Gated DeltaNet against its recurrence, step by step in float64."""

import math

import pytest
import torch
from torch import Tensor

from surnn.models.baselines import GatedDelta
from surnn.models.baselines.delta import (
    ChunkStates,
    UnitTriangularInverse,
    chunked_delta_rule,
)


def delta_rule_by_steps(q, k, v, beta, log_decay, state) -> tuple[Tensor, Tensor]:
    """The papers' recurrence, with the transition as a matrix."""
    outputs, eye = [], torch.eye(k.shape[-1], dtype=k.dtype)
    for t in range(q.shape[2]):
        state = log_decay[:, :, t].exp()[..., None, None] * state
        for i in range(k.shape[3]):
            key, b = k[:, :, t, i].unsqueeze(-1), beta[:, :, t, i, None, None]
            state = (eye - b * key @ key.mT) @ state + b * key @ v[:, :, t, i].unsqueeze(-2)
        outputs.append((state.mT @ q[:, :, t].unsqueeze(-1)).squeeze(-1))
    return torch.stack(outputs, 2), state


def operands(steps: int, products: int, batch: int = 2, heads: int = 3, size: int = 5):
    def leaf(*shape: int) -> Tensor:
        return torch.randn(batch, heads, *shape, dtype=torch.float64)

    q = torch.nn.functional.normalize(leaf(steps, size), dim=-1)
    k = torch.nn.functional.normalize(leaf(steps, products, size), dim=-1)
    beta = 2 * leaf(steps, products).sigmoid()
    values = (q, k, leaf(steps, products, size), beta, -leaf(steps).exp() / 10, leaf(size, size))
    return [value.requires_grad_() for value in values]


@pytest.mark.parametrize("products", [1, 2, 3])
@pytest.mark.parametrize("steps", [1, 3, 63, 64, 65, 200])
def test_chunks_are_the_recurrence(steps, products):
    """Outputs, the last state, and the gradients of all operands."""
    values = operands(steps, products)
    results = []
    for function in (delta_rule_by_steps, chunked_delta_rule):
        y, state = function(*values)
        weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)
        grads = torch.autograd.grad((y * weights).sum() + state.square().sum(), values)
        results.append((y, state, *grads))
    for wanted, found in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)


def test_a_thousand_equal_reflections_stay_exact():
    """Powers of the system of a chunk would overflow: its inverse is computed by blocks."""
    q, k, v, beta, _, state = operands(1000, 1)
    same, full = k[:, :, :1].expand_as(k), torch.full_like(beta, 2.0)
    values = [q, same, v, full, torch.zeros(2, 3, 1000), state]
    exact, last = delta_rule_by_steps(*values[:4], values[4].double(), state)
    y, after = chunked_delta_rule(*(value.float() for value in values))
    torch.testing.assert_close(y.double(), exact, rtol=1e-3, atol=1e-3 * exact.abs().max().item())
    torch.testing.assert_close(after.double(), last, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("size", [1, 2, 8, 64])
def test_inverse_of_a_triangular_matrix(size):
    a = (torch.randn(2, 3, size, size, dtype=torch.float64) / 4).tril(-1).requires_grad_()
    plain = torch.linalg.inv(a + torch.eye(size, dtype=a.dtype))
    torch.testing.assert_close(UnitTriangularInverse.apply(a), plain)
    weights = torch.randn_like(plain)
    found, wanted = (
        torch.autograd.grad((u * weights).sum(), a)[0].tril(-1)
        for u in (UnitTriangularInverse.apply(a), plain)
    )
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_states_of_chunks_have_exact_gradients(chunks):
    def leaf(*shape: int) -> Tensor:
        return torch.randn(1, 2, *shape, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(
        ChunkStates.apply, (leaf(chunks, 3, 3), leaf(chunks, 3, 3), leaf(3, 3))
    )


def test_one_reflection_swaps_two_values():
    """The eigenvalue -1, without which no linear recurrence tracks a permutation."""
    k = torch.tensor([1.0, -1.0, 0.0]).div(math.sqrt(2)).view(1, 1, 1, 1, 3)
    state = torch.diag(torch.tensor([1.0, 2.0, 3.0])).view(1, 1, 3, 3)
    zeros, full = torch.zeros(1, 1, 1, 1, 3), torch.full((1, 1, 1, 1), 2.0)
    _, after = chunked_delta_rule(zeros[:, :, :, 0], k, zeros, full, torch.zeros(1, 1, 1), state)
    torch.testing.assert_close(after[0, 0], state[0, 0, [1, 0, 2]])


def test_heads_divide_the_width():
    with pytest.raises(ValueError, match="3 heads do not divide 8"):
        GatedDelta(8, 3)
