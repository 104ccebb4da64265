"""Update rates as text.

A soft gate is never closed: the mean that is logged as its ``update_rate`` is not how often it
opens but how far, and the text says so.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from surnn.config import RunConfig


class RateText(NamedTuple):
    """``update rate 34.0%``, or ``mean gate opening 0.34`` of soft gates."""

    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.name} {self.value}"


def is_soft(config: "RunConfig", layer: int | None = None) -> bool:
    """Whether gates are soft: those of a layer, counted from 0, or any of the model."""
    always_open = layer is not None and layer < config.model.ungated_layers
    return config.gate.soft and not always_open


def format_opening(mean: float) -> str:
    """How far soft gates are open."""
    return f"by {_number(mean, soft=True)} on average"


def format_rate(mean: float, soft: bool) -> RateText:
    """A mean over gates. Over several layers it is an opening if any of them is soft."""
    return RateText("mean gate opening" if soft else "update rate", _number(mean, soft))


def format_layer_rates(metrics: dict[str, Any], config: "RunConfig") -> list[RateText]:
    """The logged or evaluated rate of each layer, in total and by kind of token."""
    means = metrics.get("update_rate", [])
    by_kind = metrics.get("update_rate_by_kind", [{}] * len(means))
    texts = []
    for layer, (mean, kinds) in enumerate(zip(means, by_kind, strict=True)):
        soft = is_soft(config, layer)
        name, value = format_rate(mean, soft)
        split = ", ".join(f"{kind} {_number(each, soft)}" for kind, each in kinds.items())
        texts.append(RateText(name, value + f"  ({split})" * bool(split)))
    return texts


def _number(mean: float, soft: bool) -> str:
    return f"{mean:.2f}" if soft else f"{mean:.1%}"
