"""Causal self-attention with rotary positions."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Multi-head causal attention through torch's fused kernels.

    Args:
        width: features in and out.
        heads: must divide width into even parts.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads or (width // heads) % 2:
            raise ValueError(
                f"{heads} attention heads do not divide {width} features into parts of even size"
            )
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Padding comes last and attention is causal, so lengths change nothing before it."""
        q, k, v = self.project(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k, v = (u.transpose(1, 2) for u in (rotate(q), rotate(k), v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


def rotate(x: Tensor) -> Tensor:
    """Rotary positions (Su et al., 2021) on x [B, T, heads, size]; angles in float32 at least."""
    half = x.shape[-1] // 2
    exact = torch.promote_types(x.dtype, torch.float32)
    frequency = 10_000 ** -(torch.arange(half, device=x.device, dtype=exact) / half)
    angle = torch.arange(x.shape[1], device=x.device)[:, None, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)
