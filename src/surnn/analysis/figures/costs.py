"""What layers cost: from benchmarks, and the paper's table of trade-offs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...bench import figures as bench
from ...plotting import GREY, PALE, new_figure
from ..tradeoffs import KERNEL, TradeOffs, trade_offs
from .subjects import Subject, Unfit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = {
    "compute": "multiply-adds\nof a sequence",
    "serial": "serial\nsteps",
    "depth": "effective\ndepth",
    "state": "numbers kept\nby a stream",
    "token": "multiply-adds\nof one more step",
}


def run_time(folder: Path) -> "Figure":
    """Time of a training step against length, from ``surnn bench``."""
    figure = bench.paint(_result(folder, "fits"), "length")
    if figure is None:
        raise Unfit(
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
        raise Unfit(f"{path} cannot be read: {error}; name a folder of {command}") from error
    if has not in result:
        raise Unfit(f"{path} is not a result of {command}")
    return result


def trade_off_table(subject: Subject) -> list[TradeOffs]:
    """At the width and length of a run, with its last layer's gates."""
    seen = subject.selective(subject.record(subject.batch(4)))[-1]
    return trade_offs(subject.trained.model.selective_layers()[-1], seen)


def trade_offs_figure(subjects: Sequence[Subject], _example: int) -> "Figure":
    """The paper's table of trade-offs: formulas, and what was counted at a run's size."""
    (subject,) = subjects
    rows = trade_off_table(subject)
    figure = new_figure(9.2, 0.7 + 0.34 * (len(rows) + 1))
    axes = figure.add_subplot()
    axes.axis("off")
    axes.set(xlim=(0, 1), ylim=(-len(rows) - 0.4, 0.9))
    ends = [0.45 + 0.55 * i / (len(COLUMNS) - 1) for i in range(len(COLUMNS))]
    for end, title in zip(ends, COLUMNS.values(), strict=True):
        axes.text(end, 0, title, ha="right", va="center", weight="bold", fontsize=8)
    for line, row in enumerate(rows, 1):
        axes.axhline(0.5 - line, color=PALE, linewidth=0.8)
        axes.text(0, -line, row.name, va="center", fontsize=8.5)
        for end, name in zip(ends, COLUMNS, strict=True):
            formula, counted = getattr(row, name)
            told = f"{counted:,.0f}" if counted < 1e6 else f"{counted / 1e6:,.1f} M"
            axes.text(
                end,
                -line + 0.17,
                formula.replace("log_k T", "$\\log_k T$"),
                ha="right",
                va="center",
                fontsize=8,
                color=GREY,
            )
            axes.text(end, -line - 0.2, told, ha="right", va="center", fontsize=8.5)
    layer = subject.trained.model.selective_layers()[-1]
    steps = subject.trained.task.steps
    figure.suptitle(
        f"One layer, T = {steps} steps, d = {layer.state_size}, k = {KERNEL}: "
        "the paper's formula (grey), and what was counted"
    )
    return figure
