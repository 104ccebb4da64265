"""What stands around a layer: residual blocks, feed-forward blocks, nothing; before it, sums of
neighbouring steps.

Layers are *mixers*: [B, T, features] to [B, T, width], causal. Blocks are between them and have the
time first, [T, B, features], as recurrences read it: what a mixer gets and gives is a view. A block
with a mixer that streams streams too: ``init_state``, then ``step`` by step, or some steps at once
with a ``state``.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .config import ModelConfig
from .scan.contract import step_mask

NORMS = {"layer": nn.LayerNorm, "rms": nn.RMSNorm, "batch": nn.BatchNorm1d}


class Norm(nn.Module):
    """LayerNorm or RMSNorm over features, or BatchNorm over sequences and steps."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.norm = NORMS[kind](width)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        if isinstance(self.norm, nn.RMSNorm):  # autocast leaves it in half precision
            return self.norm(x.to(self.norm.weight.dtype))
        if isinstance(self.norm, nn.LayerNorm):
            return self.norm(x)
        if lengths is None or x.dim() == 2:
            return self.norm(x.flatten(0, -2)).view_as(x)
        inside = step_mask(len(x), lengths.flatten())
        y = torch.zeros_like(x)
        y[inside] = self.norm(x[inside])  # padding is no part of the statistics
        return y


class Dropout(nn.Module):
    """Of single numbers, or (tied) of a feature at all steps of a sequence."""

    def __init__(self, share: float, tied: bool) -> None:
        super().__init__()
        self.share, self.tied = share, tied

    def forward(self, x: Tensor) -> Tensor:
        if self.tied and x.dim() == 3:
            return x * functional.dropout(torch.ones_like(x[:1]), self.share, self.training)
        return functional.dropout(x, self.share, self.training)

    def extra_repr(self) -> str:
        return f"{self.share}, tied={self.tied}"


class Skip(nn.Module):
    """Stochastic depth (Huang et al., 2016): in training some sequences go around a block."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.skips = share > 0
        self.kept = torch.tensor(1 - share, device="cpu")
        """A tensor: blocks that differ in a plain number would all be compiled. No buffer: those
        are lost where a model is made on the meta device."""

    def _apply(self, fn: Any, recurse: bool = True) -> "Skip":
        self.kept = torch.tensor(1 - self.share, device=fn(self.kept).device)
        return super()._apply(fn, recurse)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.skips:
            return x
        kept = torch.rand(x.shape[-2], 1, device=x.device) < self.kept
        return x * (kept / self.kept.clamp(min=1e-6)).to(x.dtype)

    def extra_repr(self) -> str:
        return str(self.share)


class Stacked(nn.Module):
    """A layer alone, with dropout after it unless it is the last."""

    def __init__(self, mixer: nn.Module, dropout: float) -> None:
        super().__init__()
        self.mixer = mixer
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor | None = None, state: Any = None) -> Any:
        y, state = mixed(self.mixer, x, lengths, state)
        y = self.dropout(y)
        return y if state is None else (y, state)

    def init_state(self, batch: int) -> Any:
        """The mixer's state before the first step."""
        return self.mixer.init_state(batch)  # type: ignore[operator]

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step [B, features]."""
        y, state = self.mixer.step(x, state)  # type: ignore[operator]
        return self.dropout(y), state


class Around(nn.Module, ABC):
    """Base of blocks with a residual around the layer; subclasses say what follows it.

    Args:
        mixer: the layer, as wide as it reads.
        model: norm, its place, and dropout.
        skip: share of sequences that go around the block in training.
    """

    def __init__(self, mixer: nn.Module, model: ModelConfig, skip: float) -> None:
        super().__init__()
        self.mixer = mixer
        self.prenorm = model.prenorm
        self.norm = Norm(model.norm, model.width)
        self.dropout = Dropout(model.dropout, model.tied_dropout)
        self.skip = Skip(skip)

    @abstractmethod
    def after(self, x: Tensor, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The block's output, from its input x and the mixer's output y."""

    def forward(self, x: Tensor, lengths: Tensor | None = None, state: Any = None) -> Any:
        y, state = mixed(self.mixer, self._before(x, lengths), lengths, state)
        y = self.after(x, y, lengths)
        return y if state is None else (y, state)

    def init_state(self, batch: int) -> Any:
        """The mixer's state before the first step."""
        return self.mixer.init_state(batch)  # type: ignore[operator]

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One step [B, width]."""
        y, state = self.mixer.step(self._before(x), state)  # type: ignore[operator]
        return self.after(x, y), state

    def _before(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.norm(x, lengths) if self.prenorm else x

    def _sum(self, x: Tensor, y: Tensor, norm: Norm, lengths: Tensor | None) -> Tensor:
        x = x + self.skip(self.dropout(y))
        return x if self.prenorm else norm(x, lengths)


class Alone(Around):
    """x + dropout(mixer(norm(x))), or with the norm after the sum: attention in a hybrid."""

    def after(self, x: Tensor, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self._sum(x, y, self.norm, lengths)


class Residual(Around):
    """x + dropout(GLU(linear(dropout(GELU(mixer(norm(x))))))), or with the norm after the sum."""

    def __init__(self, mixer: nn.Module, model: ModelConfig, skip: float = 0.0) -> None:
        super().__init__(mixer, model, skip)
        self.glu = model.glu
        reads = model.width if model.projects_back else model.width * model.expand
        self.out = nn.Linear(reads, model.width * (1 if model.glu == "none" else 2))

    def after(self, x: Tensor, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        y = gated(self.out(self.dropout(functional.gelu(y))), self.glu)
        return self._sum(x, y, self.norm, lengths)


class FeedForward(Around):
    """The layer around a residual, then linear(dropout(GELU(linear))) around another: the block of
    Transformers and language models."""

    def __init__(self, mixer: nn.Module, model: ModelConfig, skip: float = 0.0) -> None:
        super().__init__(mixer, model, skip)
        inner = 4 * model.width if model.feedforward is None else model.feedforward
        self.second_norm = Norm(model.norm, model.width)
        self.widen = nn.Linear(model.width, inner)
        self.narrow = nn.Linear(inner, model.width)

    def after(self, x: Tensor, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        x = self._sum(x, y, self.norm, lengths)
        y = self.second_norm(x, lengths) if self.prenorm else x
        y = self.narrow(self.dropout(functional.gelu(self.widen(y))))
        return self._sum(x, y, self.second_norm, lengths)


class Convolution(nn.Module):
    """Each feature plus its own values of the last few steps, weighted.

    Neighbouring steps meet there however seldom the layers after it update. Long ones (see LONG)
    are products with band matrices of about 6 · width · taps² numbers. In these NaN and infinity
    also reach some steps *before* their own, for there they are multiplied by 0.

    Args:
        width: features.
        taps: steps that are summed, the present one included.
    """

    def __init__(self, width: int, taps: int) -> None:
        super().__init__()
        self.taps = nn.Parameter(torch.randn(taps - 1, width) * 0.35 / (taps - 1) ** 0.5)
        """Of the steps before, the latest last; the present one has the weight 1. They begin small
        enough for a dozen such sums in a row to leave features recognisable."""

    def forward(self, x: Tensor, lengths: Tensor | None = None, state: Tensor | None = None) -> Any:
        """[T, B, width]; from a state [B, taps - 1, width], the latest inputs, also the one after,
        of each sequence after its ``lengths``."""
        kept = len(self.taps)
        if lengths is not None and kept >= LONG:  # in bands, NaN in the padding would matter
            x = x.where(step_mask(len(x), lengths).unsqueeze(-1), 0.0)
        if state is None:
            return self._sums(functional.pad(x, (0, 0, 0, 0, kept, 0)))
        seen = torch.cat((state.to(x.dtype).transpose(0, 1), x))
        if lengths is None:
            after = seen[len(x) :].transpose(0, 1).clone()  # a view would keep all steps in memory
        else:
            rows = lengths[:, None] + torch.arange(kept, device=x.device)
            after = seen[rows, torch.arange(len(rows), device=x.device)[:, None]]
        return self._sums(seen), after.to(state.dtype)

    def init_state(self, batch: int) -> Tensor:
        """Before the first step: zeros."""
        return self.taps.new_zeros(batch, *self.taps.shape)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One step [B, width]."""
        y, state = self(x.unsqueeze(0), None, state)
        return y[0], state

    def _sums(self, seen: Tensor) -> Tensor:
        """Of all steps but the first ones, which are there for those after them."""
        kept = len(self.taps)
        now, taps = seen[kept:], self.taps.to(seen.dtype)
        if kept >= LONG and len(now):
            return now + (_banded if len(now) >= LONG else _windowed)(seen, taps)
        for back in range(1, kept + 1):
            now = now + taps[kept - back] * seen[kept - back : len(seen) - back]
        return now

    def extra_repr(self) -> str:
        return f"taps={len(self.taps) + 1}"


LONG = 9
"""From so many earlier steps on a convolution is one of matrices: the sum of many terms in half
precision rounds at each, and its gradient reads all steps once for each. For fewer steps than that
the matrices are not worth making. ``benchmarks/convolution.py`` has it beside other ways."""


def _windowed(seen: Tensor, taps: Tensor) -> Tensor:
    """Earlier steps, summed window by window, for a few steps."""
    return torch.einsum("tbck,kc->tbc", seen[:-1].unfold(0, len(taps), 1), taps)


def _banded(seen: Tensor, taps: Tensor) -> Tensor:
    """Earlier steps, summed in chunks at least as long as the taps reach: feature by feature a band
    matrix times the chunk itself, plus one times the chunk before."""
    kept, (_, batch, width) = len(taps), seen.shape
    size = -(-kept // 16) * 16  # as tensor cores like it
    steps = len(seen) - kept
    chunks = -(-steps // size)
    seen = functional.pad(seen, (0, 0, 0, 0, size - kept, chunks * size - steps))
    seen = seen.view(chunks + 1, size, batch, width).permute(3, 0, 2, 1).contiguous()

    # Rows of three sizes, all alike, are each moved by one more when read as rows of one less.
    # (Indices would need atomic sums in their gradient.)
    lags = functional.pad(taps.flip(0).t(), (1, 3 * size - kept - 1)).roll(-size, 1)
    rows = lags.unsqueeze(1).expand(width, 2 * size, 3 * size).reshape(width, -1)
    bands = rows[:, : 2 * size * (3 * size - 1)].view(width, 2 * size, -1)[..., :size]

    before, now = (part.flatten(1, 2) for part in (seen[:, :-1], seen[:, 1:]))
    sums = torch.baddbmm(before @ bands[:, :size], now, bands[:, size:])
    return sums.view(width, chunks, batch, size).permute(1, 3, 2, 0).flatten(0, 1)[:steps]


def mixed(
    mixer: nn.Module, x: Tensor, lengths: Tensor | None = None, state: Any = None
) -> tuple[Tensor, Any]:
    """A mixer's outputs [T, B, width] for x [T, B, features]; from a state also the one after."""
    if state is None:
        return mixer(x.transpose(0, 1), lengths).transpose(0, 1), None
    if not hasattr(mixer, "run"):
        raise TypeError(
            f"{type(mixer).__name__} takes whole sequences or single steps, not parts of a sequence"
        )
    y, state = mixer.run(x.transpose(0, 1), state, lengths)  # type: ignore[operator]
    return y.transpose(0, 1), state


def gated(y: Tensor, how: str) -> Tensor:
    """One half of the features times a function of the other half; ``"none"`` is y itself."""
    if how == "none":
        return y
    if how == "sigmoid":
        return functional.glu(y, -1)
    value, gate = y.chunk(2, -1)
    return value * (functional.gelu(gate) if how == "gelu" else functional.silu(gate))
