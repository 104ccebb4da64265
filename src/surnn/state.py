"""What crosses a chunk boundary."""

from typing import NamedTuple

from torch import Tensor


class SuState(NamedTuple):
    """The state of a layer between two steps of a stream: hidden values *and* the clock.

    A plain tuple of tensors: it can be stored, moved, compiled and exported like any.
    """

    cell: Tensor
    """[layers, components, B, H] (GRU and RNN: h; LSTM: h, c; spiking: s, u, b)."""
    t: Tensor
    """int64 number of steps taken: a scalar, or [B] if streams started at different times."""
    gates: tuple[Tensor, ...]
    """Memory of each layer's gate, [B, M]; M is 0 for gates without any."""
