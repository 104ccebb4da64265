"""Exports contain finite weights only."""

import torch
from torch import Tensor, nn

from surnn.errors import SurnnError


class NonFiniteWeights(SurnnError, ValueError):
    """A model that cannot be exported, because a weight is NaN, infinite or too large."""


def check_finite(model: nn.Module, dtype: torch.dtype | None = None) -> None:
    """Raise :class:`NonFiniteWeights` if a weight of ``model`` is NaN or infinite.

    Args:
        model: the model.
        dtype: the dtype of the weights in the file, by default each weight's own. A weight that it
            cannot hold is refused too.
    """
    for name, value in model.state_dict().items():
        if isinstance(value, Tensor) and value.is_floating_point():
            _check_weight(name, value, dtype or value.dtype)


def _check_weight(name: str, value: Tensor, dtype: torch.dtype) -> None:
    bad = (~value.to(dtype).isfinite()).nonzero()
    if not len(bad):
        return
    first = bad[0].tolist()
    number = value[tuple(first)].item()
    raise NonFiniteWeights(
        f"{name} has {len(bad)} of {value.numel()} weights that are not finite in "
        f"{str(dtype).removeprefix('torch.')}, the first is {number} at {first}; export an earlier "
        "checkpoint, or train again with a lower learning rate"
    )
