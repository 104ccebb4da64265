"""minGRU (Feng et al., 2024): gates that do not read the state, so that it is a parallel scan."""

from typing import Any

import torch
from torch import Tensor, nn


class MinGRU(nn.Module):
    """``h_t = (1 - z_t) h_{t-1} + z_t g(n_t)`` with ``z = σ(W x)`` and n linear in x alone.

    g(n) is n + 1/2 where n >= 0 and σ(n) elsewhere, as in the paper's log-space form. The same
    numbers come from a scan in plain space here: sums of logarithms lose the digits of whatever
    follows many open gates (5e-3 of the state after 4096 steps in float32).

    Args:
        features: size of the input.
        width: units.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.gates = nn.Linear(features, 2 * width)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Padding comes last and the layer is causal, so lengths change nothing before it."""
        return LinearScan.apply(*self._keep_and_write(x)).to(x.dtype)  # type: ignore[union-attr]

    def init_state(self, batch: int) -> Tensor:
        return self.gates.weight.new_zeros(batch, self.width)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        keep, write = self._keep_and_write(x)
        h = keep * state + write
        return h.to(x.dtype), h

    def run(self, x: Tensor, state: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Some steps [B, T, features] of a stream; of each sequence its ``lengths``."""
        keep, write = self._keep_and_write(x)
        first = write[:, :1] + keep[:, :1] * state.unsqueeze(1)
        h: Tensor = LinearScan.apply(keep, torch.cat((first, write[:, 1:]), 1))  # type: ignore[assignment]
        last = -1 if lengths is None else lengths - 1
        return h.to(x.dtype), h[torch.arange(len(x), device=x.device), last]

    def _keep_and_write(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """1 - z and z g(n). States are float32 at least, whatever x is."""
        gates = self.gates(x)
        gates = gates.to(torch.promote_types(gates.dtype, torch.float32))
        update, new = gates.chunk(2, -1)
        positive = torch.where(new >= 0, new + 0.5, torch.sigmoid(new))
        return torch.sigmoid(-update), torch.sigmoid(update) * positive


class LinearScan(torch.autograd.Function):
    """``h_t = keep_t h_{t-1} + write_t`` along dimension 1, from h_0 = 0, all steps at once.

    The gradient is the same recurrence backwards, so that only keep and h are stored.
    """

    @staticmethod
    def forward(ctx: Any, keep: Tensor, write: Tensor) -> Tensor:
        h = doubling(keep, write)
        ctx.save_for_backward(keep, h)
        return h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        keep, h = ctx.saved_tensors
        nothing = torch.zeros_like(h[:, :1])
        next_keep = torch.cat((keep[:, 1:], nothing), 1)
        adjoint = doubling(next_keep.flip(1), grads[0].flip(1)).flip(1)
        return adjoint * torch.cat((nothing, h[:, :-1]), 1), adjoint


def doubling(keep: Tensor, write: Tensor) -> Tensor:
    """The scan in log2(T) parallel passes, each of which doubles how far back a step sees."""
    reach = 1
    while reach < write.shape[1]:
        seen = torch.addcmul(write[:, reach:], keep[:, reach:], write[:, :-reach])
        write = torch.cat((write[:, :reach], seen), 1)
        keep = torch.cat((keep[:, :reach], keep[:, reach:] * keep[:, :-reach]), 1)
        reach *= 2
    return write
