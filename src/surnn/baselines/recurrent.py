"""torch's own recurrent layers (cuDNN on a GPU)."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

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

    def init_state(self, batch: int) -> tuple[Tensor, ...]:
        some = self.layer.weight_ih_l0
        count = 2 if isinstance(self.layer, nn.LSTM) else 1
        return tuple(some.new_zeros(1, batch, self.layer.hidden_size) for _ in range(count))

    def step(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        hidden = state if isinstance(self.layer, nn.LSTM) else state[0]
        y, new = self.layer(x.unsqueeze(1), hidden)
        return y[:, 0], new if isinstance(new, tuple) else (new,)
