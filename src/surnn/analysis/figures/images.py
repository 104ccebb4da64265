"""Gates and states at each pixel of an image that is read as a sequence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from surnn.plotting import new_figure

from ..changes import as_image, correlation, image_maps, input_changes, pixel_order, state_changes
from .subjects import NotApplicable, Subject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES = 10
IMAGES = 256
"""Number of images for class means and correlations."""
SIGNED, UNSIGNED = "PuOr", "Greys"
CHANGES = {
    "Δh": ("change", SIGNED, False),
    "|Δh|": ("size", UNSIGNED, False),
    "Δh,\nclass mean": ("change", SIGNED, True),
    "|Δh|,\nclass mean": ("size", UNSIGNED, True),
}
"""Rows of pictures of a layer: the map, its colours, and whether it is a class mean."""


def image_updates(subjects: Sequence[Subject], _example: int) -> "Figure":
    """Gates and changes of the state in the shape of the image, for each class.

    Left: share of units that update (equal for all images if gates depend on time alone). Right: an
    image of each class; then for every layer the means over units of Δh and |Δh|, for that image
    and for all recorded images of its class.
    """
    (subject,) = subjects
    batch = subject.batch(IMAGES)
    members = _by_class(batch.target)
    order, recording = _order(subject), subject.record(batch)
    layers = recording.layers
    rows = 1 + len(CHANGES) * len(layers)
    figure = new_figure(max(6.4, 1.6 + 0.78 * (1 + len(members))), 0.6 + 0.8 * rows)
    grid = figure.subplots(rows, 1 + len(members), squeeze=False)
    for axes in grid[:, 0]:
        axes.axis("off")
    for axes, (label, own) in zip(grid[0, 1:], members.items(), strict=True):
        _picture(axes, as_image(_grey(batch.x[own[0]]), order))
        axes.set_title(str(label))
    grid[0, 1].set_ylabel("input", rotation=0, ha="right", va="center")
    for number, layer in enumerate(layers):
        maps = image_maps(layer, order)
        lines = grid[1 + len(CHANGES) * number :][: len(CHANGES)]
        lines[0, 0].axis("on")
        _picture(lines[0, 0], maps.gate[0], vmin=0, vmax=1)
        edge = _edge_correlation(recording.x, layer)
        text = f"{layer.name}:\nopen gates\n\nr = {edge:.2f}"
        lines[1, 0].text(0.5, 1, text, ha="center", va="top", fontsize=8.5)
        for line, (name, (field, colours, mean)) in zip(lines, CHANGES.items(), strict=True):
            values = getattr(maps, field)
            shown = [values[own].mean(0) if mean else values[own[0]] for own in members.values()]
            reach = float(torch.stack(shown).abs().quantile(0.995)) or 1.0
            for axes, image in zip(line[1:], shown, strict=True):
                _picture(axes, image, colours, vmin=-reach if colours == SIGNED else 0, vmax=reach)
            line[1].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8.5)
    figure.suptitle(
        f"{subject.label} on {subject.options['task.name']}: change of the state at each pixel "
        "(orange down, purple up)\nr: correlation of |Δh| with the change of the input",
        fontsize=9.5,
    )
    return figure


def depth_maps(subjects: Sequence[Subject], example: int) -> "Figure":
    """Gates, states and block outputs of every layer in the shape of the image."""
    (subject,) = subjects
    batch = subject.batch_with(example)
    order, recording = _order(subject), subject.record(batch)
    layers, blocks = recording.layers, recording.blocks
    whole = len(blocks) == len(layers)  # a plain stack is one block
    rows = ["open gates", "state"] + ["block output"] * whole
    figure = new_figure(1.6 + 1.15 * len(layers), 0.5 + 1.2 * len(rows))
    grid = figure.subplots(len(rows), 1 + len(layers), squeeze=False)
    _picture(grid[0, 0], as_image(batch.x[example].T, order).movedim(0, -1))
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


def _order(subject: Subject) -> Tensor:
    order = pixel_order(subject.trained.task)
    if order is None:
        raise NotApplicable(
            f"{subject.options['task.name']} does not read images; this figure needs a task that "
            "reads them pixel by pixel, such as smnist"
        )
    return order


def _by_class(labels: Tensor) -> dict[int, list[int]]:
    """Numbers of the images of each class."""
    members = {c: (labels == c).nonzero().flatten().tolist() for c in labels.unique().tolist()}
    return dict(list(members.items())[:CLASSES])


def _edge_correlation(x: Tensor, layer: Any) -> float:
    """Correlation of |Δh| with the change of the input, without the first time step."""
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
