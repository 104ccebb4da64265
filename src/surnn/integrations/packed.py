"""Layers whose whole state is one or two plain tensors, for frameworks that keep states in buffers.

A framework for reinforcement learning copies states into arrays, slices them and sets them to zero
at the end of an episode. A packed state (:meth:`surnn.SuState.pack`) survives all of this, clock
included. These modules have the attributes by which frameworks size their buffers.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from surnn.nn.layers import SelectiveLayer


class PackedLayer(nn.Module):
    """A layer with a packed state in the place of a GRU's ``h``.

    Args:
        layer: the layer, unidirectional. Its gates draw nothing at random (``mode="hard"``): a
            replay would draw other decisions than the rollout had.

    ``num_layers`` and ``hidden_size`` are those of the state, [num_layers, B, hidden_size]; the
    outputs have ``layer.hidden_size`` features. A state of zeros starts a sequence.
    """

    parts = 1
    """Tensors of the state."""
    bidirectional = False
    proj_size = 0

    def __init__(self, layer: SelectiveLayer) -> None:
        super().__init__()
        if not isinstance(layer, SelectiveLayer):
            raise TypeError(
                f"layer must be one of surnn's layers, such as SuGRU, got {type(layer).__name__}"
            )
        layer.init_state()  # a layer that cannot stream is refused here
        for gate in layer.gates:
            if gate.mode == "sampled":
                raise ValueError(
                    f"{type(gate).__name__} has mode='sampled': in training it draws other "
                    "decisions in a replay than in the rollout; expected mode='hard' or 'soft'"
                )
        self.layer = layer
        self.input_size, self.batch_first = layer.input_size, layer.batch_first
        self.num_layers, _, self.width = layer.packed_shape()
        self.hidden_size = -(-self.width // self.parts)

    def forward(
        self, input: Tensor, hx: Any = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Outputs and the packed state after them.

        Args:
            input: [T, B, I], or [B, T, I] if the layer has ``batch_first``.
            hx: [num_layers, B, hidden_size]; None is zeros.
            mask: [B, T], true at the time steps of a sequence, false at the padding after it.
        """
        if hx is None:
            batch = input.shape[0 if self.batch_first else 1]
            hx = input.new_zeros(self.layer.packed_shape(batch))
        return self.layer(input, hx, lengths=None if mask is None else mask.sum(1))


class PackedPair(PackedLayer):
    """The same in the place of an LSTM's ``(h, c)``: each tensor is one half of the packed state.

    The halves have no meaning of their own. Both are set to zero to start a sequence.
    """

    parts = 2

    def forward(
        self, input: Tensor, hx: Any = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """As :meth:`PackedLayer.forward`, with a pair of tensors as state."""
        packed = None if hx is None else torch.cat(hx, -1)[..., : self.width]
        y, new = super().forward(input, packed, mask)
        first, second = pad(new, (0, 2 * self.hidden_size - self.width)).chunk(2, -1)
        return y, (first.contiguous(), second.contiguous())
