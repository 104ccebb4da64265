"""Grouped projections, for state expansion."""

import math

import torch
from torch import Tensor, nn


class GroupedLinear(nn.Module):
    """A block-diagonal linear map: group j of the outputs reads group j of the inputs only.

    Args:
        in_features: size of the last input dimension; ``groups`` must divide it.
        out_features: size of the last output dimension; likewise.
        groups: number of blocks; 1 is dense.

    Example:
        >>> GroupedLinear(8, 32, groups=4)(torch.zeros(5, 8)).shape
        torch.Size([5, 32])
    """

    def __init__(
        self, in_features: int, out_features: int, groups: int = 1, *, device=None, dtype=None
    ) -> None:
        super().__init__()
        for name, size in (("in_features", in_features), ("out_features", out_features)):
            if groups < 1 or size % groups:
                raise ValueError(
                    f"{groups} groups do not divide {name} {size}; choose a common divisor of "
                    f"{in_features} and {out_features}, for example "
                    f"{math.gcd(in_features, out_features)}"
                )
        self.groups = groups
        shape = (groups, out_features // groups, in_features // groups)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights as ``nn.Linear`` does."""
        bound = 1 / math.sqrt(self.weight.shape[-1])
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        grouped = x.unflatten(-1, (self.groups, -1))
        return torch.einsum("...gi,goi->...go", grouped, self.weight.to(x.dtype)).flatten(-2)

    def extra_repr(self) -> str:
        groups, out, into = self.weight.shape
        return f"{groups * into}, {groups * out}, groups={groups}"
