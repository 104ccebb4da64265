"""The program under construction, which the rules for modules and functions share."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from .program import Add, Affine, CausalConvolution, Multiply, Part, RunningMean, StreamProgram
from .signals import NotExportable, Signal, Width, WrongLayout
from .trace import path_of


class Lowering:
    """Appends operations to a program.

    Args:
        layout: the layout of the input.
    """

    def __init__(self, layout: str) -> None:
        self.program = StreamProgram()
        self.input = Signal(0, layout, Width())
        self.takes_tokens = False
        self.node: Node | None = None
        """The recorded call that is being interpreted."""

    def add(self, operation: nn.Module, *inputs: Signal) -> int:
        """Append an operation; returns the number of its value."""
        for x in inputs:
            self._check_kind(operation, x)
        assert self.node is not None
        path = path_of(self.node)
        return self.program.add(operation, path, *(x.value for x in inputs))

    def _check_kind(self, operation: nn.Module, x: Signal) -> None:
        is_table = isinstance(operation, nn.Embedding)
        if x.value == 0 and self.takes_tokens != is_table:
            raise NotExportable("the input is both tokens of an nn.Embedding and numbers")
        if x.value and is_table:
            raise NotExportable("its tokens are computed; an engine or a step reads them as input")

    # ------------------------------------------------------------ operations on one signal

    def elementwise(self, module: nn.Module, x: Any) -> Signal:
        """A function of each number."""
        x = signal(x)
        x.expect_no_lead()
        self._check_in_place(module)
        return replace(x, value=self.add(module, x))

    def _check_in_place(self, module: nn.Module) -> None:
        if not getattr(module, "inplace", False):
            return
        assert self.node is not None
        if len(self.node.all_input_nodes[0].users) > 1:
            raise NotExportable(
                "it changes its input in place, and the input is used again; use inplace=False"
            )
        module.inplace = False  # type: ignore[assignment]

    def over_features(self, module: nn.Module, x: Any, dim: int, width: Width) -> Signal:
        """A module on all features of a time step, which are in dimension ``dim``."""
        x = signal(x)
        if x.axis(dim) != "F":
            raise WrongLayout(
                f"it works along dimension {dim} of {x.shape_text()}, which is not the features"
            )
        x.expect_no_lead()
        return replace(x, value=self.add(module, x), width=width)

    def affine(self, x: Any, scale: Any = 1.0, shift: Any = 0.0) -> Signal:
        """x * scale + shift, with numbers or weights."""
        x = signal(x)
        x.expect_no_lead()
        parts = [_constant(part) for part in (scale, shift)]
        for part in parts:
            if part.numel() > 1:
                x.expect_features_last()
                x.width.expect(part.numel())
        return replace(x, value=self.add(Affine(*parts), x))

    def part(self, x: Signal, first: int, end: int) -> Signal:
        """Some features."""
        value = self.add(Part(first, end), x)
        return replace(x, value=value, width=Width(end - first))

    def mean(self, x: Any, dim: Any, keepdim: bool = False) -> Signal:
        """The mean over time so far."""
        x = signal(x)
        dim = dim[0] if isinstance(dim, list | tuple) and len(dim) == 1 else dim
        if not isinstance(dim, int) or x.axis(dim) != "T" or keepdim:
            raise NotExportable("only means over the time dimension, without keepdim, can stream")
        x.expect_on_time()
        value = self.add(RunningMean(x.width), x)
        return replace(x, value=value, layout=x.layout.replace("T", ""))

    # ------------------------------------------------------------ operations on two signals

    def both(self, operation: Add | Multiply, x: Signal, y: Signal) -> Signal:
        """A sum or product of two signals."""
        if (x.layout, x.lead, x.trail) != (y.layout, y.lead, y.trail):
            raise NotExportable(
                f"it combines {x.shape_text()} with {y.shape_text()}, shifted by {x.lead} and "
                f"{y.lead}, with {x.trail} and {y.trail} extra items at the end; cut both to the "
                "same time steps"
            )
        x.expect_no_lead()
        width = x.width
        if 1 in (x.width.value, y.width.value):
            width = y.width if x.width.value == 1 else x.width
        elif x.width.value is None:
            x.width.expect(y.width.known())
        else:
            y.width.expect(x.width.known())
        return replace(x, value=self.add(operation, x, y), width=width)

    # ------------------------------------------------------------ convolutions

    def convolution(
        self, x: Any, weight: Tensor, bias: Tensor | None, padding: int, dilation: int, groups: int
    ) -> Signal:
        """A convolution over [batch, features, time], which must be causal."""
        x = signal(x)
        x.expect_layout("BFT")
        taps = weight.shape[2]
        reach = (taps - 1) * dilation
        lead, trail = x.lead + padding - reach, x.trail + padding
        if lead < 0:
            raise NotExportable(
                f"its output needs {-lead} later time steps, which a stream does not have yet. "
                f"Pad {reach} zeros at the beginning only: functional.pad(x, ({reach}, 0)) before "
                f"it, or padding={reach} and [..., :-{reach}] after it"
            )
        if lead > 0:
            raise NotExportable(
                f"it reads {reach} earlier time steps, but {reach + lead} zeros are padded at the "
                f"beginning, which delays the sequence; pad {reach}"
            )
        x.width.expect(weight.shape[1] * groups)
        if taps == 1:
            operation: nn.Module = _pointwise(weight, bias, groups)
        else:
            operation = CausalConvolution(weight, bias, dilation, groups)
        value, width = self.add(operation, x), Width(weight.shape[0])
        return replace(x, value=value, width=width, lead=0, trail=trail)


def _pointwise(weight: Tensor, bias: Tensor | None, groups: int) -> nn.Linear:
    """A convolution with one tap as a linear map."""
    return linear(torch.block_diag(*weight[:, :, 0].chunk(groups)), bias)


def linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """The module with these weights."""
    module = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, dtype=weight.dtype)
    module.weight.copy_(weight)
    if bias is not None:
        module.bias.copy_(bias)
    return module


def signal(value: Any) -> Signal:
    """The value, which must be computed at each time step."""
    if isinstance(value, Signal):
        return value
    reason = getattr(value, "reason", None)
    if reason is None and hasattr(value, "items"):
        reason = "it reads a layer's (y, h) or other tuple; take y, the first item"
    raise NotExportable(reason or "it reads something that is not computed for each time step")


def _constant(value: Any) -> Tensor:
    """A number, or weights for the last dimension, as a tensor [] or [features]."""
    constant = torch.as_tensor(value, dtype=torch.get_default_dtype()).cpu()
    if constant.numel() > 1 and constant.numel() != constant.shape[-1]:
        raise NotExportable(
            f"it combines the sequence with weights of shape {list(constant.shape)}; only one "
            "number, or one number per feature, is the same at all time steps"
        )
    return constant.flatten() if constant.numel() > 1 else constant.reshape(())
