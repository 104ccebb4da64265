"""What layers do at each pixel of an image that they read as a sequence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...plotting import new_figure
from ..changes import as_image, correlation, image_maps, input_changes, state_changes
from .subjects import Subject, Unfit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES = 10
LOOKED_THROUGH = 256
"""Images among which one of each class is looked for, and correlations are taken."""
PICTURES = ("smnist", "psmnist", "spiking_psmnist", "scifar", "lra_image", "pathfinder")


def image_updates(subjects: Sequence[Subject], _example: int) -> "Figure":
    """Gates and changes of the state in the shape of the image, for one image of each class.

    Left: share of units that update (the same for all images if gates are clocks). Right: the
    image, then Δh averaged over units, layer by layer.
    """
    (subject,) = subjects
    batch = subject.batch(LOOKED_THROUGH)
    chosen = _one_of_each(batch.target)
    order, recording = _order(subject), subject.record(batch)
    layers = recording.layers
    edges = [_edge_correlation(recording.x, layer) for layer in layers]
    figure = new_figure(max(5.6, 0.6 + 0.78 * (1 + len(chosen))), 0.6 + 0.85 * (1 + len(layers)))
    grid = figure.subplots(1 + len(layers), 1 + len(chosen), squeeze=False)
    for axes, row in zip(grid[0, 1:], chosen, strict=True):
        _picture(axes, as_image(_grey(batch.x[row]), order))
        axes.set_title(str(int(batch.target[row])))
    grid[0, 0].axis("off")
    for line, layer, edge in zip(grid[1:], layers, edges, strict=True):
        maps = image_maps(layer, order)
        _picture(line[0], maps.gate[0], vmin=0, vmax=1)
        line[0].set_title("open gates" if layer is layers[0] else "")
        line[0].set_ylabel(f"{layer.name}\nr = {edge:.2f}")
        reach = float(maps.change[chosen].abs().quantile(0.995)) or 1.0
        for axes, row in zip(line[1:], chosen, strict=True):
            _picture(axes, maps.change[row], "PuOr", vmin=-reach, vmax=reach)
    figure.suptitle(
        f"{subject.label} on {subject.options['task.name']}: input, and change of the state "
        "(orange down, purple up)\nr: correlation of |Δh| with the change of the input",
        fontsize=9.5,
    )
    return figure


def depth_maps(subjects: Sequence[Subject], example: int) -> "Figure":
    """Gates, states and block outputs of every layer in the shape of the image."""
    (subject,) = subjects
    batch = subject.batch(example + 1)
    order, recording = _order(subject), subject.record(batch)
    layers, blocks = recording.layers, recording.blocks
    whole = len(blocks) == len(layers)  # a plain stack is one block
    rows = ["open gates", "state"] + ["block output"] * whole
    figure = new_figure(1.6 + 1.15 * len(layers), 0.5 + 1.2 * len(rows))
    grid = figure.subplots(len(rows), 1 + len(layers), squeeze=False)
    _picture(grid[0, 0], as_image(batch.x[example].movedim(0, -1), order).movedim(0, -1))
    grid[0, 0].set_title("input")
    for axes in grid[1:, 0]:
        axes.axis("off")
    for column, layer in zip(grid.T[1:], layers, strict=True):
        maps = image_maps(layer, order)
        _picture(column[0], maps.gate[example], vmin=0, vmax=1)
        column[0].set_title(layer.name)
        _picture(column[1], maps.state[example], "viridis")
    for column, block in zip(grid.T[1:], blocks if whole else (), strict=False):
        _picture(column[2], as_image(block[example].mean(-1), order), "viridis")
    for axes, name in zip(grid[:, 1], rows, strict=True):
        axes.set_ylabel(name)
    figure.suptitle(f"{subject.label} on {subject.options['task.name']}: means over units")
    return figure


def _order(subject: Subject) -> Tensor | None:
    name = subject.options["task.name"]
    if name not in PICTURES:
        raise Unfit(f"{name} reads no images; this figure is of {', '.join(PICTURES)}")
    order = getattr(subject.task, "order", None)
    return None if order is None else torch.as_tensor(order())


def _one_of_each(labels: Tensor) -> list[int]:
    """The first image of each class, in the order of the classes."""
    found = [(labels == c).nonzero()[:1].flatten().tolist() for c in labels.unique().tolist()]
    return [row for rows in found for row in rows][:CLASSES]


def _edge_correlation(x: Tensor, layer: Any) -> float:
    """Of |Δh| with the change of the input, over all steps but the first."""
    size = state_changes(layer).abs().mean(-1)
    return correlation(size[:, 1:], input_changes(x)[:, 1:])


def _grey(x: Tensor) -> Tensor:
    return x.mean(-1) if x.dim() == 2 else x


def _picture(axes: "Axes", image: Tensor, colours: str = "gray", **limits: float) -> None:
    if image.dim() == 3:
        low, high = image.min(), image.max()
        image = ((image - low) / (high - low)).squeeze(-1)
    axes.imshow(image.numpy(), cmap=colours, interpolation="nearest", **limits)  # type: ignore[arg-type]
    axes.set_xticks([])
    axes.set_yticks([])
