"""One rule for each function and tensor method that a forward may call on a sequence."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .indexing import select, select_last
from .layers import lower_layer, pad
from .lowering import Lowering, linear, signal
from .program import Add, Multiply
from .signals import BatchSize, Hidden, NotExportable, Parts, Signal, Steps

Rule = Callable[..., Any]
ACTIVATIONS: dict[Any, type[nn.Module]] = {
    functional.celu: nn.CELU, functional.elu: nn.ELU, functional.gelu: nn.GELU,
    functional.hardsigmoid: nn.Hardsigmoid, functional.hardswish: nn.Hardswish,
    functional.hardtanh: nn.Hardtanh, functional.leaky_relu: nn.LeakyReLU,
    functional.logsigmoid: nn.LogSigmoid, functional.mish: nn.Mish, functional.relu: nn.ReLU,
    functional.relu6: nn.ReLU6, functional.selu: nn.SELU, functional.sigmoid: nn.Sigmoid,
    functional.silu: nn.SiLU, functional.softplus: nn.Softplus, functional.softsign: nn.Softsign,
    functional.tanh: nn.Tanh, functional.tanhshrink: nn.Tanhshrink, torch.relu: nn.ReLU,
    torch.sigmoid: nn.Sigmoid, torch.tanh: nn.Tanh, "relu": nn.ReLU, "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}  # fmt: skip


def call_function(
    target: Any, lowering: Lowering, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """The result of ``target(*args, **options)``."""
    return _call(FUNCTIONS.get(target), target, lowering, args, options)


def call_method(
    name: str, lowering: Lowering, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """The result of ``args[0].name(*args[1:], **options)``."""
    return _call(METHODS.get(name), name, lowering, args, options)


def _call(
    rule: Rule | None, target: Any, lowering: Lowering, args: tuple[Any, ...], options: Any
) -> Any:
    if target in ACTIVATIONS:
        module = ACTIVATIONS[target](*args[1:], **options)
        return lowering.elementwise(module, args[0] if args else options.pop("input"))
    if rule is None:
        raise NotExportable(
            "it is not among the functions that can run as a stream: sums, products, activations, "
            "linear maps, norms, causal convolutions, chunks of the features and y[:, -1]"
        )
    options = {"x" if name == "input" else name: value for name, value in options.items()}
    try:
        return rule(lowering, *args, **options)
    except TypeError as error:
        if isinstance(error, NotExportable):
            raise
        raise NotExportable(f"these arguments are not understood: {error}") from error


# ---------------------------------------------------------------------------- arithmetic


def _add(lowering: Lowering, x: Any, other: Any, *, alpha: float = 1) -> Any:
    if isinstance(other, Steps):
        x, other = other, x
    if isinstance(x, Steps):
        return x + other
    if alpha != 1:
        other = _multiply(lowering, other, alpha)
    if isinstance(x, Signal) and isinstance(other, Signal):
        return lowering.both(Add(), x, other)
    return _with_constant(lowering, x, other, lambda s, c: lowering.affine(s, shift=c))


def _subtract(lowering: Lowering, x: Any, other: Any, *, alpha: float = 1) -> Any:
    if isinstance(x, Steps):
        return x - other
    if isinstance(other, Signal):
        return _add(lowering, x, lowering.affine(other, scale=-alpha))
    return lowering.affine(x, shift=-other * alpha)


def _multiply(lowering: Lowering, x: Any, other: Any) -> Any:
    if isinstance(x, Signal) and isinstance(other, Signal):
        return lowering.both(Multiply(), x, other)
    return _with_constant(lowering, x, other, lambda s, c: lowering.affine(s, scale=c))


def _divide(lowering: Lowering, x: Any, other: Any) -> Any:
    if not isinstance(other, Tensor | int | float):
        raise NotExportable("only numbers and weights can divide a sequence")
    return lowering.affine(x, scale=1 / other)


def _power(lowering: Lowering, x: Any, exponent: Any) -> Any:
    if exponent != 2:
        raise NotExportable(f"only squares can run as a stream, got the exponent {exponent}")
    return lowering.both(Multiply(), signal(x), signal(x))


def _with_constant(lowering: Lowering, x: Any, other: Any, rule: Rule) -> Signal:
    """A rule for a signal and a constant, in the order in which they come."""
    known, constant = (x, other) if isinstance(x, Signal) else (other, x)
    if not isinstance(constant, Tensor | int | float):
        raise NotExportable("it combines the sequence with something that is not a number")
    return rule(signal(known), constant)


# ---------------------------------------------------------------------------- modules' functions


def _linear(lowering: Lowering, x: Any, weight: Tensor, bias: Tensor | None = None) -> Signal:
    return lower_layer(linear(weight, bias), lowering, x)


def _layer_norm(
    lowering: Lowering, x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Signal:
    module = nn.LayerNorm(list(shape), eps, weight is not None, bias is not None)
    return lower_layer(_with_weights(module, weight, bias), lowering, x)


def _rms_norm(
    lowering: Lowering, x: Any, shape: Any, weight: Any = None, eps: float | None = None
) -> Signal:
    module = nn.RMSNorm(list(shape), eps, weight is not None)
    return lower_layer(_with_weights(module, weight), lowering, x)


def _with_weights(module: nn.Module, *weights: Any) -> nn.Module:
    for name, value in zip(("weight", "bias"), weights, strict=False):
        if value is not None:
            getattr(module, name).copy_(value)
    return module


def _glu(lowering: Lowering, x: Any, dim: int = -1) -> Signal:
    return lower_layer(nn.GLU(dim), lowering, x)


def _softmax(lowering: Lowering, x: Any, dim: int | None = None, **options: Any) -> Signal:
    _expect_defaults(options)
    return lower_layer(nn.Softmax(dim), lowering, x)


def _log_softmax(lowering: Lowering, x: Any, dim: int | None = None, **options: Any) -> Signal:
    _expect_defaults(options)
    return lower_layer(nn.LogSoftmax(dim), lowering, x)


def _expect_defaults(options: dict[str, Any]) -> None:
    if options.get("dtype") is not None:
        raise NotExportable("exports compute in one dtype; leave out dtype")


def _dropout(
    lowering: Lowering, x: Any, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Signal:
    if training and p:
        raise NotExportable(
            "it drops numbers in evaluation too; pass training=self.training, or use nn.Dropout"
        )
    return signal(x)


def _conv1d(
    lowering: Lowering,
    x: Any,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Signal:
    numbers = [v[0] if isinstance(v, list | tuple) else v for v in (stride, padding, dilation)]
    if numbers[0] != 1 or not isinstance(numbers[1], int):
        raise NotExportable(f"a stream needs stride 1 and padding by a number, got {numbers[:2]}")
    return lowering.convolution(x, weight, bias, numbers[1], numbers[2], groups)


def _pad(
    lowering: Lowering,
    x: Any,
    pad_: Any = None,
    mode: str = "constant",
    value: Any = 0.0,
    **more: Any,
) -> Signal:
    if mode != "constant":
        raise NotExportable(f"a stream can pad zeros, not {mode!r}")
    return pad(x, tuple(more.get("pad", pad_)), value)


# ---------------------------------------------------------------------------- shapes


def _transpose(lowering: Lowering, x: Any, dim0: int, dim1: int) -> Signal:
    x = signal(x)
    axes = list(x.layout)
    first, second = axes.index(x.axis(dim0)), axes.index(x.axis(dim1))
    axes[first], axes[second] = axes[second], axes[first]
    return x.with_layout("".join(axes))


def _permute(lowering: Lowering, x: Any, *dims: Any) -> Signal:
    x = signal(x)
    order = dims[0] if len(dims) == 1 else dims
    return x.with_layout("".join(x.axis(dim) for dim in order))


def _matrix_transpose(lowering: Lowering, x: Any) -> Signal:
    return _transpose(lowering, x, -1, -2)


def _same(lowering: Lowering, x: Any, *_: Any, **__: Any) -> Any:
    return x


def _squeeze(lowering: Lowering, x: Any, dim: int) -> Signal:
    if isinstance(x, Hidden) and dim == 0 and x.layers == 1:
        return x.last
    x = signal(x)
    if x.axis(dim) != "F" or x.width.known() != 1:
        raise NotExportable(f"only one single feature can be squeezed, not {x.shape_text()}")
    return x.with_layout(x.layout.replace("F", ""))


def _unsqueeze(lowering: Lowering, x: Any, dim: int) -> Signal:
    x = signal(x)
    if "F" in x.layout:
        raise NotExportable(f"it adds a dimension to {x.shape_text()}")
    x.width.expect(1)
    place = dim if dim >= 0 else len(x.layout) + 1 + dim
    return x.with_layout(x.layout[:place] + "F" + x.layout[place:])


def _size(lowering: Lowering, x: Any, dim: int | None = None) -> Any:
    x = signal(x)
    sizes = {"B": BatchSize(), "T": Steps(x.lead + x.trail), "F": x.width.value}
    shape = tuple(sizes[axis] for axis in x.layout)
    return Parts(shape) if dim is None else shape[dim]


def _getattr(lowering: Lowering, x: Any, name: str, *_: Any) -> Any:
    if name == "shape":
        return _size(lowering, x)
    if name == "mT":
        return _matrix_transpose(lowering, x)
    raise NotExportable(f"it reads .{name}, which differs between a stream and a sequence")


def _getitem(lowering: Lowering, x: Any, index: Any) -> Any:
    if isinstance(x, Parts):
        return x.items[index]
    if isinstance(x, Hidden):
        return x.select(index)
    return select(lowering, signal(x), index)


def _select(lowering: Lowering, x: Any, dim: int, index: int) -> Signal:
    x = signal(x)
    if x.axis(dim) != "T" or index != -1:
        raise NotExportable("only the last time step can be selected")
    return select_last(x)


def _chunk(lowering: Lowering, x: Any, chunks: int, dim: int = 0) -> Parts:
    size = -(-signal(x).width.known() // chunks)
    return _split(lowering, x, size, dim)


def _split(lowering: Lowering, x: Any, split_size: Any, dim: int = 0) -> Parts:
    x = signal(x)
    width = x.width.known()
    if x.axis(dim) != "F":
        raise NotExportable(f"it splits {x.shape_text()} along dimension {dim}, not the features")
    x.expect_no_lead()
    sizes = split_size
    if isinstance(split_size, int):
        sizes = [min(split_size, width - first) for first in range(0, width, split_size)]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    pairs = zip(sizes, ends, strict=True)
    return Parts(tuple(lowering.part(x, end - size, end) for size, end in pairs))


def _mean(lowering: Lowering, x: Any, dim: Any = None, keepdim: bool = False) -> Signal:
    return lowering.mean(x, dim, keepdim)


SHARED: dict[str, Rule] = {
    "add": _add, "sub": _subtract, "subtract": _subtract, "mul": _multiply, "multiply": _multiply,
    "div": _divide, "square": lambda lowering, x: _power(lowering, x, 2), "pow": _power,
    "transpose": _transpose, "swapaxes": _transpose, "permute": _permute, "squeeze": _squeeze,
    "unsqueeze": _unsqueeze, "chunk": _chunk, "split": _split, "mean": _mean, "select": _select,
    "softmax": _softmax, "log_softmax": _log_softmax, "clone": _same, "detach": _same,
}  # fmt: skip
"""Functions of ``torch`` that are methods of tensors too."""
METHODS: dict[str, Rule] = {**SHARED, "contiguous": _same, "size": _size}
FUNCTIONS: dict[Any, Rule] = {
    **{getattr(torch, name): rule for name, rule in SHARED.items()},
    operator.add: _add, operator.sub: _subtract, operator.mul: _multiply,
    operator.truediv: _divide, operator.pow: _power, operator.getitem: _getitem, getattr: _getattr,
    operator.neg: lambda lowering, x: lowering.affine(x, scale=-1.0),
    functional.linear: _linear, functional.layer_norm: _layer_norm, functional.rms_norm: _rms_norm,
    functional.glu: _glu, functional.softmax: _softmax, functional.log_softmax: _log_softmax,
    functional.dropout: _dropout, functional.conv1d: _conv1d, torch.conv1d: _conv1d,
    functional.pad: _pad,
}  # fmt: skip
