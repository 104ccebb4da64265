"""torch's own recurrent layers (cuDNN on a GPU)."""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ..layers.weights import orthogonal

LAYERS = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}


class TorchRecurrent(nn.Module):
    """One layer of ``nn.GRU``, ``nn.LSTM`` or ``nn.RNN``.

    It starts as surnn's own layers do, not as weakly as torch's: unit-variance input weights, an
    orthogonal recurrent block for each gate, zero biases. Only the gate that keeps (z of a GRU,
    f of an LSTM) has a bias of 1: there is no other that would tell such a layer to hold on.

    Args:
        kind: which.
        features: size of the input.
        width: units.
        chrono: start the gates so that units remember for 1 to this many steps (Tallec and
            Ollivier, 2018), in place of that bias.
    """

    def __init__(
        self, kind: Literal["gru", "lstm", "rnn"], features: int, width: int, chrono: int = 0
    ) -> None:
        super().__init__()
        if chrono and kind == "rnn":
            raise ValueError("chrono biases are of gates, and an RNN has none; use gru or lstm")
        self.layer = LAYERS[kind](features, width, batch_first=True)
        self._start(kind, features, width, chrono)

    @torch.no_grad()
    def _start(self, kind: str, features: int, width: int, longest: int) -> None:
        bound = math.sqrt(3 / features)
        nn.init.uniform_(self.layer.weight_ih_l0, -bound, bound)
        blocks = self.layer.weight_hh_l0.unflatten(0, (-1, width))
        blocks.copy_(orthogonal(len(blocks), width))
        self.layer.bias_hh_l0.zero_()
        self.layer.bias_ih_l0.zero_()
        if kind == "rnn":
            return
        # GRU: r, z, n, and z near 1 keeps. LSTM: i, f, g, o, and f near 1 keeps.
        keep = torch.ones(width)
        if longest:
            keep.uniform_(1, max(longest - 1, 1)).log_()
            if kind == "lstm":
                self.layer.bias_ih_l0[:width] = -keep
        self.layer.bias_ih_l0[width : 2 * width] = keep

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Padding comes last and the layer is causal, so lengths change nothing before it.

        Autocast is kept out: a state in half precision would be a handicap that ours do not have.
        """
        with torch.autocast(x.device.type, enabled=False):
            return self.layer(x.to(self.layer.weight_ih_l0.dtype))[0].to(x.dtype)

    def run(
        self, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Some steps [B, T, features] of a stream; of each sequence its ``lengths``."""
        hidden = state if isinstance(self.layer, nn.LSTM) else state[0]
        with torch.autocast(x.device.type, enabled=False):
            exact = x.to(self.layer.weight_ih_l0.dtype)  # type: ignore[arg-type]
            if lengths is None:
                y, new = self.layer(exact, hidden)
            else:
                packed = pack_padded_sequence(exact, lengths.cpu(), True, enforce_sorted=False)
                y, new = self.layer(packed, hidden)
                y, _ = pad_packed_sequence(y, True, total_length=x.shape[1])
        return y.to(x.dtype), new if isinstance(new, tuple) else (new,)

    def init_state(self, batch: int) -> tuple[Tensor, ...]:
        some = self.layer.weight_ih_l0
        count = 2 if isinstance(self.layer, nn.LSTM) else 1
        return tuple(some.new_zeros(1, batch, self.layer.hidden_size) for _ in range(count))

    def step(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        y, new = self.run(x.unsqueeze(1), state)
        return y[:, 0], new
