"""Options that all layers share, for whoever reads signatures: people, editors, type checkers."""

import inspect
from collections.abc import Sequence
from typing import Literal, TypedDict, TypeVar

import torch

from ..gates import Gate
from ..scan import Backend
from .base import SelectiveLayer

SHARED = "        **options: see :class:`SelectiveLayer`.\n"
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


def documented(layer: Layer) -> Layer:
    """Write the shared options out, in the signature and the text of a class that hands them on."""
    own, shared = (_options(kind) for kind in (layer, SelectiveLayer))
    more = {name: option for name, option in shared.items() if name not in own and name != "cell"}
    layer.__signature__ = inspect.Signature([*own.values(), *more.values()])  # type: ignore[attr-defined]
    args = inspect.getdoc(SelectiveLayer) or ""
    args = "".join(f"    {line}\n" for line in args.partition("Args:\n")[2].splitlines())
    layer.__doc__ = (layer.__doc__ or "").replace(SHARED, args)
    return layer


def _options(kind: type[SelectiveLayer]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(kind.__init__).parameters
    return {
        name: option
        for name, option in parameters.items()
        if name != "self" and option.kind is not option.VAR_KEYWORD
    }
