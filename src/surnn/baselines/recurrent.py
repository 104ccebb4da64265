"""torch's own recurrent layers (cuDNN on a GPU)."""

import math
import warnings
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
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
        half_state: under autocast, states in bfloat16 too, which is faster; otherwise the layer
            stays in float32, as states of surnn's layers do.
    """

    def __init__(
        self,
        kind: Literal["gru", "lstm", "rnn"],
        features: int,
        width: int,
        chrono: int = 0,
        half_state: bool = False,
    ) -> None:
        super().__init__()
        self.half_state = half_state
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
        """Padding comes last and the layer is causal, so lengths change nothing before it."""
        return self.run(x, self.init_state(len(x)))[0]

    def run(
        self, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Some steps [B, T, features] of a stream; of each sequence its ``lengths``."""
        kept = state[0].dtype
        half = self.half_state and torch.is_autocast_enabled(x.device.type)
        dtype = torch.bfloat16 if half else kept
        with torch.autocast(x.device.type, enabled=False):  # it would take float16 for these
            hidden = tuple(part.to(dtype) for part in state)
            given = hidden if isinstance(self.layer, nn.LSTM) else hidden[0]
            if lengths is None:
                y, new = self._layer(x.to(dtype), given)
            else:
                packed = pack_padded_sequence(
                    x.to(dtype), lengths.cpu(), True, enforce_sorted=False
                )
                y, new = self._layer(packed, given)
                y, _ = pad_packed_sequence(y, True, total_length=x.shape[1])
        new = new if isinstance(new, tuple) else (new,)
        return y.to(x.dtype), tuple(part.to(kept) for part in new)

    def _layer(self, x: Any, hidden: Any) -> tuple[Any, Any]:
        dtype = x.data.dtype
        if dtype == self.layer.weight_ih_l0.dtype:
            return self.layer(x, hidden)
        weights = {name: weight.to(dtype) for name, weight in self.layer.named_parameters()}
        with warnings.catch_warnings():  # copies do not lie side by side, as weights do
            warnings.filterwarnings("ignore", "RNN module weights are not part of")
            return functional_call(self.layer, weights, (x, hidden))

    def init_state(self, batch: int) -> tuple[Tensor, ...]:
        some = self.layer.weight_ih_l0
        count = 2 if isinstance(self.layer, nn.LSTM) else 1
        return tuple(some.new_zeros(1, batch, self.layer.hidden_size) for _ in range(count))

    def step(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        y, new = self.run(x.unsqueeze(1), state)
        return y[:, 0], new
