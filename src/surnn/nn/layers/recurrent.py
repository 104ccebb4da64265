"""``SuRNN``, ``SuGRU`` and ``SuLSTM``."""

from typing import Literal, Unpack

import torch
from torch import Tensor, nn

from ..runtime import is_traced, is_transformed
from .base import SelectiveLayer
from .options import LayerOptions, document_options


class SplitBiases(torch.autograd.Function):
    """The GRU's bias of the drive [N, 3, D] and b_hn [1, N, D]: one node instead of eight."""

    @staticmethod
    def forward(ctx, b_ih: Tensor, b_hh: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        bias = b_ih.clone()
        bias[:, :2] += b_hh[:, :2]
        return bias, b_hh[:, 2].unsqueeze(0)

    @staticmethod
    def backward(ctx, by_bias: Tensor, by_inner: Tensor):  # type: ignore[override]
        return by_bias, torch.cat((by_bias[:, :2], by_inner.transpose(0, 1)), 1)


@document_options
class SuRNN(SelectiveLayer):
    """Elman RNN with selective update: ``f = tanh(W x + b_ih + U h + b_hh)``, or relu.

    Args:
        nonlinearity: ``"tanh"`` or ``"relu"``.
        **options: see :class:`SelectiveLayer`.

    Example:
        >>> layer = SuRNN(32, 64, nonlinearity="relu")
        >>> y, h_n = layer(torch.randn(100, 8, 32))
        >>> y.shape, h_n.shape
        (torch.Size([100, 8, 64]), torch.Size([1, 8, 64]))
    """

    _torch_class = nn.RNN

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity {nonlinearity!r}; it must be 'tanh' or 'relu'")
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            cell=f"rnn_{nonlinearity}", **options,
        )  # fmt: skip
        self.nonlinearity = nonlinearity

    @classmethod
    def _options_of(cls, module):
        return {"nonlinearity": module.nonlinearity}

    def _torch_options(self):
        return {"nonlinearity": self.nonlinearity}


@document_options
class SuGRU(SelectiveLayer):
    """GRU with selective update, in PyTorch's convention (gate order r, z, n).

    ``r, z = σ(W x + b_ih + U h + b_hh)``, ``n = tanh(W x + b_in + r * (U h + b_hn))``,
    ``f = (1 - z) * n + z * h``.

    Args:
        skip_drive: C of ``backend="onepass"``. None makes the carry exact; see
            :func:`surnn.analysis.skip_drive_for_retention` for smaller values.
        **options: see :class:`SelectiveLayer`.

    Example:
        >>> layer = SuGRU(32, 64, heads=4, gate="rhythm", batch_first=True)
        >>> y, h_n = layer(torch.randn(8, 100, 32))
        >>> y.shape, h_n.shape
        (torch.Size([8, 100, 64]), torch.Size([1, 8, 64]))
    """

    _torch_class = nn.GRU

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        skip_drive: float | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            cell="gru", **options,
        )  # fmt: skip
        self.skip_drive = skip_drive

    def _split_biases(self, b_ih, b_hh, suffix):
        # The reset gate multiplies b_hn; the other biases simply add.
        if is_transformed() or is_traced(b_ih):
            inner = torch.zeros_like(b_hh[:, 2:])
            return b_ih + torch.cat((b_hh[:, :2], inner), 1), b_hh[:, 2].unsqueeze(0)
        return SplitBiases.apply(b_ih, b_hh)


@document_options
class SuLSTM(SelectiveLayer):
    """LSTM with selective update (gate order i, f, g, o); h and c are carried together.

    ``c' = σ(f) * c + σ(i) * tanh(g)``, ``h' = σ(o) * tanh(c')``. The hidden state is (h, c).

    Args:
        **options: see :class:`SelectiveLayer`.

    Example:
        >>> layer = SuLSTM(32, 64, heads=4)
        >>> y, (h_n, c_n) = layer(torch.randn(100, 8, 32))
        >>> y.shape, c_n.shape
        (torch.Size([100, 8, 64]), torch.Size([1, 8, 64]))
    """

    _torch_class = nn.LSTM

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        proj_size: int = 0,
        **options: Unpack[LayerOptions],
    ) -> None:
        if proj_size:
            raise ValueError(f"proj_size is not supported, got {proj_size}; use expand instead")
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            cell="lstm", **options,
        )  # fmt: skip
