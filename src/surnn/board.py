"""TensorBoard, for those who have it."""

from collections.abc import Iterator
from typing import Any


def board_class() -> Any:
    """TensorBoard's writer, which need not be installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
    except ImportError as error:
        raise ValueError("tensorboard is not installed: pip install surnn[log]") from error
    return SummaryWriter


def scalars(values: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Single numbers by name; those of layers as ``update_rate/layer1``, and by kind below it."""
    for name, value in values.items():
        if isinstance(value, list):
            layers = {f"layer{number}": each for number, each in enumerate(value, 1)}
            yield from ((f"{name}/{below}", each) for below, each in scalars(layers))
        elif isinstance(value, dict):
            yield from ((f"{name}/{below}", each) for below, each in scalars(value))
        elif isinstance(value, float):
            yield name, value
