"""Mixers and layers of torch as the layer of surnn that computes the same.

A new mixer that the engine can run registers its layer with :func:`as_layer`.
"""

from collections.abc import Callable
from functools import singledispatch

from torch import nn

from surnn.models.base import StreamModule
from surnn.models.baselines import TorchRecurrent
from surnn.models.selective import Selective
from surnn.nn.gates import AlwaysOpen
from surnn.nn.layers import SelectiveLayer, SuGRU, SuLSTM, SuRNN

FROM_TORCH: dict[type, Callable[..., SelectiveLayer]] = {
    nn.GRU: SuGRU.from_torch, nn.LSTM: SuLSTM.from_torch, nn.RNN: SuRNN.from_torch
}  # fmt: skip


@singledispatch
def as_layer(module: nn.Module) -> SelectiveLayer:
    """The layer of surnn that computes the same as ``module``."""
    if type(module) in FROM_TORCH:  # not a subclass, which may compute something else
        return FROM_TORCH[type(module)](module, gate=AlwaysOpen()).eval()
    raise TypeError(
        f"the engine runs RNNs, GRUs, LSTMs and spiking layers, not {type(module).__name__}"
        f"{_other_formats(module)}"
    )


def _other_formats(module: nn.Module) -> str:
    """A hint to formats that can hold a step of ``module``, if there are any."""
    if not isinstance(module, StreamModule):
        return ""
    try:
        module.state_names(0)
    except ValueError as error:
        return f"; {error}"
    return "; ONNX and pt2 files can hold it: surnn export --to onnx, --to pt2"


def is_layer(module: nn.Module) -> bool:
    """Whether :func:`as_layer` knows the class of ``module``."""
    return type(module) in FROM_TORCH or as_layer.dispatch(type(module)) is not DEFAULT


DEFAULT = as_layer.dispatch(object)


@as_layer.register
def _(module: SelectiveLayer) -> SelectiveLayer:
    return module


@as_layer.register(Selective)
@as_layer.register(TorchRecurrent)
def _(module: Selective | TorchRecurrent) -> SelectiveLayer:
    return as_layer(module.layer)
