"""One time step of a stream as a function of plain tensors: the content of ONNX and pt2 files.

``prediction, state = step(frame, state)``. The state is a dictionary of tensors, which have the
batch first and start as zeros: the clock ``t`` [B] int64, the number of time steps so far; the cell
state of layer i, such as ``h_i`` [B, H]; ``gate_i`` [B, M] if its gate has a memory; ``total`` if
predictions are means. In a user's own module, convolutions (``x_i``, the latest inputs) and means
(``total_i``) are numbered together with the layers. The streams of a batch may have started at
different times.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn

from surnn.models.base import StreamModule
from surnn.models.model import SequenceModel, StreamState
from surnn.models.scaling import ScaledEncoder
from surnn.models.selective import Selective
from surnn.models.signature import Tokens, Values
from surnn.nn.layers import SelectiveLayer
from surnn.nn.state import SuState

from .engine_layers import FROM_TORCH, as_layer
from .modules import StreamProgram, as_program

State = dict[str, Tensor]
CLOCK, TOTAL = "t", "total"


class StreamingStep(nn.Module, ABC):
    """``model.step`` on named tensors, of a copy of the model on the CPU in evaluation mode.

    :func:`streaming_step` makes one for a layer or a model.
    """

    output_name: str
    inputs: Tokens | Values

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = copy.deepcopy(model).cpu().eval().requires_grad_(False)
        try:
            state: Any = self.model.init_state(2)
        except (TypeError, ValueError) as error:
            raise ValueError(f"an export is one step of a stream, but {error}") from error
        self.parts = self._parts()
        self.names: list[tuple[str, ...]] = []
        """Names of the state tensors of each part."""
        first = 0
        for part in self.parts:
            self.names.append(part.state_names(first))
            first += part.num_layers
        self.zero_state = self._split(state, torch.zeros(2, dtype=torch.int64))
        """The state of two streams before their first time step."""

    @property
    def input_name(self) -> str:
        return "token" if isinstance(self.inputs, Tokens) else "frame"

    def init_state(self, batch: int = 1) -> State:
        """Zeros."""
        return {name: v.new_zeros(batch, *v.shape[1:]) for name, v in self.zero_state.items()}

    def random_input(self, batch: int, generator: torch.Generator | None = None) -> Tensor:
        """Tokens [batch], or frames [batch, features] that are normally distributed once scaled."""
        if isinstance(self.inputs, Tokens):
            return torch.randint(self.inputs.vocabulary, (batch,), generator=generator)
        dtype = next((p.dtype for p in self.model.parameters()), torch.get_default_dtype())
        x = torch.randn(batch, self.inputs.features, generator=generator, dtype=dtype)
        encoder = getattr(self.model, "encoder", None)
        return encoder.unscaled(x) if isinstance(encoder, ScaledEncoder) else x

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        t = state[CLOCK]
        states = tuple(
            part.join_state([state[name] for name in names], t)
            for part, names in zip(self.parts, self.names, strict=True)
        )
        y, new = self.model.step(x, self._join(states, state, t))
        return y, self._split(new, t + 1)

    def _named(self, states: Sequence[Any], t: Tensor) -> State:
        """The states of all parts by name, after the clock."""
        named = {CLOCK: t}
        for part, names, state in zip(self.parts, self.names, states, strict=True):
            named |= zip(names, part.split_state(state), strict=True)
        return named

    @abstractmethod
    def _parts(self) -> list[StreamModule]:
        """The modules that have a state, in order. A list, so that torch does not register them."""

    @abstractmethod
    def _split(self, state: Any, t: Tensor) -> State:
        """The model's state as named tensors."""

    @abstractmethod
    def _join(self, states: tuple[Any, ...], named: State, t: Tensor) -> Any:
        """The model's state, from the states of all parts and the named tensors."""


class LayerStep(StreamingStep):
    """A step of one of surnn's layers."""

    output_name = "output"

    def __init__(self, model: SelectiveLayer) -> None:
        super().__init__(model)
        self.inputs = Values(model.input_size)

    def _parts(self) -> list[StreamModule]:
        return [Selective(self.model)]

    def _split(self, state: SuState, t: Tensor) -> State:
        return self._named((state,), t)

    def _join(self, states: tuple[Any, ...], named: State, t: Tensor) -> SuState:
        return states[0]


class ModelStep(StreamingStep):
    """A step of a whole model."""

    output_name = "prediction"

    def __init__(self, model: SequenceModel) -> None:
        super().__init__(model)
        self.inputs = model.inputs

    def _parts(self) -> list[StreamModule]:
        return list(self.model.blocks)

    def _split(self, state: StreamState, t: Tensor) -> State:
        named = self._named(state.layers, t)
        return named | {TOTAL: state.total} if self.model.predicts_mean else named

    def _join(self, states: tuple[Any, ...], named: State, t: Tensor) -> StreamState:
        total = named.get(TOTAL, torch.zeros(()))
        return StreamState(states, total, t.unsqueeze(-1))  # type: ignore[arg-type]


class ProgramStep(StreamingStep):
    """A step of a user's own module."""

    output_name = "prediction"

    def __init__(self, model: StreamProgram) -> None:
        super().__init__(model)
        self.inputs = model.inputs

    def _parts(self) -> list[StreamModule]:
        return self.model.stateful()

    def _split(self, state: tuple[Any, ...], t: Tensor) -> State:
        return self._named(state, t)

    def _join(self, states: tuple[Any, ...], named: State, t: Tensor) -> tuple[Any, ...]:
        return states


@singledispatch
def streaming_step(model: nn.Module) -> StreamingStep:
    """The step of a layer, of a :class:`~surnn.models.model.SequenceModel` or of a module."""
    if type(model) in FROM_TORCH:
        return LayerStep(as_layer(model))
    return ProgramStep(as_program(model))


streaming_step.register(SelectiveLayer, LayerStep)
streaming_step.register(SequenceModel, ModelStep)
