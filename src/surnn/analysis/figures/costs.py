"""Costs of layers: figures of benchmarks, and the paper's table of trade-offs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from surnn.bench import figures as bench
from surnn.plotting import GREY, new_figure, theme_colour

from ..tradeoffs import KERNEL, ROUNDS, trade_offs, training_seconds
from .subjects import NotApplicable, Subject, one_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = {
    "compute": "multiply-adds\nof a sequence",
    "serial": "serial\nsteps",
    "depth": "effective\ndepth",
    "state": "numbers kept\nby a stream",
    "token": "multiply-adds\nof one more step",
}
MEASURED = "training step,\nmeasured"
SEQUENCES = 4


def run_time(folder: Path) -> "Figure":
    """Time of a training step against length, from ``surnn bench``."""
    figure = bench.paint(_result(folder, "fits"), "length")
    if figure is None:
        raise NotApplicable(
            f"{folder} holds no cases of several lengths; measure them: surnn bench --suite full"
        )
    return figure


def latency(folder: Path) -> "Figure":
    """Speed of the C engine against the share of closed units, from ``surnn bench engine``."""
    return bench.engine(_result(folder, "parts"))


def _result(folder: Path, has: str) -> dict[str, Any]:
    path = folder / "result.json" if folder.is_dir() else folder
    command = {"fits": "surnn bench", "parts": "surnn bench engine"}[has]
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise NotApplicable(
            f"{path} cannot be read: {error}; name a folder of {command}"
        ) from error
    if has not in result:
        raise NotApplicable(f"{path} is not a result of {command}")
    return result


def trade_offs_figure(subjects: Sequence[Subject], _example: int) -> "Figure":
    """The paper's table of trade-offs: formulas, counts and measured times.

    Counts are for the run's width and length and the gates of its last layer.
    """
    (subject,) = subjects
    one_size(subjects)
    model, batch = subject.trained.model, subject.batch(SEQUENCES)
    layer, seen = model.selective_layers(), subject.selective(subject.record(batch))[-1]
    rows = trade_offs(layer[-1], seen)
    seconds = training_seconds(model, batch.x)
    figure = new_figure(9.6, 0.9 + 0.34 * (len(rows) + 1))
    axes = figure.add_subplot()
    axes.axis("off")
    axes.set(xlim=(0, 1), ylim=(-len(rows) - 0.4, 0.9))
    ends = [0.37 + 0.63 * i / len(COLUMNS) for i in range(len(COLUMNS) + 1)]
    for end, title in zip(ends, (*COLUMNS.values(), MEASURED), strict=True):
        axes.text(end, 0, title, ha="right", va="center", weight="bold", fontsize=8)
    for line, (row, took) in enumerate(zip(rows, seconds, strict=True), 1):
        axes.axhline(0.5 - line, color=theme_colour("grid"), linewidth=0.8)
        axes.text(0, -line, row.name, va="center", fontsize=8.5)
        for end, name in zip(ends, COLUMNS, strict=False):
            formula, count = getattr(row, name)
            text = f"{count:,.0f}" if count < 1e6 else f"{count / 1e6:,.1f} M"
            axes.text(end, -line + 0.17, formula.replace("log_k T", "$\\log_k T$"), ha="right",
                      va="center", fontsize=8, color=GREY)  # fmt: skip
            axes.text(end, -line - 0.2, text, ha="right", va="center", fontsize=8.5)
        axes.text(ends[-1], -line - 0.2, f"{1e3 * took:.3g} ms", ha="right", va="center",
                  fontsize=8.5)  # fmt: skip
    threads = torch.get_num_threads()
    figure.suptitle(
        f"One layer, T = {seen.gate.shape[1]} steps, d = {layer[-1].state_size}, k = {KERNEL}: "
        "the paper's formula (grey), the count, and the measured\ntime: forward and "
        f"backward of {len(batch.x)} sequences on this CPU, {threads} "
        f"thread{'s' * (threads > 1)}, median of {ROUNDS}",
        fontsize=9.5,
    )
    return figure


def trade_offs_seconds(subjects: Sequence[Subject]) -> float:
    """Estimated on a quarter of the sequence, where attention needs a sixteenth of the time."""
    (subject,) = subjects
    x = subject.batch(SEQUENCES).x
    if not subject.gated:
        return 0.0
    sample = training_seconds(subject.trained.model, x[:, : max(1, x.shape[1] // 4)], 1)
    return (1 + ROUNDS) * (16 * sample[0] + 4 * sum(sample[1:]))
