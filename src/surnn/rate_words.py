"""Update rates in words.

A soft gate is never closed: the mean that is logged as its ``update_rate`` is not how often it
opens but how far, and is told as that.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .config import RunConfig


class RateWords(NamedTuple):
    """``updates 34.0%``, or ``gates open by 0.34 on average``."""

    what: str
    how: str

    def __str__(self) -> str:
        return f"{self.what} {self.how}"


def is_soft(config: "RunConfig", layer: int | None = None) -> bool:
    """Whether gates are soft: those of a layer, counted from 0, or any of the model."""
    always_open = layer is not None and layer < config.model.open_layers
    return config.gate.mode == "soft" and not always_open


def opened_by(mean: float) -> str:
    """How far soft gates are open."""
    return f"by {_number(mean, soft=True)} on average"


def in_words(mean: float, soft: bool) -> RateWords:
    """A mean of gates; of several layers, if any is soft, it is how far all of them are open."""
    if soft:
        return RateWords("gates", f"open {opened_by(mean)}")
    return RateWords("updates", _number(mean, soft))


def layers_in_words(found: dict[str, Any], config: "RunConfig") -> list[RateWords]:
    """What was logged or evaluated of each layer, in all and by kind of token."""
    means = found.get("update_rate", [])
    by_kind = found.get("update_rate_by_kind", [{}] * len(means))
    told = []
    for layer, (mean, kinds) in enumerate(zip(means, by_kind, strict=True)):
        soft = is_soft(config, layer)
        what, how = in_words(mean, soft)
        split = ", ".join(f"{kind} {_number(each, soft)}" for kind, each in kinds.items())
        told.append(RateWords(what, how + f"  ({split})" * bool(split)))
    return told


def _number(mean: float, soft: bool) -> str:
    return f"{mean:.2f}" if soft else f"{mean:.1%}"
