"""minGRU (Feng et al., 2024): its gates do not read the state, so it is a parallel scan."""

from typing import Any

import torch
from torch import Tensor, nn

from surnn.nn.runtime import has_triton, is_traced

from ..base import Mixer


class MinGRU(Mixer):
    """``h_t = (1 - z_t) h_{t-1} + z_t g(n_t)`` with ``z = σ(W x)`` and n linear in x alone.

    g(n) is n + 1/2 where n >= 0 and σ(n) elsewhere, as in the paper's log-space form. The scan here
    is in plain space and gives the same numbers. Sums of logarithms would lose the digits of the
    state after many open gates (an error of 5e-3 after 4096 time steps in float32).

    Args:
        features: size of the input.
        width: units.
    """

    dense_recurrence = outputs_state = handles_resets = True

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.gates = nn.Linear(features, 2 * width)

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, reset: Tensor | None = None
    ) -> Tensor:
        """The layer is causal and padding comes last, so ``lengths`` have no effect."""
        return self._states(x, self.init_state(len(x)), reset).to(x.dtype)

    def init_state(self, batch: int) -> Tensor:
        return self.gates.weight.new_zeros(batch, self.width)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        keep, write = self._keep_and_write(x)
        h = keep * state + write
        return h.to(x.dtype), h

    def run(
        self, x: Tensor, state: Tensor, lengths: Tensor | None = None, reset: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        h = self._states(x, state, reset)
        last = -1 if lengths is None else lengths - 1
        return h.to(x.dtype), h[torch.arange(len(x), device=x.device), last]

    def state_names(self, first: int) -> tuple[str, ...]:
        return (f"h_{first}",)

    def _states(self, x: Tensor, state: Tensor, reset: Tensor | None) -> Tensor:
        """All states [B, T, width], the first one from ``state``."""
        if has_kernels(x):
            from .triton_mingru import FusedMinGRU  # noqa: PLC0415 (triton is optional)

            return FusedMinGRU.apply(self.gates(x), state, reset)  # type: ignore[return-value]
        keep, write = self._keep_and_write(x, reset)
        first = write[:, :1] + keep[:, :1] * state.unsqueeze(1)
        return LinearScan.apply(keep, torch.cat((first, write[:, 1:]), 1))  # type: ignore[return-value]

    def _keep_and_write(self, x: Tensor, reset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """1 - z (0 at a reset) and z g(n), in float32 or float64, because states are."""
        gates = self.gates(x)
        gates = gates.to(torch.promote_types(gates.dtype, torch.float32))
        update, new = gates.chunk(2, -1)
        positive = torch.where(new >= 0, new + 0.5, torch.sigmoid(new))
        keep = torch.sigmoid(-update)
        if reset is not None:
            keep = torch.where(reset.unsqueeze(-1), 0.0, keep)
        return keep, torch.sigmoid(update) * positive


def has_kernels(x: Tensor) -> bool:
    """Whether the fused scan runs: on a GPU, unless a compiler or a transform traces x."""
    return x.is_cuda and has_triton() and not is_traced(x)


class LinearScan(torch.autograd.Function):
    """``h_t = keep_t h_{t-1} + write_t`` along dimension 1, from h_0 = 0, for all time steps.

    The gradient is the same recurrence backwards, so only keep and h are stored. On a GPU
    :class:`~.triton_mingru.FusedMinGRU` replaces it.
    """

    @staticmethod
    def forward(ctx: Any, keep: Tensor, write: Tensor) -> Tensor:
        h = scan_by_doubling(keep, write)
        ctx.save_for_backward(keep, h)
        return h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        keep, h = ctx.saved_tensors
        zeros = torch.zeros_like(h[:, :1])
        next_keep = torch.cat((keep[:, 1:], zeros), 1)
        adjoint = scan_by_doubling(next_keep.flip(1), grads[0].flip(1)).flip(1)
        return adjoint * torch.cat((zeros, h[:, :-1]), 1), adjoint


def scan_by_doubling(keep: Tensor, write: Tensor) -> Tensor:
    """The scan in log2(T) parallel passes; each pass doubles how many time steps are summed."""
    reach = 1
    while reach < write.shape[1]:
        seen = torch.addcmul(write[:, reach:], keep[:, reach:], write[:, :-reach])
        write = torch.cat((write[:, :reach], seen), 1)
        keep = torch.cat((keep[:, :reach], keep[:, reach:] * keep[:, :-reach]), 1)
        reach *= 2
    return write
