"""Gated DeltaNet (Yang et al., 2025) with negative eigenvalues (Grazzi et al., 2025).

A linear recurrence whose transition is no diagonal matrix but a reflection, so that it can permute
its state: the strongest linear rival in state tracking. Several products per time step
(DeltaProduct, Siems et al., 2025) make any rotation.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..base import Mixer

CHUNK = 64
"""Steps that are computed together, a power of two."""


class GatedDelta(Mixer):
    """``S_t = α_t (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ``, ``y_t = S_tᵀ q_t``, for each head.

    Keys and queries have length 1, α is in (0, 1) and β in (0, 2). At β = 2 the transition is a
    reflection, with the eigenvalue -1. With several ``products`` a time step makes as many such
    steps, and α decays in the first. The output is normalised per head.

    Chunks of steps are computed in parallel. A triangular system gives the transition of a chunk, a
    scan over chunks the state before each. States are float32, or float64 if weights are.

    Args:
        width: features in and out.
        heads: number of heads; must divide width.
        products: reflections per time step.
    """

    dense_recurrence = True

    def __init__(self, width: int, heads: int, products: int = 1) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads do not divide {width} features")
        self.heads, self.size, self.products = heads, width // heads, products
        self.query = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, products * width, bias=False)
        self.values = nn.Linear(width, products * width, bias=False)
        self.strength = nn.Linear(width, products * heads)
        self.decay = nn.Linear(width, heads)
        self.log_speed = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        step = torch.empty(heads).uniform_(math.log(0.001), math.log(0.1)).exp()
        with torch.no_grad():
            self.decay.bias.copy_(step.expm1().log())  # softplus gives the step back
        self.scale = nn.Parameter(torch.ones(self.size))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The layer is causal and padding comes last, so ``lengths`` have no effect."""
        return self.run(x, self.init_state(len(x)))[0]

    def init_state(self, batch: int) -> Tensor:
        """[B, heads, size of keys, size of values]."""
        return self.scale.new_zeros(batch, self.heads, self.size, self.size)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v, beta, log_decay = (u[:, :, 0] for u in self._inputs(x.unsqueeze(1)))
        state = log_decay.exp()[..., None, None] * state
        for i in range(self.products):
            error = v[:, :, i] - (k[:, :, i].unsqueeze(-2) @ state).squeeze(-2)
            write = (beta[:, :, i, None] * k[:, :, i]).unsqueeze(-1) * error.unsqueeze(-2)
            state = state + write
        y = (q.unsqueeze(-2) @ state).squeeze(-2)
        return self._output(y.unsqueeze(2), x.dtype)[:, 0], state

    def run(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with torch.autocast(x.device.type, enabled=False):
            q, k, v, beta, log_decay = self._inputs(x)
            if lengths is not None:  # padding leaves the state as it is
                steps = torch.arange(x.shape[1], device=x.device)
                inside = (steps < lengths[:, None])[:, None]
                beta = beta * inside.unsqueeze(-1)
                log_decay = log_decay * inside
            y, after = chunked_delta_rule(q, k, v, beta, log_decay, state)
            return self._output(y, x.dtype), after

    def _inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """q [B, N, T, D], k and v [B, N, T, P, D], β [B, N, T, P], log α [B, N, T]."""
        x = x.to(self.scale.dtype)
        parts = (self.heads, self.products)
        q = functional.normalize(self.query(x).unflatten(-1, (self.heads, -1)), dim=-1)
        k = functional.normalize(functional.silu(self.keys(x)).unflatten(-1, (*parts, -1)), dim=-1)
        v = functional.silu(self.values(x)).unflatten(-1, (*parts, -1))
        beta = 2 * torch.sigmoid(self.strength(x)).unflatten(-1, parts)
        log_decay = -self.log_speed.exp() * functional.softplus(self.decay(x))
        return tuple(u.transpose(1, 2) for u in (q, k, v, beta, log_decay))

    def _output(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """[B, N, T, D] to [B, T, width]."""
        y = functional.rms_norm(y, (self.size,), self.scale, 1e-5)
        return y.transpose(1, 2).flatten(2).to(dtype)

    def state_names(self, first: int) -> tuple[str, ...]:
        return (f"S_{first}",)


def chunked_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_decay: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs [B, N, T, D] and the state after T; shapes as in :meth:`GatedDelta._inputs`.

    The steps of all products are one sequence of T * P steps: decays are in the first product of a
    time step, and the output is read after the last.
    """
    steps, products = k.shape[2:4]
    k, v, beta = k.flatten(2, 3), v.flatten(2, 3), beta.flatten(2, 3)
    q = _spread(q, products, last=True)
    log_decay = _spread(log_decay.unsqueeze(-1), products, last=False).squeeze(-1)
    q, k, v = (_in_chunks(u) for u in (q, k, v))
    beta, log_decay = (_in_chunks(u.unsqueeze(-1)).squeeze(-1) for u in (beta, log_decay))
    total = log_decay.cumsum(-1)  # [B, N, chunks, C]
    since = _decay_since(total)
    written = beta.unsqueeze(-1) * k
    system = (written @ k.mT * since).tril(-1)
    inverse = UnitTriangularInverse.apply(system)
    # What a step writes is its own value less what earlier steps and the chunk's state hold there.
    own = inverse @ (beta.unsqueeze(-1) * v)
    read = inverse @ (written * total.exp().unsqueeze(-1))
    end = total[..., -1:]
    kept = (k * (end - total).exp().unsqueeze(-1)).mT
    eye = torch.eye(k.shape[-1], dtype=k.dtype, device=k.device)
    transition = end.exp().unsqueeze(-1) * eye - kept @ read
    states = ChunkStates.apply(transition, kept @ own, state.to(k.dtype))
    before = states[:, :, :-1]
    y = (q * total.exp().unsqueeze(-1)) @ before
    y = y + (q @ k.mT * since).tril() @ (own - read @ before)
    y = y.flatten(2, 3)[:, :, products - 1 : steps * products : products]
    return y, states[:, :, -1]


def _spread(u: Tensor, products: int, last: bool) -> Tensor:
    """[B, N, T, D] to [B, N, T * products, D]: each row once, zeros before or after it."""
    if products == 1:
        return u
    zeros = u.new_zeros(1).expand(*u.shape[:3], products - 1, u.shape[3])
    parts = (zeros, u.unsqueeze(3)) if last else (u.unsqueeze(3), zeros)
    return torch.cat(parts, 3).flatten(2, 3)


def _in_chunks(u: Tensor) -> Tensor:
    """[B, N, T, D] to [B, N, chunks, CHUNK, D]; zeros at the end leave the state as it is."""
    return functional.pad(u, (0, 0, 0, -u.shape[2] % CHUNK)).unflatten(2, (-1, CHUNK))


def _decay_since(total: Tensor) -> Tensor:
    """[..., C, C]: the decay from step j on until step i, for j <= i; other entries are 1."""
    difference = total.unsqueeze(-1) - total.unsqueeze(-2)
    return difference.tril().exp()  # above the diagonal it would overflow


class UnitTriangularInverse(torch.autograd.Function):
    """(I + A)⁻¹ for strictly lower triangular A [..., C, C], C a power of two.

    Blocks are inverted in pairs, which is as exact as substitution. Powers of A would overflow.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        size = a.shape[-1]
        inverse = a.new_ones(1, 1).expand(*a.shape[:-2], size, 1, 1)
        while (half := inverse.shape[-1]) < size:
            pairs = a.unflatten(-1, (-1, 2 * half)).unflatten(-3, (-1, 2 * half))
            blocks = pairs.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)  # along the diagonal
            first, second = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
            corner = -second @ blocks[..., half:, :half] @ first
            upper = torch.cat((first, torch.zeros_like(first)), -1)
            inverse = torch.cat((upper, torch.cat((corner, second), -1)), -2)
        inverse = inverse.squeeze(-3)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return -(inverse.mT @ grads[0] @ inverse.mT).tril(-1)


class ChunkStates(torch.autograd.Function):
    """``S_{c+1} = M_c S_c + N_c``, all states [B, N, chunks + 1, D, D], for M and N [B, N, chunks,
    D, D].

    The gradient is the same recurrence backwards, so only M and S are stored.
    """

    @staticmethod
    def forward(ctx: Any, transition: Tensor, write: Tensor, initial: Tensor) -> Tensor:
        first = write[:, :, :1] + transition[:, :, :1] @ initial.unsqueeze(2)
        after = matrix_scan(transition, torch.cat((first, write[:, :, 1:]), 2))
        states = torch.cat((initial.unsqueeze(2), after), 2)
        ctx.save_for_backward(transition, states)
        return states

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        transition, states = ctx.saved_tensors
        grad, back = grads[0], transition.mT
        later = torch.cat((back[:, :, 1:], torch.zeros_like(back[:, :, :1])), 2)
        adjoint = matrix_scan(later.flip(2), grad[:, :, 1:].flip(2)).flip(2)
        initial = grad[:, :, 0] + back[:, :, 0] @ adjoint[:, :, 0]
        return adjoint @ states[:, :, :-1].mT, adjoint, initial


def matrix_scan(transition: Tensor, write: Tensor) -> Tensor:
    """States after each chunk, from zero, in log2(chunks) parallel passes."""
    reach = 1
    while reach < write.shape[2]:
        moved = transition[:, :, reach:] @ write[:, :, :-reach]
        write = torch.cat((write[:, :, :reach], write[:, :, reach:] + moved), 2)
        joined = transition[:, :, reach:] @ transition[:, :, :-reach]
        transition = torch.cat((transition[:, :, :reach], joined), 2)
        reach *= 2
    return write
