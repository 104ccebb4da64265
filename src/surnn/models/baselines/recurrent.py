"""torch's own recurrent layers (cuDNN on a GPU)."""

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from surnn.nn.layers.weights import orthogonal

from ..base import Mixer, select_state

LAYERS = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}
CELLS = {"gru": torch.gru_cell, "lstm": torch.lstm_cell, "rnn": torch.rnn_tanh_cell}


class TorchRecurrent(Mixer):
    """One layer of ``nn.GRU``, ``nn.LSTM`` or ``nn.RNN``.

    The initial weights are those of surnn's own layers, which are larger than torch's: input
    weights of unit variance, an orthogonal recurrent block for each gate, zero biases. The
    update gate of a GRU (z) and the forget gate of an LSTM (f) start with bias 1, so that the layer
    retains its state initially.

    Args:
        kind: which of the three.
        features: size of the input.
        width: units.
        chrono: initialise the gates so that units remember for 1 to this many time steps (Tallec
            and Ollivier, 2018). Replaces the bias of 1.
        half_state: under autocast, also hold states in bfloat16, which is faster. Otherwise the
            layer stays in float32, as the states of surnn's layers do.
    """

    dense_recurrence = outputs_state = True

    def __init__(
        self,
        kind: Literal["gru", "lstm", "rnn"],
        features: int,
        width: int,
        chrono: int = 0,
        half_state: bool = False,
    ) -> None:
        super().__init__()
        self.kind, self.half_state = kind, half_state
        if chrono and kind == "rnn":
            raise ValueError("an RNN has no gates for chrono biases; use gru or lstm")
        self.layer = LAYERS[kind](features, width, batch_first=True)
        self.components = ("h", "c") if kind == "lstm" else ("h",)
        self._init_weights(kind, features, width, chrono)

    @torch.no_grad()
    def _init_weights(self, kind: str, features: int, width: int, longest: int) -> None:
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
        """The layer is causal and padding comes last, so ``lengths`` have no effect."""
        return self.run(x, self.init_state(len(x)))[0]

    def run(
        self, x: Tensor, state: tuple[Tensor, ...], lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        state_dtype = state[0].dtype
        half = self.half_state and torch.is_autocast_enabled(x.device.type)
        dtype = torch.bfloat16 if half else state_dtype
        with torch.autocast(x.device.type, enabled=False):  # it would choose float16
            parts = tuple(part.to(dtype) for part in state)
            hidden = parts if len(self.components) > 1 else parts[0]
            if lengths is None:
                y, new = self._layer(x.to(dtype), hidden)
            else:
                packed = pack_padded_sequence(
                    x.to(dtype), lengths.cpu(), True, enforce_sorted=False
                )
                y, new = self._layer(packed, hidden)
                y, _ = pad_packed_sequence(y, True, total_length=x.shape[1])
        new = new if len(self.components) > 1 else (new,)
        return y.to(x.dtype), tuple(part.to(state_dtype) for part in new)

    def _layer(self, x: Any, hidden: Any) -> tuple[Any, Any]:
        dtype = x.data.dtype
        if dtype == self.layer.weight_ih_l0.dtype:
            return self.layer(x, hidden)
        weights = {name: weight.to(dtype) for name, weight in self.layer.named_parameters()}
        with warnings.catch_warnings():  # copies are not contiguous, as weights are
            warnings.filterwarnings("ignore", "RNN module weights are not part of")
            return functional_call(self.layer, weights, (x, hidden))

    def init_state(self, batch: int) -> tuple[Tensor, ...]:
        """[1, B, width] for each component, as torch has it."""
        like, size = self.layer.weight_ih_l0, self.layer.hidden_size
        return tuple(like.new_zeros(1, batch, size) for _ in self.components)

    def step(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        if torch.compiler.is_exporting():  # torch 2.15 exports nn.GRU as a loop, which ONNX refuses
            return self._step_by_cell(x, state)
        y, new = self.run(x.unsqueeze(1), state)
        return y[:, 0], new

    def _step_by_cell(
        self, x: Tensor, state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        parts = [part.squeeze(0) for part in state]
        hidden = parts if len(parts) > 1 else parts[0]
        new = CELLS[self.kind](x, hidden, *self.layer.all_weights[0])
        new = new if len(parts) > 1 else (new,)
        return new[0], tuple(part.unsqueeze(0) for part in new)

    def state_names(self, first: int) -> tuple[str, ...]:
        return tuple(f"{part}_{first}" for part in self.components)

    def split_state(self, state: tuple[Tensor, ...]) -> list[Tensor]:
        return [part.squeeze(0) for part in state]

    def join_state(self, tensors: Sequence[Tensor], t: Tensor) -> tuple[Tensor, ...]:
        return tuple(part.unsqueeze(0) for part in tensors)


@select_state.register
def _(state: tuple, rows: Tensor) -> tuple[Tensor, ...]:
    return tuple(part[:, rows] for part in state)
