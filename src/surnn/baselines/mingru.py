"""minGRU (Feng et al., 2024): gates that do not read the state, so that it is a parallel scan."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class MinGRU(nn.Module):
    """``h_t = (1 - z_t) h_{t-1} + z_t n_t`` with z and n of x alone, in log space.

    Args:
        features: size of the input.
        width: units.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.gates = nn.Linear(features, 2 * width)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        update, new = self.gates(x).float().chunk(2, -1)
        return scan_in_log_space(update, log_positive(new), 1).to(x.dtype)

    def init_state(self, batch: int) -> Tensor:
        return self.gates.weight.new_zeros(batch, self.width)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        update, new = self.gates(x).float().chunk(2, -1)
        z = torch.sigmoid(update)
        h = (1 - z) * state + z * log_positive(new).exp()
        return h.to(x.dtype), h


def log_positive(new: Tensor) -> Tensor:
    """log of g(new), where g keeps the candidate positive so that it has a log."""
    positive = (functional.relu(new) + 0.5).log()
    return torch.where(new >= 0, positive, -functional.softplus(-new))


def scan_in_log_space(update: Tensor, log_new: Tensor, dim: int) -> Tensor:
    """h from h_0 = 0, all steps at once (Heinsen, 2023)."""
    log_keep = (-functional.softplus(update)).cumsum(dim)
    log_write = log_new - functional.softplus(-update)
    return (log_keep + (log_write - log_keep).logcumsumexp(dim)).exp()
