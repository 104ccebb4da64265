"""One step of a stream as a function of plain tensors: what ONNX and torch.export files hold.

``prediction, state = step(frame, state)``, where ``state`` is a dictionary of tensors that all have
the batch first and begin as zeros: the clock ``t`` [B] int64, steps taken so far; for layer i what
its cell keeps, such as ``h_i`` [B, H]; ``gate_i`` [B, M] where its gate remembers; ``total`` where
predictions are means. Streams of a batch may have begun at different times.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..baselines import DiagonalSSM, LinearMap, MinGRU, TorchRecurrent
from ..blocks import Convolution
from ..layers import SelectiveLayer
from ..models import Selective, SequenceModel, StreamState
from ..state import SuState
from ..tasks.base import Tokens

State = dict[str, Tensor]
CLOCK, TOTAL = "t", "total"


class StreamingStep(nn.Module):
    """``model.step`` on named tensors; of a copy of the model, on the CPU and in evaluation mode.

    Args:
        model: one of surnn's layers, or a :class:`~surnn.models.SequenceModel`.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        if not isinstance(model, SelectiveLayer | SequenceModel):
            raise TypeError(
                f"surnn's layers and models can be exported, got {type(model).__name__}; a layer "
                "of torch becomes one by surnn.SuGRU.from_torch(gru, gate=surnn.AlwaysOpen())"
            )
        self.model = copy.deepcopy(model).cpu().eval().requires_grad_(False)
        try:
            begun: Any = self.model.init_state(2)
        except (TypeError, ValueError) as error:
            raise ValueError(f"what is exported is one step of a stream, but {error}") from error
        self.averages = False
        mixers: list[Any] = [self.model]
        if isinstance(self.model, SequenceModel):
            self.averages = self.model.pool == "mean" and self.model.wanted.per == "sequence"
            mixers = [getattr(block, "mixer", block) for block in self.model.blocks]
        self.memories: list[Memory] = []
        number = 0
        for mixer in mixers:
            self.memories.append(memory_of(mixer, number))
            number += self.memories[-1].layers
        self.begin = self._named(begun, torch.zeros(2, dtype=torch.int64))
        """The state before the first step of two streams."""

    @property
    def input_name(self) -> str:
        return "token" if self._vocabulary else "frame"

    @property
    def output_name(self) -> str:
        return "prediction" if isinstance(self.model, SequenceModel) else "output"

    @property
    def _vocabulary(self) -> int:
        given = getattr(self.model, "given", None)
        return given.vocabulary if isinstance(given, Tokens) else 0

    def init_state(self, batch: int = 1) -> State:
        """Zeros."""
        return {name: v.new_zeros(batch, *v.shape[1:]) for name, v in self.begin.items()}

    def random_input(self, batch: int, generator: torch.Generator | None = None) -> Tensor:
        """Tokens [batch], or frames [batch, features] from the normal distribution."""
        if self._vocabulary:
            return torch.randint(self._vocabulary, (batch,), generator=generator)
        if isinstance(self.model, SelectiveLayer):
            features = self.model.input_size
        else:
            features = self.model.given.features  # type: ignore[union-attr]
        dtype = next(self.model.parameters()).dtype
        return torch.randn(batch, features, generator=generator, dtype=dtype)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        t = state[CLOCK]
        joined = tuple(m.join([state[name] for name in m.names], t) for m in self.memories)
        if isinstance(self.model, SelectiveLayer):
            y, new = self.model.step(x, joined[0])
        else:
            total = state[TOTAL] if self.averages else torch.zeros(())
            begun = StreamState(joined, total, t.unsqueeze(-1))  # type: ignore[arg-type]
            y, new = self.model.step(x, begun)
        return y, self._named(new, t + 1)

    def _named(self, state: SuState | StreamState, t: Tensor) -> State:
        named = {CLOCK: t}
        parts = state.layers if isinstance(state, StreamState) else (state,)
        for memory, part in zip(self.memories, parts, strict=True):
            named |= zip(memory.names, memory.split(part), strict=True)
        if self.averages and isinstance(state, StreamState):
            named[TOTAL] = state.total
        return named


# ---------------------------------------------------------------------------- states by name


@dataclass(frozen=True)
class Memory:
    """How the state of one layer, or of a stack of them, becomes tensors with names, and back."""

    layers: int
    names: tuple[str, ...]
    split: Callable[[Any], Sequence[Tensor]]
    join: Callable[[Sequence[Tensor], Tensor], Any]
    """From the tensors and the clock [B]."""


def memory_of(mixer: nn.Module, first: int) -> Memory:
    """That of a mixer whose first layer has the number ``first``."""
    if isinstance(mixer, Convolution):  # named by the layer that comes after it
        return Memory(0, (f"x_{first}",), lambda x: [x], lambda tensors, t: tensors[0])
    if isinstance(mixer, Selective):
        mixer = mixer.layer
    if isinstance(mixer, SelectiveLayer):
        return _selective(mixer, first)
    if isinstance(mixer, TorchRecurrent):  # torch's have a dimension of layers first
        names = (
            (f"h_{first}", f"c_{first}") if isinstance(mixer.layer, nn.LSTM) else (f"h_{first}",)
        )
        return Memory(
            1, names,
            lambda state: [v.squeeze(0) for v in state],
            lambda tensors, t: tuple(v.unsqueeze(0) for v in tensors),
        )  # fmt: skip
    if isinstance(mixer, MinGRU):
        return Memory(1, (f"h_{first}",), lambda h: [h], lambda tensors, t: tensors[0])
    if isinstance(mixer, LinearMap):
        return Memory(1, (), lambda nothing: [], lambda tensors, t: t.new_zeros(t.shape[0], 0))
    if isinstance(mixer, DiagonalSSM):  # real and imaginary parts are the last dimension
        return Memory(
            1, (f"s_{first}",),
            lambda s: [torch.view_as_real(s)],
            lambda tensors, t: torch.view_as_complex(tensors[0]),
        )  # fmt: skip
    raise ValueError(
        f"{type(mixer).__name__} keeps more than a fixed state between steps: it streams in Python"
    )


def _selective(layer: SelectiveLayer, first: int) -> Memory:
    numbers = range(first, first + layer.num_layers)
    parts = layer.cell.components
    remembering = [m.shape[-1] > 0 for m in layer.init_state(1).gates]
    names = [f"{part}_{i}" for i in numbers for part in parts]
    names += [f"gate_{i}" for i, has_any in zip(numbers, remembering, strict=True) if has_any]

    def split(state: SuState) -> list[Tensor]:
        gates = [m for m, has_any in zip(state.gates, remembering, strict=True) if has_any]
        return [v for one in state.cell.unbind(0) for v in one.unbind(0)] + gates

    def join(tensors: Sequence[Tensor], t: Tensor) -> SuState:
        count = layer.num_layers * len(parts)
        cell = torch.stack(list(tensors[:count])).unflatten(0, (layer.num_layers, len(parts)))
        gates, none = list(tensors[count:]), tensors[0].new_zeros(tensors[0].shape[0], 0)
        return SuState(cell, t, tuple(gates.pop(0) if has else none for has in remembering))

    return Memory(layer.num_layers, tuple(names), split, join)
