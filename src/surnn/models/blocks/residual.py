"""Blocks of a mixer with the norm, residual and feed-forward network around it."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from surnn.config import ModelConfig

from ..base import Block, Mixer
from .parts import Dropout, DropPath, Norm, apply_glu


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
