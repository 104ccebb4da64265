"""A short causal convolution, feature by feature, as a block of its own."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from surnn.nn.resets import last_reset
from surnn.scan.contract import step_mask

from ..base import Block


class Convolution(Block):
    """Each feature plus a weighted sum of its own values at the last few time steps.

    It mixes neighbouring time steps even if the layers after it update rarely. Long convolutions
    (see LONG) are products with band matrices of about 6 · width · taps² numbers. There NaN and
    infinity also reach some time steps *before* their own, because they are multiplied by 0.

    Args:
        width: features.
        taps: time steps in the sum, including the present one.
    """

    def __init__(self, width: int, taps: int) -> None:
        super().__init__()
        self.taps = nn.Parameter(torch.randn(taps - 1, width) * 0.35 / (taps - 1) ** 0.5)
        """Weights of the earlier time steps, the latest last; the present one has weight 1. The
        initial values are so small that features survive a dozen such sums in a row."""

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        state: Tensor | None = None,
        reset: Tensor | None = None,
    ) -> Any:
        """[T, B, width]. The state [B, taps - 1, width] holds the latest inputs.

        Inputs from before a reset do not enter a sum after it.
        """
        history = len(self.taps)
        start = None if reset is None else last_reset(reset)
        if lengths is not None and history >= LONG:  # NaN in the padding would spread in the bands
            x = x.where(step_mask(len(x), lengths).unsqueeze(-1), 0.0)
        if state is None:
            return self._sums(functional.pad(x, (0, 0, 0, 0, history, 0)), start)
        inputs = torch.cat((state.to(x.dtype).transpose(0, 1), x))
        if lengths is None:
            # A copy, because a view would keep all time steps in memory.
            latest = inputs[len(x) :].transpose(0, 1).clone()
        else:
            rows = lengths[:, None] + torch.arange(history, device=x.device)
            latest = inputs[rows, torch.arange(len(rows), device=x.device)[:, None]]
        if start is not None:
            latest = latest.masked_fill(self._forgotten(start, lengths).unsqueeze(-1), 0.0)
        return self._sums(inputs, start), latest.to(state.dtype)

    def _forgotten(self, start: Tensor, lengths: Tensor | None) -> Tensor:
        """[B, taps - 1] bool: which of the latest inputs lie before the last reset."""
        steps, batch = start.shape
        end = start.new_full((batch,), steps) if lengths is None else lengths
        earliest = start.gather(0, (end - 1)[None])[0]
        history = len(self.taps)
        time = end[:, None] - history + torch.arange(history, device=start.device)
        return time < earliest[:, None]

    def check_resets(self) -> None:
        pass

    @property
    def num_layers(self) -> int:
        return 0  # its state is named after the layer that follows

    def init_state(self, batch: int) -> Tensor:
        return self.taps.new_zeros(batch, *self.taps.shape)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y, state = self(x.unsqueeze(0), None, state)
        return y[0], state

    def state_names(self, first: int) -> tuple[str, ...]:
        return (f"x_{first}",)

    def _sums(self, inputs: Tensor, start: Tensor | None = None) -> Tensor:
        """Outputs of all time steps but the first ``taps - 1``, which are history only.

        ``start`` [T, B] is the latest reset, -1 where there was none: no sum reaches behind it.
        """
        history = len(self.taps)
        now, taps = inputs[history:], self.taps.to(inputs.dtype)
        if start is not None:
            return self._sums_since(inputs, taps, start)
        if history >= LONG and len(now):
            return now + (_banded if len(now) >= LONG else _windowed)(inputs, taps)
        for back in range(1, history + 1):
            now = now + taps[history - back] * inputs[history - back : len(inputs) - back]
        return now

    def _sums_since(self, inputs: Tensor, taps: Tensor, start: Tensor) -> Tensor:
        history = len(taps)
        now = inputs[history:]
        steps = torch.arange(len(start), device=start.device)[:, None]
        for back in range(1, history + 1):
            earlier = inputs[history - back : len(inputs) - back]
            seen = (start < 0) | (steps - back >= start)
            now = now + taps[history - back] * torch.where(seen.unsqueeze(-1), earlier, 0.0)
        return now

    def extra_repr(self) -> str:
        return f"taps={len(self.taps) + 1}"


LONG = 9
"""With at least this many earlier time steps, a convolution is a product of matrices. A sum of many
terms in half precision would round at every term, and its gradient would read all time steps once
per term. For fewer time steps than that, building the matrices does not pay.
``benchmarks/convolution.py`` compares other ways."""


def _windowed(inputs: Tensor, taps: Tensor) -> Tensor:
    """Sums of earlier time steps, one window at a time; for a few time steps."""
    return torch.einsum("tbck,kc->tbc", inputs[:-1].unfold(0, len(taps), 1), taps)


def _banded(inputs: Tensor, taps: Tensor) -> Tensor:
    """Sums of earlier time steps, in chunks at least as long as the taps reach.

    For each feature: a band matrix times the chunk, plus another times the chunk before it.
    """
    history, (_, batch, width) = len(taps), inputs.shape
    size = -(-history // 16) * 16  # multiples of 16 suit tensor cores
    steps = len(inputs) - history
    chunks = -(-steps // size)
    inputs = functional.pad(inputs, (0, 0, 0, 0, size - history, chunks * size - steps))
    inputs = inputs.view(chunks + 1, size, batch, width).permute(3, 0, 2, 1).contiguous()

    # Equal rows of length 3 * size, read as rows that are one shorter, are each shifted by one
    # more. (With indices the gradient would need atomic sums.)
    lags = functional.pad(taps.flip(0).t(), (1, 3 * size - history - 1)).roll(-size, 1)
    rows = lags.unsqueeze(1).expand(width, 2 * size, 3 * size).reshape(width, -1)
    bands = rows[:, : 2 * size * (3 * size - 1)].view(width, 2 * size, -1)[..., :size]

    before, now = (part.flatten(1, 2) for part in (inputs[:, :-1], inputs[:, 1:]))
    sums = torch.baddbmm(before @ bands[:, :size], now, bands[:, size:])
    return sums.view(width, chunks, batch, size).permute(1, 3, 2, 0).flatten(0, 1)[:steps]
