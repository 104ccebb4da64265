"""Blocks: a mixer with the norm, residual and feed-forward network around it.

To add a block, derive it from :class:`~surnn.models.base.Block`, or from :class:`WrapperBlock` if
it has a mixer, and let ``models/build.py`` build it. A block provides

- ``forward(x, lengths, state, reset)``: [T, B, features] to [T, B, width], time first, as
  recurrences read it; from a ``state`` also the state after x;
- ``init_state(batch)`` and ``step(x, state)``: streaming, one time step at a time;
- ``state_names``, ``split_state``, ``join_state``: its state as named tensors, for ONNX and
  torch.export files;
- ``check_resumable()``: whether a stream can be read in parts;
- ``check_resets()``: whether a sequence can start anew inside it.

A ``WrapperBlock`` gets all but ``forward`` and ``step`` from its mixer. Nothing else in the library
needs to know the class. Only the C engine does: to run there, a block registers its operations in
``deploy/export/engine_blocks.py``.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from surnn.config import ModelConfig
from surnn.scan.contract import step_mask

from .base import Block, Mixer

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


class WrapperBlock(Block):
    """Base of blocks around one mixer, whose state is the block's state.

    Args:
        mixer: the layer.
    """

    def __init__(self, mixer: Mixer) -> None:
        super().__init__()
        self.mixer = mixer

    def mix(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        state: Any = None,
        reset: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """The mixer on x [T, B, features]; from a ``state`` also the next state, else None."""
        resets = {} if reset is None else {"reset": reset.t()}
        if state is None:
            return self.mixer(x.transpose(0, 1), lengths, **resets).transpose(0, 1), None
        y, state = self.mixer.run(x.transpose(0, 1), state, lengths, **resets)
        return y.transpose(0, 1), state

    @property
    def num_layers(self) -> int:
        return self.mixer.num_layers

    def init_state(self, batch: int) -> Any:
        return self.mixer.init_state(batch)

    def check_resumable(self) -> None:
        self.mixer.check_resumable()

    def check_resets(self) -> None:
        self.mixer.check_resets()

    def state_names(self, first: int) -> tuple[str, ...]:
        return self.mixer.state_names(first)

    def split_state(self, state: Any) -> list[Tensor]:
        return self.mixer.split_state(state)

    def join_state(self, tensors: Sequence[Tensor], t: Tensor) -> Any:
        return self.mixer.join_state(tensors, t)


class PlainBlock(WrapperBlock):
    """The mixer alone, followed by dropout (the last block has none)."""

    def __init__(self, mixer: Mixer, dropout: float) -> None:
        super().__init__(mixer)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        state: Any = None,
        reset: Tensor | None = None,
    ) -> Any:
        y, state = self.mix(x, lengths, state, reset)
        y = self.dropout(y)
        return y if state is None else (y, state)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = self.mixer.step(x, state)
        return self.dropout(y), state


class ResidualBlock(WrapperBlock):
    """Base of blocks with a residual around the mixer; subclasses define what follows the mixer.

    Args:
        mixer: the layer; its output is as wide as its input.
        model: norm, its place, and dropout.
        drop_path: share of the sequences that bypass the block in training.
    """

    def __init__(self, mixer: Mixer, model: ModelConfig, drop_path: float) -> None:
        super().__init__(mixer)
        self.prenorm = model.prenorm
        self.norm = Norm(model.norm, model.width)
        self.dropout = Dropout(model.dropout, model.sequence_dropout)
        self.drop_path = DropPath(drop_path)

    @abstractmethod
    def finish(self, x: Tensor, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The block's output, from its input x and the mixer's output y."""

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        state: Any = None,
        reset: Tensor | None = None,
    ) -> Any:
        y, state = self.mix(self._prepare(x, lengths), lengths, state, reset)
        y = self.finish(x, y, lengths)
        return y if state is None else (y, state)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        y, state = self.mixer.step(self._prepare(x), state)
        return self.finish(x, y), state

    def _prepare(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.norm(x, lengths) if self.prenorm else x

    def _add(self, x: Tensor, y: Tensor, norm: Norm, lengths: Tensor | None) -> Tensor:
        x = x + self.drop_path(self.dropout(y))
        return x if self.prenorm else norm(x, lengths)


class MixerBlock(ResidualBlock):
    """x + dropout(mixer(norm(x))), or with the norm after the sum: attention in a hybrid."""

    def finish(self, x: Tensor, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self._add(x, y, self.norm, lengths)


class GLUBlock(ResidualBlock):
    """x + dropout(GLU(linear(dropout(GELU(mixer(norm(x))))))), or with the norm after the sum."""

    def __init__(self, mixer: Mixer, model: ModelConfig, drop_path: float = 0.0) -> None:
        super().__init__(mixer, model, drop_path)
        self.glu = model.glu
        features = model.width if model.projects_back else model.width * model.expand
        self.out = nn.Linear(features, model.width * (1 if model.glu == "none" else 2))

    def finish(self, x: Tensor, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        y = apply_glu(self.out(self.dropout(functional.gelu(y))), self.glu)
        return self._add(x, y, self.norm, lengths)


class FeedForwardBlock(ResidualBlock):
    """The mixer with a residual, then linear(dropout(GELU(linear))) with another: the block of
    Transformers and language models."""

    def __init__(self, mixer: Mixer, model: ModelConfig, drop_path: float = 0.0) -> None:
        super().__init__(mixer, model, drop_path)
        inner = 4 * model.width if model.feedforward is None else model.feedforward
        self.second_norm = Norm(model.norm, model.width)
        self.widen = nn.Linear(model.width, inner)
        self.narrow = nn.Linear(inner, model.width)

    def finish(self, x: Tensor, y: Tensor, lengths: Tensor | None = None) -> Tensor:
        x = self._add(x, y, self.norm, lengths)
        y = self.second_norm(x, lengths) if self.prenorm else x
        y = self.narrow(self.dropout(functional.gelu(self.widen(y))))
        return self._add(x, y, self.second_norm, lengths)


def apply_glu(y: Tensor, kind: str) -> Tensor:
    """One half of the features times a function of the other half; ``"none"`` returns y."""
    if kind == "none":
        return y
    if kind == "sigmoid":
        return functional.glu(y, -1)
    value, gate = y.chunk(2, -1)
    return value * (functional.gelu(gate) if kind == "gelu" else functional.silu(gate))
