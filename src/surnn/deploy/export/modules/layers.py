"""One rule for each class of modules. Each takes a signal and returns one."""

from collections.abc import Callable
from dataclasses import replace
from functools import singledispatch
from typing import Any

from torch import nn

from surnn.models.selective import Selective
from surnn.nn.layers import SelectiveLayer

from ..engine_layers import FROM_TORCH, as_layer
from .lowering import Lowering, signal
from .signals import Hidden, NotExportable, Parts, Signal, Unavailable, Width

ELEMENTWISE: tuple[type[nn.Module], ...] = (
    nn.CELU, nn.ELU, nn.GELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh,
    nn.LeakyReLU, nn.LogSigmoid, nn.Mish, nn.ReLU, nn.ReLU6, nn.SELU, nn.Sigmoid, nn.SiLU,
    nn.Softplus, nn.Softshrink, nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Threshold,
)  # fmt: skip
IDENTITY = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def call_layer(
    module: nn.Module, lowering: Lowering, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """The result of ``module(*args, **options)``."""
    if module._forward_hooks or module._forward_pre_hooks:
        raise NotExportable(
            f"this {type(module).__name__} has hooks, which an export would lose; remove them "
            "(torch.nn.utils.prune.remove, remove_weight_norm, handle.remove())"
        )
    if not args:
        args = (options.pop("input", None),)
    if any(value is not None for value in (*args[1:], *options.values())):
        raise NotExportable(
            f"this {type(module).__name__} is called with more than its input, such as a state or "
            "lengths; a stream carries the state itself: call it with the input only"
        )
    return lower_layer(module, lowering, args[0])


@singledispatch
def lower_layer(module: nn.Module, lowering: Lowering, x: Any) -> Any:
    """The result of ``module(x)``, for one class of modules."""
    if type(module) in FROM_TORCH:
        return _recurrent(as_layer(module), lowering, x)
    raise NotExportable(
        f"{type(module).__name__} is not among the modules that can run as a stream: linear maps, "
        "norms, activations, GLU, causal convolutions, embeddings, dropout and recurrent layers"
    )


def _elementwise(module: nn.Module, lowering: Lowering, x: Any) -> Signal:
    return lowering.elementwise(module, x)


def _identity(module: nn.Module, lowering: Lowering, x: Any) -> Signal:
    return signal(x)


def _register(classes: tuple[type[nn.Module], ...], rule: Callable[..., Any]) -> None:
    for one in classes:
        lower_layer.register(one, rule)


_register(ELEMENTWISE, _elementwise)
_register(IDENTITY, _identity)


@lower_layer.register
def _(module: nn.PReLU, lowering: Lowering, x: Any) -> Signal:
    x = signal(x)
    if module.num_parameters == 1:
        return lowering.elementwise(module, x)
    x.width.expect(module.num_parameters)
    return lowering.over_features(module, x, 1, x.width)


@lower_layer.register
def _(module: nn.Linear, lowering: Lowering, x: Any) -> Signal:
    x = signal(x)
    x.expect_features_last()
    x.width.expect(module.in_features)
    return lowering.over_features(module, x, -1, Width(module.out_features))


@lower_layer.register(nn.LayerNorm)
@lower_layer.register(nn.RMSNorm)
def _(module: nn.LayerNorm | nn.RMSNorm, lowering: Lowering, x: Any) -> Signal:
    x = signal(x)
    if len(module.normalized_shape) != 1:
        raise NotExportable(
            f"it normalises over {len(module.normalized_shape)} dimensions, so over time; "
            "normalise over features only"
        )
    x.expect_features_last()
    x.width.expect(module.normalized_shape[0])
    return lowering.over_features(module, x, -1, x.width)


@lower_layer.register
def _(module: nn.BatchNorm1d, lowering: Lowering, x: Any) -> Signal:
    x = signal(x)
    if module.running_mean is None:
        raise NotExportable(
            "it has no running statistics and normalises by the batch in evaluation too; use "
            "track_running_stats=True"
        )
    x.expect_layout("BFT", "BF")
    x.width.expect(module.num_features)
    return lowering.over_features(module, x, 1, x.width)


@lower_layer.register
def _(module: nn.GLU, lowering: Lowering, x: Any) -> Signal:
    size = signal(x).width.known()
    return lowering.over_features(nn.GLU(-1), x, module.dim, Width(size // 2))


@lower_layer.register(nn.Softmax)
@lower_layer.register(nn.LogSoftmax)
def _(module: nn.Softmax | nn.LogSoftmax, lowering: Lowering, x: Any) -> Signal:
    if module.dim is None:
        raise NotExportable("give it the dimension of the features, dim=-1")
    return lowering.over_features(type(module)(-1), x, module.dim, signal(x).width)


@lower_layer.register
def _(module: nn.Embedding, lowering: Lowering, x: Any) -> Signal:
    x = signal(x)
    if module.max_norm is not None:
        raise NotExportable("it has max_norm, which changes the weights in each call")
    x.expect_layout("BT", "TB")
    lowering.takes_tokens = True
    x.width.expect(module.num_embeddings)
    value, width = lowering.add(module, x), Width(module.embedding_dim)
    return replace(x, value=value, layout=f"{x.layout}F", width=width)


@lower_layer.register
def _(module: nn.Conv1d, lowering: Lowering, x: Any) -> Signal:
    padding = {"valid": 0}.get(str(module.padding), module.padding)
    if padding == "same":
        padding = (module.dilation[0] * (module.kernel_size[0] - 1) // 2,)
    amount = padding if isinstance(padding, int) else padding[0]
    if module.stride != (1,) or (amount and module.padding_mode != "zeros"):
        raise NotExportable(
            f"its stride is {module.stride[0]} and its padding {module.padding_mode!r}; a stream "
            "needs stride 1 and zeros"
        )
    return lowering.convolution(
        x, module.weight, module.bias, int(amount), module.dilation[0], module.groups
    )


@lower_layer.register(nn.ConstantPad1d)
@lower_layer.register(nn.ZeroPad1d)
def _(module: nn.ConstantPad1d | nn.ZeroPad1d, lowering: Lowering, x: Any) -> Signal:
    return pad(x, tuple(module.padding), getattr(module, "value", 0.0))


def pad(x: Any, amounts: tuple[int, ...], value: float | None = 0.0) -> Signal:
    """Zeros before the first and after the last time step."""
    x = signal(x)
    axes = [x.axis(-1 - i // 2) for i, amount in enumerate(amounts) if amount]
    if value or set(axes) - {"T"}:
        raise NotExportable("only zeros along the time dimension can be padded")
    time = len(x.layout) - 1 - x.layout.index("T") if axes else 0
    before, after = amounts[2 * time : 2 * time + 2] if axes else (0, 0)
    if before < 0 or after < 0:
        raise NotExportable("negative padding is not understood; cut the sequence by slicing")
    if after and x.lead:
        raise NotExportable("pad both sides in one call")
    return replace(x, lead=x.lead + before, trail=x.trail + after)


# ---------------------------------------------------------------------------- recurrent layers


@lower_layer.register
def _(module: SelectiveLayer, lowering: Lowering, x: Any) -> Parts:
    return _recurrent(module, lowering, x)


def _recurrent(layer: SelectiveLayer, lowering: Lowering, x: Any) -> Parts:
    """(y, h), where h is known only as far as it is an output."""
    x = signal(x)
    try:
        layer._check_streamable()
    except (TypeError, ValueError) as error:
        raise NotExportable(str(error)) from error
    x.expect_layout("BTF" if layer.batch_first else "TBF")
    x.expect_no_lead()
    x.width.expect(layer.input_size)
    value = lowering.add(Selective(layer), x)
    y = replace(x, value=value, width=Width(layer.hidden_size))
    return Parts((y, _state(layer, y)))


def _state(layer: SelectiveLayer, y: Signal) -> Any:
    if layer.expand > 1 or layer.cell.components[0] != "h" or y.trail:
        return Unavailable("it uses a state that is not the layer's output; use y[:, -1]")
    hidden = Hidden(replace(y, layout="BF"), layer.num_layers)
    if layer.cell.components == ("h",):
        return hidden
    return Parts((hidden, Unavailable("it uses the cell state c_n; use the output or h_n[-1]")))
