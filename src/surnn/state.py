"""What crosses a chunk boundary."""

from typing import NamedTuple

import torch
from torch import Tensor


class SuState(NamedTuple):
    """The state of a layer between two steps of a stream: hidden values *and* the clock.

    A plain tuple of tensors: it can be stored, compiled and exported like any. ``torch.load`` reads
    it, once its name has been imported.
    """

    cell: Tensor
    """[layers, components, B, H] (GRU and RNN: h; LSTM: h, c; spiking: s, u, b)."""
    t: Tensor
    """int64 number of steps taken: a scalar, or [B] if streams started at different times."""
    gates: tuple[Tensor, ...]
    """Memory of each layer's gate, [B, M]; M is 0 for gates without any."""

    def detach(self) -> "SuState":
        """The same without its past: what is passed on in truncated back-propagation."""
        return SuState(self.cell.detach(), self.t, tuple(m.detach() for m in self.gates))

    def to(self, device: torch.device | str) -> "SuState":
        """The same on another device."""
        moved = tuple(memory.to(device) for memory in self.gates)
        return SuState(self.cell.to(device), self.t.to(device), moved)


torch.serialization.add_safe_globals([SuState])
