"""``SuRNNCell``, ``SuGRUCell`` and ``SuLSTMCell``: one time step a call, as torch's cells."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self, Unpack

import torch
from torch import Tensor, nn

from ..clocked import with_clock
from ..state import SuState
from . import checks
from .base import SelectiveLayer
from .options import LayerOptions
from .recurrent import SuGRU, SuLSTM, SuRNN
from .resets import check_step_reset
from .streaming import Hidden


class SingleStep(nn.Module):
    """Base of cells: a layer of one time step, whose state the caller holds.

    ``h = cell(x_t, h)`` as with ``nn.GRUCell``; an LSTM's state is ``(h, c)``. T calls equal one
    pass of the layer: the returned state holds its clock (see :class:`~surnn.ClockedTensor`).
    A :class:`~surnn.SuState` is answered by a ``SuState``.
    """

    layer: SelectiveLayer
    """The same weights as a layer, for whole sequences. Parameters are named in it."""
    _torch_class: ClassVar[Any]
    _layer_class: ClassVar[Callable[..., SelectiveLayer]]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__()
        none: dict[str, Any] = {}
        if hidden_size == 0 and not isinstance(hidden_size, bool):  # torch's cells allow it
            none["_no_units"] = True
        self.layer = self._layer_class(input_size, hidden_size, bias=bias, **options, **none)
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias

    def init_state(self, batch_size: int = 1, hx: Hidden | None = None) -> SuState:
        """The state before the first time step: see :meth:`SelectiveLayer.init_state`."""
        if hx is not None:
            hx = _each(hx, lambda v: v.unsqueeze(0))
        return self.layer.init_state(batch_size, hx)

    def forward(
        self,
        input: Tensor,
        hx: Hidden | SuState | None = None,
        *,
        reset: Tensor | bool | None = None,
    ) -> Any:
        """The state after x [B, I] or [I]; ``hx`` is [B, H] or [H] (LSTM: two), or a SuState.

        ``reset``, bool [B], or one bool for [I], says which sequences restart before this step.
        """
        layer = self.layer
        batched = checks.check_frame(input, self.input_size)
        x = input.unsqueeze(0)
        frames = x if batched else x.unsqueeze(1)
        state: Any = hx
        if hx is not None and not isinstance(hx, SuState):
            state = _each(hx, lambda v: v.unsqueeze(0))
        start = layer._state_from(state, frames, batched)
        if (starts := check_step_reset(reset, frames.shape[1], batched)) is not None:
            start = start.reset(starts)
        _, new, rates = layer._run(frames, start, None, "reference")
        layer._remember_rates(rates)
        return new if isinstance(hx, SuState) else self._hidden_from(new, batched)

    def _hidden_from(self, state: SuState, batched: bool) -> Any:
        values = tuple(v if batched else v[0] for v in state.cell[0].unbind(0))
        if self.layer.needs_state and not checks.is_recorded(state.cell):
            memory = state.gates[0] if state.gates[0].shape[-1] else None
            t = state.t
            if not batched:
                t, memory = t.reshape(()), None if memory is None else memory[0]
            values = tuple(with_clock(v, t, memory) for v in values)
        return values[0] if len(values) == 1 else values

    @classmethod
    def from_torch(cls, cell: nn.RNNCellBase, **options: Any) -> Self:
        """A cell with the weights of torch's. With ``gate=AlwaysOpen()`` it computes the same."""
        if not isinstance(cell, cls._torch_class):
            raise TypeError(
                f"{cls.__name__} loads {cls._torch_class.__name__}, got {type(cell).__name__}"
            )
        own = cls(
            cell.input_size,
            cell.hidden_size,
            cell.bias,
            device=cell.weight_ih.device,
            dtype=cell.weight_ih.dtype,
            **{**cls._options_of(cell), **options},
        )
        with torch.no_grad():
            for name, value in cell.named_parameters():
                own.layer.get_parameter(f"{name}_l0").copy_(value)
        return own

    @classmethod
    def _options_of(cls, cell: Any) -> dict[str, Any]:
        return {}

    @property
    def update_rate(self) -> Tensor:
        """Share of open gates in the last call."""
        return self.layer.update_rate


def _each(hx: Any, function: Any) -> Any:
    return tuple(function(v) for v in hx) if isinstance(hx, list | tuple) else function(hx)


class SuRNNCell(SingleStep):
    """One time step of :class:`~surnn.SuRNN`.

    Args:
        input_size: features of x.
        hidden_size: units.
        bias: use biases.
        nonlinearity: ``"tanh"`` or ``"relu"``.
        **options: gate, heads, ...: see :class:`SelectiveLayer`.

    Example:
        >>> cell, h = SuRNNCell(32, 64), None
        >>> for x_t in torch.randn(5, 8, 32):
        ...     h = cell(x_t, h)
        >>> h.shape
        torch.Size([8, 64])
    """

    _torch_class, _layer_class = nn.RNNCell, SuRNN

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        **options: Unpack[LayerOptions],
    ) -> None:
        own: dict[str, Any] = {"nonlinearity": nonlinearity}
        super().__init__(input_size, hidden_size, bias, **own, **options)
        self.nonlinearity = nonlinearity

    @classmethod
    def _options_of(cls, cell):
        return {"nonlinearity": cell.nonlinearity}


class SuGRUCell(SingleStep):
    """One time step of :class:`~surnn.SuGRU`.

    Args:
        input_size: features of x.
        hidden_size: units.
        bias: use biases.
        **options: gate, heads, ...: see :class:`SelectiveLayer`.

    Example:
        >>> cell, h = SuGRUCell(4, 8, gate="rhythm"), None
        >>> for x_t in torch.randn(5, 2, 4):
        ...     h = cell(x_t, h)
        >>> h.shape, h.clock
        (torch.Size([2, 8]), tensor(5))
    """

    _torch_class, _layer_class = nn.GRUCell, SuGRU


class SuLSTMCell(SingleStep):
    """One time step of :class:`~surnn.SuLSTM`.

    Args:
        input_size: features of x.
        hidden_size: units.
        bias: use biases.
        **options: gate, heads, ...: see :class:`SelectiveLayer`.

    Example:
        >>> cell, h = SuLSTMCell(32, 64), None
        >>> for x_t in torch.randn(5, 8, 32):
        ...     h = cell(x_t, h)
        >>> h[0].shape
        torch.Size([8, 64])
    """

    _torch_class, _layer_class = nn.LSTMCell, SuLSTM
