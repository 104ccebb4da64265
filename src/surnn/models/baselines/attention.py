"""Causal self-attention with rotary positions."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from surnn.errors import ConfigError
from surnn.nn.resets import restart_clock

from ..base import Mixer, select_clock, select_state


class AttentionCache(NamedTuple):
    """Keys and values of a stream's earlier time steps."""

    keys: Tensor
    values: Tensor
    """[B, attention heads, n, size], the latest time step last. A stream of fewer than n steps has
    zeros first, which are masked."""
    t: Tensor
    """int64 number of time steps so far: a scalar, or [B] if streams started at different times."""


@select_state.register
def _(state: AttentionCache, rows: Tensor) -> AttentionCache:
    return AttentionCache(state.keys[rows], state.values[rows], select_clock(state.t, rows))


class Attention(Mixer):
    """Multi-head causal attention through torch's fused kernels.

    A stream keeps the keys and values of all its time steps, or of a ``window``.

    Args:
        width: features in and out.
        heads: attention heads; must divide width into parts of even size.
        window: time steps that are visible, including the present one; None means all.
    """

    handles_resets = True

    def __init__(self, width: int, heads: int, window: int | None = None) -> None:
        super().__init__()
        if width % heads or (width // heads) % 2:
            raise ValueError(
                f"{heads} attention heads do not divide {width} features into parts of even size"
            )
        self.heads, self.window = heads, window
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, reset: Tensor | None = None
    ) -> Tensor:
        """Attention is causal and padding comes last, so ``lengths`` have no effect."""
        if reset is not None:
            return self.run(x, self.init_state(len(x)), lengths, reset)[0]
        q, k, v = self._heads(x, torch.arange(x.shape[1], device=x.device)[None])
        if self.window is None or self.window >= x.shape[1]:
            return self._project_out(
                functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            )
        visible = self._visible(0, x.shape[1], x.device)
        return self._project_out(
            functional.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        )

    def init_state(self, batch: int) -> AttentionCache:
        weight = self.project.weight
        length = 0 if self.window is None else self.window - 1
        shape = (batch, self.heads, length, len(self.out.weight) // self.heads)
        t = torch.zeros((), dtype=torch.int64, device=weight.device)
        return AttentionCache(weight.new_zeros(shape), weight.new_zeros(shape), t)

    def step(self, x: Tensor, state: AttentionCache) -> tuple[Tensor, AttentionCache]:
        y, state = self.run(x.unsqueeze(1), state)
        return y[:, 0], state

    def run(
        self,
        x: Tensor,
        state: AttentionCache,
        lengths: Tensor | None = None,
        reset: Tensor | None = None,
    ) -> tuple[Tensor, AttentionCache]:
        before, steps = state.keys.shape[2], x.shape[1]
        t = state.t.reshape(1, -1) + torch.arange(1, steps + 1, device=x.device)[:, None]
        t = (t if reset is None else restart_clock(t, reset.t())).t()  # [b, T], from 1
        q, k, v = self._heads(x, t - 1)
        k, v = (
            torch.cat((old.to(new.dtype), new), 2)
            for old, new in ((state.keys, k), (state.values, v))
        )
        index = torch.arange(before + steps, device=x.device)
        first = index[before:] + 1 - t  # of each time step's own sequence, [b, T]
        visible = self._visible(before, steps, x.device) & (index >= first[:, None, :, None])
        y = self._project_out(functional.scaled_dot_product_attention(q, k, v, attn_mask=visible))
        length = before + steps if self.window is None else self.window - 1
        if lengths is None:
            earliest = before + steps - length
            after = state.t + steps if reset is None else t[:, -1]
            return y, AttentionCache(k[:, :, earliest:], v[:, :, earliest:], after)
        earliest = before + lengths - length  # a stream's last time step becomes the last row
        rows = (earliest[:, None] + index[:length]).clamp(min=0)[:, None, :, None]
        k, v = (u.gather(2, rows.expand(-1, u.shape[1], -1, u.shape[3])) for u in (k, v))
        after = state.t + lengths
        if reset is not None:
            after = t.gather(1, (lengths - 1)[:, None])[:, 0]
        return y, AttentionCache(k, v, after)

    def check_resumable(self) -> None:
        if self.window is None:
            raise ConfigError(
                "attention to all steps would grow without end: set a --model.window, or use "
                "--task.no-streams"
            )

    def _heads(self, x: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [B, heads, T, size] at time steps ``position`` [b, T]."""
        qk, v = (
            self.project(x).unflatten(-1, (3 * self.heads, -1)).tensor_split([2 * self.heads], 2)
        )
        q, k = rotate(qk, position).transpose(1, 2).chunk(2, 1)  # both by the same angles
        return q, k, v.transpose(1, 2)

    def _visible(self, before: int, steps: int, device: torch.device) -> Tensor:
        """[T, before + T]: which time steps each of the last T attends to."""
        now = torch.arange(before, before + steps, device=device)[:, None]
        then = torch.arange(before + steps, device=device)
        past = then <= now
        return past if self.window is None else past & (then > now - self.window)

    def _project_out(self, y: Tensor) -> Tensor:
        return self.out(y.transpose(1, 2).flatten(2))


def rotate(x: Tensor, position: Tensor) -> Tensor:
    """Rotary positions (Su et al., 2021) for x [B, T, heads, size] at steps ``position`` [b, T].

    Angles are float64, because a stream may be long.
    """
    half = x.shape[-1] // 2
    exact = torch.promote_types(x.dtype, torch.float32)
    frequency = 10_000 ** -(torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angle = position[..., None, None] * frequency
    cos, sin = angle.cos().to(exact), angle.sin().to(exact)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)
