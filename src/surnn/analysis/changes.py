"""Changes of states and of the input at each time step, and whether the two are related."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from surnn.tasks.base import Task

from .recording import LayerRecord

ROW_BY_ROW = ("scifar", "lra_image", "pathfinder")
"""Tasks whose sequences are square images, read row by row."""


def state_changes(layer: LayerRecord) -> Float[Tensor, "B T H"]:
    """Δh_t = h_t - h_{t-1}, from the zero state on."""
    before = torch.cat((torch.zeros_like(layer.state[:, :1]), layer.state[:, :-1]), 1)
    return layer.state - before


def input_changes(x: Num[Tensor, "B T"] | Num[Tensor, "B T F"]) -> Float[Tensor, "B T"]:
    """Mean over features of |x_t - x_{t-1}|, or whether the token changed. 0 at the first step."""
    if x.dim() == 2:
        change = (x[:, 1:] != x[:, :-1]).float()
    else:
        change = x.float().diff(dim=1).abs().mean(-1)
    return torch.cat((torch.zeros_like(change[:, :1]), change), 1)


def open_share(layer: LayerRecord) -> Float[Tensor, "B T"]:
    """Share of the layer's units that update at each time step."""
    return (layer.gate != 0).float().mean(-1)


def correlation(a: Float[Tensor, "..."], b: Float[Tensor, "..."]) -> float:
    """Pearson correlation over all entries; NaN if either is constant."""
    both = torch.stack((a.flatten(), b.flatten())).double()
    return torch.corrcoef(both)[0, 1].item()


class RateByChange(NamedTuple):
    """Update rates against the change of the input, in bins with equally many time steps."""

    change: Float[Tensor, "K"]
    """Mean change of the input in each bin."""
    rate: Float[Tensor, "K"]
    """Mean update rate in each bin."""


def rate_by_change(
    layer: LayerRecord,
    x: Num[Tensor, "B T"] | Num[Tensor, "B T F"],
    lengths: Int[Tensor, "B"] | None = None,
    bins: int = 10,
) -> RateByChange:
    """Whether a layer updates where the input changes.

    Padding and the first time step of a sequence, which has no change, are left out.
    """
    steps = torch.arange(1, x.shape[1])
    inside = steps[None] < (x.shape[1] if lengths is None else lengths[:, None])
    inside = inside.expand(len(x), -1)
    change, rate = (v[:, 1:][inside] for v in (input_changes(x), open_share(layer)))
    order = change.argsort(stable=True)
    parts = [part for part in order.tensor_split(bins) if len(part)]
    return RateByChange(*(torch.stack([v[part].mean() for part in parts]) for v in (change, rate)))


def pixel_order(task: Task) -> Int[Tensor, "T"] | None:
    """The pixel of a square image at each time step; None if the task does not read images."""
    if hasattr(task, "order"):
        return torch.as_tensor(task.order())  # type: ignore[attr-defined]
    return torch.arange(task.steps) if task.name in ROW_BY_ROW else None


def as_image(
    values: Num[Tensor, "*any T"], order: Int[Tensor, "T"] | None = None
) -> Num[Tensor, "*any S S"]:
    """Values of a sequence of pixels in the shape of the square image.

    ``order`` holds the pixel of each time step; None means row by row.
    """
    side = round(values.shape[-1] ** 0.5)
    if side * side != values.shape[-1]:
        raise ValueError(f"{values.shape[-1]} steps are not a square image")
    image = values
    if order is not None:
        image = torch.empty_like(values)
        image[..., order] = values
    return image.unflatten(-1, (side, side))


class ImageMaps(NamedTuple):
    """Gates, changes and states of one layer at each pixel."""

    gate: Float[Tensor, "B S S"]
    """Share of units that updated."""
    change: Float[Tensor, "B S S"]
    """Δh, the mean over units."""
    size: Float[Tensor, "B S S"]
    """|Δh|, the mean over units."""
    state: Float[Tensor, "B S S"]
    """h, the mean over units."""


def image_maps(layer: LayerRecord, order: Int[Tensor, "T"] | None = None) -> ImageMaps:
    """A layer's gates, changes and states, averaged over units, in the shape of the image."""
    change = state_changes(layer)
    kinds = open_share(layer), change.mean(-1), change.abs().mean(-1), layer.state.mean(-1)
    return ImageMaps(*(as_image(values, order) for values in kinds))
