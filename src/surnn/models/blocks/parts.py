"""Parts of blocks: normalisation, dropout and gated linear units."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from surnn.scan.contract import step_mask

NORMS = {"layer": nn.LayerNorm, "rms": nn.RMSNorm, "batch": nn.BatchNorm1d}


class Norm(nn.Module):
    """LayerNorm or RMSNorm over features, or BatchNorm over sequences and time steps."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.norm = NORMS[kind](width)
        self.kind = kind

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        if self.kind == "rms":  # autocast would leave it in half precision
            return self.norm(x.to(self.norm.weight.dtype))
        if self.kind == "layer":
            return self.norm(x)
        if lengths is None or x.dim() == 2:
            return self.norm(x.flatten(0, -2)).view_as(x)
        inside = step_mask(len(x), lengths.flatten())
        y = torch.zeros_like(x)
        y[inside] = self.norm(x[inside])  # the statistics leave padding out
        return y


class Dropout(nn.Module):
    """Drops single numbers, or a feature at all time steps of a sequence.

    Args:
        rate: probability of being dropped.
        per_sequence: drop a feature at all time steps of a sequence or at none.
    """

    def __init__(self, rate: float, per_sequence: bool) -> None:
        super().__init__()
        self.rate, self.per_sequence = rate, per_sequence

    def forward(self, x: Tensor) -> Tensor:
        if self.per_sequence and x.dim() == 3:
            return x * functional.dropout(torch.ones_like(x[:1]), self.rate, self.training)
        return functional.dropout(x, self.rate, self.training)

    def extra_repr(self) -> str:
        return f"{self.rate}, per_sequence={self.per_sequence}"


class DropPath(nn.Module):
    """Stochastic depth (Huang et al., 2016): in training, some sequences bypass a block.

    Args:
        rate: share of the sequences that bypass it.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.active = rate > 0
        self.keep_rate = torch.tensor(1 - rate, device="cpu")
        """A tensor, because torch.compile would compile every block that differs in a plain number.
        Not a buffer, because a model built on the meta device would lose its value."""

    def _apply(self, fn: Any, recurse: bool = True) -> "DropPath":
        self.keep_rate = torch.tensor(1 - self.rate, device=fn(self.keep_rate).device)
        return super()._apply(fn, recurse)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.active:
            return x
        mask = torch.rand(x.shape[-2], 1, device=x.device) < self.keep_rate
        return x * (mask / self.keep_rate.clamp(min=1e-6)).to(x.dtype)

    def extra_repr(self) -> str:
        return str(self.rate)


def apply_glu(y: Tensor, kind: str) -> Tensor:
    """One half of the features times a function of the other half; ``"none"`` returns y."""
    if kind == "none":
        return y
    if kind == "sigmoid":
        return functional.glu(y, -1)
    value, gate = y.chunk(2, -1)
    return value * (functional.gelu(gate) if kind == "gelu" else functional.silu(gate))
