"""surnn's layers in the place of torchrl's ``GRUModule`` and ``LSTMModule``.

::

    gate = surnn.Rhythm(rate=0.2)
    module = SuGRUModule(8, 64, gate=gate, in_key="observation", out_key="features")
    env.append_transform(module.make_tensordict_primer())

They are torchrl's modules with another layer inside: keys, primers, ``set_recurrent_mode`` and
``is_init`` work as in torchrl. The recurrent state in the tensordict is packed: a replay from the
middle of an episode has the clock of the rollout. Needs ``pip install 'surnn[rl]'``.
"""

# The framework need not be installed where types are checked.
# pyright: reportMissingImports=false, reportCallIssue=false

from typing import Any

from surnn.errors import missing_extra
from surnn.nn.layers import SelectiveLayer, SuGRU, SuLSTM

from .packed import PackedLayer, PackedPair

try:
    from torchrl.modules import GRUModule, LSTMModule
except ModuleNotFoundError as error:
    raise missing_extra(error, "surnn.integrations.torchrl") from error


class _OneForm:
    """Refuses the conversions of torchrl's modules, which would replace the layer."""

    def make_python_based(self) -> Any:
        raise TypeError(f"{type(self).__name__} has one form; leave out make_python_based()")

    def make_cudnn_based(self) -> Any:
        raise TypeError(f"{type(self).__name__} has one form; leave out make_cudnn_based()")


class SuGRUModule(_OneForm, GRUModule):
    """torchrl's ``GRUModule`` with a layer of surnn, whose state is one tensor.

    Args:
        input_size: features of the input.
        hidden_size: features of the output.
        num_layers: stacked layers.
        gru: a layer of any class with ``batch_first=True``, in place of the sizes above.
        in_key: key of the input; the state's is ``"recurrent_state"``. Or ``in_keys``, both.
        in_keys: see ``in_key``.
        out_key: key of the output. Or ``out_keys``, of the output and of the next state.
        out_keys: see ``out_key``.
        default_recurrent_mode: whether inputs are sequences where ``set_recurrent_mode`` says
            nothing.
        **options: options of :class:`surnn.SuGRU`, such as ``gate`` and ``heads``.
    """

    def __init__(
        self,
        input_size: int | None = None,
        hidden_size: int | None = None,
        num_layers: int = 1,
        *,
        gru: SelectiveLayer | None = None,
        in_key: Any = None,
        in_keys: Any = None,
        out_key: Any = None,
        out_keys: Any = None,
        default_recurrent_mode: bool | None = None,
        **options: Any,
    ) -> None:
        layer = _layer(SuGRU, gru, input_size, hidden_size, num_layers, options)
        super().__init__(
            gru=PackedLayer(layer), in_key=in_key, in_keys=in_keys, out_key=out_key,
            out_keys=out_keys, default_recurrent_mode=default_recurrent_mode,
        )  # fmt: skip


class SuLSTMModule(_OneForm, LSTMModule):
    """torchrl's ``LSTMModule`` with a layer of surnn, whose state is two tensors.

    Args:
        input_size: features of the input.
        hidden_size: features of the output.
        num_layers: stacked layers.
        lstm: a layer of any class with ``batch_first=True``, in place of the sizes above.
        in_key: key of the input; those of the state are ``"recurrent_state_h"`` and
            ``"recurrent_state_c"``. Or ``in_keys``, all three.
        in_keys: see ``in_key``.
        out_key: key of the output. Or ``out_keys``, of the output and of the next state.
        out_keys: see ``out_key``.
        default_recurrent_mode: whether inputs are sequences where ``set_recurrent_mode`` says
            nothing.
        **options: options of :class:`surnn.SuLSTM`, such as ``gate`` and ``heads``.
    """

    def __init__(
        self,
        input_size: int | None = None,
        hidden_size: int | None = None,
        num_layers: int = 1,
        *,
        lstm: SelectiveLayer | None = None,
        in_key: Any = None,
        in_keys: Any = None,
        out_key: Any = None,
        out_keys: Any = None,
        default_recurrent_mode: bool | None = None,
        **options: Any,
    ) -> None:
        layer = _layer(SuLSTM, lstm, input_size, hidden_size, num_layers, options)
        super().__init__(
            lstm=PackedPair(layer), in_key=in_key, in_keys=in_keys, out_key=out_key,
            out_keys=out_keys, default_recurrent_mode=default_recurrent_mode,
        )  # fmt: skip


def _layer(
    cls: type[SelectiveLayer],
    given: SelectiveLayer | None,
    input_size: int | None,
    hidden_size: int | None,
    num_layers: int,
    options: dict[str, Any],
) -> SelectiveLayer:
    """The layer that is given, or a new one with these sizes."""
    if given is None:
        if input_size is None or hidden_size is None:
            raise ValueError(f"give input_size and hidden_size, or a layer such as {cls.__name__}")
        options = {"batch_first": True, **options}
        return cls(input_size, hidden_size, num_layers, **options)
    if input_size is not None or hidden_size is not None or options:
        raise ValueError("a layer has its own sizes and options; leave out all others")
    return given
