"""The options that all layers share, as signatures, editors and type checkers see them."""

from collections.abc import Sequence
from typing import Literal, TypedDict, TypeVar

import torch

from surnn.scan import Backend

from ..gates import Gate
from ..options import inherit_options
from .base import SelectiveLayer

Layer = TypeVar("Layer", bound=type[SelectiveLayer])


class LayerOptions(TypedDict, total=False):
    """See :class:`SelectiveLayer`."""

    device: torch.device | str | None
    dtype: torch.dtype | None
    heads: int
    gate: Gate | str | Sequence[Gate | str]
    expand: int
    groups: int
    backend: Backend
    max_rate: float | None
    recompute: bool
    nonfinite: Literal["propagate", "raise"]


def document_options(layer: Layer) -> Layer:
    """Add the shared options to the signature and docstring of a class that passes them on."""
    inherit_options(layer, SelectiveLayer)
    return layer
