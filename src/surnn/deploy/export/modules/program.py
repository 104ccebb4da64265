"""A module as a list of operations on the features of one time step."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from surnn.models.base import StreamModule
from surnn.models.signature import Tokens, Values

from .signals import Width


class StreamProgram(nn.Module):
    """Operations that run in order, each on results of earlier ones.

    Value 0 is the input, [B, features] or tokens [B]. Value i is the output of operation i, counted
    from 1. An operation is a module on [B, features], or a
    :class:`~surnn.models.base.StreamModule`, which has a state.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = nn.ModuleList()
        self.sources: list[tuple[int, ...]] = []
        """The values that each operation reads."""
        self.paths: list[str] = []
        """The place of each operation in the user's module, for messages."""
        self.inputs: Tokens | Values = Values(1)
        self.output = 0
        """The value that is the prediction."""

    def add(self, operation: nn.Module, path: str, *sources: int) -> int:
        """Append an operation; returns the number of its value."""
        self.operations.append(operation)
        self.sources.append(sources)
        self.paths.append(path)
        return len(self.sources)

    def stateful(self) -> list[StreamModule]:
        """The operations that have a state, in order."""
        return [one for one in self.operations if isinstance(one, StreamModule)]

    def init_state(self, batch: int = 1) -> tuple[Any, ...]:
        """The state of ``batch`` streams before their first time step."""
        return tuple(part.init_state(batch) for part in self.stateful())

    def step(self, x: Tensor, state: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
        """One time step: the prediction, and the next state."""
        values, new, states = [x], [], iter(state)
        for operation, sources in zip(self.operations, self.sources, strict=True):
            inputs = [values[source] for source in sources]
            if isinstance(operation, StreamModule):
                y, after = operation.step(inputs[0], next(states))
                new.append(after)
            else:
                y = operation(*inputs)
            values.append(y)
        return values[self.output], tuple(new)


# ---------------------------------------------------------------------------- operations


class Add(nn.Module):
    """The sum of two vectors, or of a vector and a number."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Multiply(nn.Module):
    """The product of two vectors, feature by feature, or of a vector and a number."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y


class Affine(nn.Module):
    """x * scale + shift, each a number or one number per feature."""

    scale: Tensor
    shift: Tensor

    def __init__(self, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale.detach().clone())
        self.register_buffer("shift", shift.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift


class Part(nn.Module):
    """The features from ``first`` to ``end - 1``."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__()
        self.first, self.end = first, end

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.first : self.end]


class CausalConvolution(StreamModule):
    """A convolution over the present and earlier time steps.

    Args:
        weight: [outputs, inputs / groups, taps], the last tap for the present time step.
        bias: [outputs], or None.
        dilation: time steps between two taps.
        groups: groups of features that do not mix.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None, dilation: int, groups: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self.dilation, self.groups = dilation, groups
        self.features = weight.shape[1] * groups

    def init_state(self, batch: int) -> Tensor:
        """The latest inputs, oldest first."""
        history = (self.weight.shape[2] - 1) * self.dilation
        return self.weight.new_zeros(batch, history, self.features)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        inputs = torch.cat((state, x.unsqueeze(1)), 1)
        y = functional.conv1d(
            inputs.transpose(1, 2), self.weight, self.bias, 1, 0, self.dilation, self.groups
        )
        return y.squeeze(2), inputs[:, 1:]

    def state_names(self, first: int) -> tuple[str, ...]:
        return (f"x_{first}",)


class RunningMean(StreamModule):
    """The mean of all time steps so far."""

    def __init__(self, width: Width) -> None:
        super().__init__()
        self.width = width

    def init_state(self, batch: int) -> tuple[Tensor, Tensor]:
        """The sum so far, and the number of time steps."""
        return torch.zeros(batch, self.width.known()), torch.zeros(batch, dtype=torch.int64)

    def step(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        total, t = state[0] + x, state[1] + 1
        return total / t.unsqueeze(-1), (total, t)

    def state_names(self, first: int) -> tuple[str, ...]:
        return (f"total_{first}",)

    def split_state(self, state: tuple[Tensor, Tensor]) -> list[Tensor]:
        return [state[0]]

    def join_state(self, tensors: Sequence[Tensor], t: Tensor) -> tuple[Tensor, Tensor]:
        return tensors[0], t
