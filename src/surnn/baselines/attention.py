"""Causal self-attention with rotary positions."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class Remembered(NamedTuple):
    """What attention keeps of a stream."""

    keys: Tensor
    values: Tensor
    """[B, heads, n, size], the latest step last. A stream younger than n has zeros before its
    own, which are not looked at."""
    t: Tensor
    """int64 number of steps taken: a scalar, or [B] if streams began at different times."""


class Attention(nn.Module):
    """Multi-head causal attention through torch's fused kernels.

    A stream keeps the keys and values of all its steps, or of a ``window``.

    Args:
        width: features in and out.
        heads: must divide width into even parts.
        window: steps that are seen, the present one included; None is all.
    """

    def __init__(self, width: int, heads: int, window: int | None = None) -> None:
        super().__init__()
        if width % heads or (width // heads) % 2:
            raise ValueError(
                f"{heads} attention heads do not divide {width} features into parts of even size"
            )
        self.heads, self.window = heads, window
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Padding comes last and attention is causal, so lengths change nothing before it."""
        q, k, v = self._heads(x, torch.zeros((), dtype=torch.int64, device=x.device))
        if self.window is None or self.window >= x.shape[1]:
            return self._mixed(functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        seen = self._seen(0, x.shape[1], x.device)
        return self._mixed(functional.scaled_dot_product_attention(q, k, v, attn_mask=seen))

    def init_state(self, batch: int) -> Remembered:
        """Before the first step."""
        some = self.project.weight
        kept = 0 if self.window is None else self.window - 1
        shape = (batch, self.heads, kept, len(self.out.weight) // self.heads)
        t = torch.zeros((), dtype=torch.int64, device=some.device)
        return Remembered(some.new_zeros(shape), some.new_zeros(shape), t)

    def step(self, x: Tensor, state: Remembered) -> tuple[Tensor, Remembered]:
        """One step [B, width]."""
        y, state = self.run(x.unsqueeze(1), state)
        return y[:, 0], state

    def run(
        self, x: Tensor, state: Remembered, lengths: Tensor | None = None
    ) -> tuple[Tensor, Remembered]:
        """Some steps [B, T, width] of a stream; of each sequence its ``lengths``."""
        q, k, v = self._heads(x, state.t)
        k, v = (
            torch.cat((old.to(new.dtype), new), 2)
            for old, new in ((state.keys, k), (state.values, v))
        )
        before, steps = state.keys.shape[2], x.shape[1]
        index = torch.arange(before + steps, device=x.device)
        there = index >= before - state.t.reshape(-1, 1)  # [b, n]
        seen = self._seen(before, steps, x.device) & there[:, None, None]
        y = self._mixed(functional.scaled_dot_product_attention(q, k, v, attn_mask=seen))
        kept = before + steps if self.window is None else self.window - 1
        if lengths is None:
            first = before + steps - kept
            return y, Remembered(k[:, :, first:], v[:, :, first:], state.t + steps)
        first = before + lengths - kept  # so that each sequence's last step comes to lie at the end
        rows = (first[:, None] + index[:kept]).clamp(min=0)[:, None, :, None]
        k, v = (u.gather(2, rows.expand(-1, u.shape[1], -1, u.shape[3])) for u in (k, v))
        return y, Remembered(k, v, state.t + lengths)

    def _heads(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [B, heads, T, size] of steps after the first t."""
        qk, v = (
            self.project(x).unflatten(-1, (3 * self.heads, -1)).tensor_split([2 * self.heads], 2)
        )
        place = t.reshape(-1, 1) + torch.arange(x.shape[1], device=x.device)
        q, k = rotate(qk, place).transpose(1, 2).chunk(2, 1)  # by the same angles, made once
        return q, k, v.transpose(1, 2)

    def _seen(self, before: int, steps: int, device: torch.device) -> Tensor:
        """[T, before + T]: which steps each of the last T looks at."""
        now = torch.arange(before, before + steps, device=device)[:, None]
        then = torch.arange(before + steps, device=device)
        past = then <= now
        return past if self.window is None else past & (then > now - self.window)

    def _mixed(self, y: Tensor) -> Tensor:
        return self.out(y.transpose(1, 2).flatten(2))


def rotate(x: Tensor, place: Tensor) -> Tensor:
    """Rotary positions (Su et al., 2021) on x [B, T, heads, size] at steps ``place`` [b, T].

    Angles are in float64: a stream may run for long.
    """
    half = x.shape[-1] // 2
    exact = torch.promote_types(x.dtype, torch.float32)
    frequency = 10_000 ** -(torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angle = place[..., None, None] * frequency
    cos, sin = angle.cos().to(exact), angle.sin().to(exact)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)
