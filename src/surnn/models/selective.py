"""surnn's own layers as a mixer."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from surnn.nn.layers import SelectiveLayer
from surnn.nn.state import SuState

from .base import Mixer, select_clock, select_state


class Selective(Mixer):
    """One of surnn's layers, or a stack of them, as a mixer.

    Args:
        layer: the layer, with ``batch_first=True`` (streaming step by step works without).
    """

    handles_resets = True

    def __init__(self, layer: SelectiveLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, reset: Tensor | None = None
    ) -> Tensor:
        return self.layer(x, lengths=lengths, reset=reset)[0]

    @property
    def num_layers(self) -> int:
        return self.layer.num_layers

    def init_state(self, batch: int) -> SuState:
        return self.layer.init_state(batch)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.layer.step(x, state)

    def run(
        self, x: Tensor, state: Any, lengths: Tensor | None = None, reset: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        return self.layer(x, state, lengths=lengths, reset=reset)

    def state_names(self, first: int) -> tuple[str, ...]:
        """``h_0``, ``h_1``, ...: the cell's components layer by layer; then the gates' memory."""
        numbers = range(first, first + self.num_layers)
        names = [f"{part}_{i}" for i in numbers for part in self.layer.cell.components]
        with_memory = zip(numbers, self._has_memory, strict=True)
        return (*names, *(f"gate_{i}" for i, has_any in with_memory if has_any))

    def split_state(self, state: SuState) -> list[Tensor]:
        memory = zip(state.gates, self._has_memory, strict=True)
        cells = [part for one in state.cell.unbind(0) for part in one.unbind(0)]
        return cells + [values for values, has_any in memory if has_any]

    def join_state(self, tensors: Sequence[Tensor], t: Tensor) -> SuState:
        parts = len(self.layer.cell.components)
        count = self.num_layers * parts
        cell = torch.stack(list(tensors[:count])).unflatten(0, (self.num_layers, parts))
        memory, empty = list(tensors[count:]), tensors[0].new_zeros(tensors[0].shape[0], 0)
        gates = (memory.pop(0) if has_any else empty for has_any in self._has_memory)
        return SuState(cell, t, tuple(gates))

    @cached_property
    def _has_memory(self) -> list[bool]:
        """For each layer, whether its gate remembers anything."""
        return [memory.shape[-1] > 0 for memory in self.layer.init_state(1).gates]


@select_state.register
def _(state: SuState, rows: Tensor) -> SuState:
    gates = tuple(memory[rows] for memory in state.gates)
    return SuState(state.cell[:, :, rows], select_clock(state.t, rows), gates)
