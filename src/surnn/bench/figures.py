"""Figures from result.json alone. matplotlib is optional: ``pip install 'surnn[plot]'``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from surnn.plotting import COLOURS, GREY, NoMatplotlib, new_figure, open_axes, styled, theme_colour

from .cases import SHORT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELLS = {"gru": "GRU", "lstm": "LSTM", "rnn": "RNN", "alif": "ALIF"}
STEP = "training step, forward and backward [ms]"

Records = list[dict[str, Any]]


FIGURES = {
    "speed": ("layer", (13, 5.2)),
    "length": ("length", (8, 5)),
    "events": ("long", (8, 5)),
}
"""Figures by name: the group of cases, and the size."""


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """Write every figure that has data. Returns their paths."""
    paths = []
    try:
        with styled():
            for name in FIGURES:
                if (figure := paint(result, name)) is not None:
                    figure.savefig(folder / f"{name}.png", dpi=160)
                    paths.append(folder / f"{name}.png")
    except NoMatplotlib as error:
        raise NoMatplotlib(f", then surnn bench --plot {folder}") from error
    return paths


def paint(result: dict[str, Any], name: str) -> "Figure | None":
    """One of the figures; None if there is no data for it."""
    group, size = FIGURES[name]
    records = [r for r in result["records"] if r["group"] == group and r["fwd_bwd_ms"] is not None]
    if not records:
        return None
    figure = new_figure(*size)
    axes = figure.add_subplot()
    {"speed": _speed, "length": _length, "events": _events}[name](axes, records, result["fits"])
    axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel(_source(result), x=0.995, ha="right", fontsize=7, color=GREY)
    return figure


def _log_milliseconds(axes: "Axes") -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    # labels at 2 and 5 between the powers of ten
    axes.yaxis.set_minor_formatter(lambda x, _: f"{x:g}" if f"{x:e}"[0] in "25" else "")
    axes.set_ylabel(STEP)


def _source(result: dict[str, Any]) -> str:
    about = result["environment"]
    return f"{about['device']}, torch {about['torch']}; {about['command']}"


# ---------------------------------------------------------------------------- speed.png


def _speed(axes: "Axes", records: Records, _fits: Records) -> None:
    """Bars by shape: the rival, then ours by rate and mode, with the speed-up above."""
    ours = [r for r in records if r["kind"] == "ours"]
    places = list(dict.fromkeys((r["case"], r["dtype"]) for r in ours))
    series = sorted({(r["rate"], r["mode"]) for r in ours}, key=lambda s: (-s[0], s[1]))
    rates = sorted({rate for rate, _ in series}, reverse=True)
    width = 0.9 / (len(series) + 1)
    rivals = {place: _best_rival(records, place[0]) for place in places}
    for index, key in enumerate([None, *series]):
        heights = [
            rivals[p] if key is None else _height(ours, p, key)  # None if not measured
            for p in places
        ]
        shift = (index - len(series) / 2) * width
        at = [i + shift for i, h in enumerate(heights) if h is not None]
        there = [h for h in heights if h is not None]
        if key is None:
            axes.bar(at, there, width, color=GREY, label=_rival_label(records))
            continue
        rate, mode = key
        style = (
            {"hatch": "////", "edgecolor": theme_colour("paper"), "linewidth": 0}
            if mode == "graph"
            else {}
        )
        colour = COLOURS[rates.index(rate) % len(COLOURS)]
        axes.bar(at, there, width, color=colour, label=f"surnn, p = {rate:g}, {mode}", **style)
        _write_speedups(axes, places, rivals, heights, shift)
    _log_milliseconds(axes)
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.5, high * 1.2)  # room for the smallest bar and for the speed-ups
    axes.margins(x=0.01)
    axes.set_xticks(range(len(places)), [_place_label(records, place) for place in places])
    axes.set_title("Training step against torch's layer of the same width (lower is better)")
    axes.legend(frameon=False, ncols=len(series) + 1, loc="upper center",
                bbox_to_anchor=(0.5, -0.19), fontsize=9, columnspacing=1.2)  # fmt: skip


def _best_rival(records: Records, case: str) -> float | None:
    return min(
        (r["fwd_bwd_ms"] for r in records if r["case"] == case and r["kind"] == "torch"),
        default=None,
    )


def _height(ours: Records, place: tuple[str, str], key: tuple[float, str]) -> float | None:
    for r in ours:
        if ((r["case"], r["dtype"]), (r["rate"], r["mode"])) == (place, key):
            return r["fwd_bwd_ms"]
    return None


def _write_speedups(axes: "Axes", places: list, rivals: dict, heights: list, shift: float) -> None:
    for i, (place, height) in enumerate(zip(places, heights, strict=True)):
        if height is not None and rivals[place] is not None:
            times = rivals[place] / height
            text = f"{times:.0f}×" if times >= 9.95 else f"{times:.1f}×"
            axes.annotate(text, (i + shift, height), (0, 2), textcoords="offset points",
                          ha="center", va="bottom", fontsize=7)  # fmt: skip


def _rival_label(records: Records) -> str:
    names = {r["contestant"].split()[0] for r in records if r["kind"] == "torch"}
    modes = {r["mode"] for r in records if r["kind"] == "torch"}
    return " / ".join(sorted(names)) + (", faster mode" if len(modes) > 1 else "")


def _place_label(records: Records, place: tuple[str, str]) -> str:
    same = [r for r in records if r["case"] == place[0]]
    r = next(r for r in same if r["kind"] == "ours" and r["dtype"] == place[1])
    cell = f"{CELLS[r['cell']]} {r['heads']}×{r['H'] // r['heads']}"
    label = f"{cell}, {SHORT[r['dtype']]}\nT = {r['T']}\nB = {r['B']}"
    for rival in (r for r in same if r["kind"] == "torch"):
        if rival["dtype"] != r["dtype"]:  # readers must see this
            return f"{label}\nrival in {SHORT[rival['dtype']]}"
    return label


# ---------------------------------------------------------------------------- length.png


def _length(axes: "Axes", records: Records, _fits: Records) -> None:
    """The paper's figure: one line per contestant, dashed for CUDA graphs."""
    names = list(dict.fromkeys(r["contestant"] for r in records))
    colours = iter(COLOURS)
    for name in names:
        own = [r for r in records if r["contestant"] == name]
        colour = GREY if own[0]["kind"] == "torch" else next(colours)
        for mode in sorted({r["mode"] for r in own}):
            points = sorted((r["T"], r["fwd_bwd_ms"]) for r in own if r["mode"] == mode)
            line, marker, suffix = ("--", "s", ", graph") if mode == "graph" else ("-", "o", "")
            axes.plot([p[0] for p in points], [p[1] for p in points], color=colour, linestyle=line,
                      marker=marker, markersize=4, label=name + suffix)  # fmt: skip
    lengths = sorted({r["T"] for r in records})
    axes.set_xscale("log", base=2)
    _log_milliseconds(axes)
    axes.set_xticks(lengths, [str(t) for t in lengths])
    axes.set_xlabel("sequence length T [time steps]")
    axes.grid(True, which="major", color=theme_colour("grid"), linewidth=0.6)
    some = records[0]
    axes.set_title(f"Training step over length, B = {some['B']}, H = {some['H']}")
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))


# ---------------------------------------------------------------------------- events.png


def _events(axes: "Axes", records: Records, fits: Records) -> None:
    """Time against the events of the busiest head, with the fitted line."""
    most = max(r["events"] for r in records)
    keys = sorted({(r["case"], r["mode"]) for r in records})
    for colour, (case, mode) in zip(COLOURS, keys, strict=False):
        own = [r for r in records if (r["case"], r["mode"]) == (case, mode)]
        fit = next((f for f in fits if (f["case"], f["mode"]) == (case, mode)), None)
        label = mode
        if fit is not None:
            label += (
                f": {fit['a']:.2g} ms + {1e3 * fit['b']:.3g} µs per event (R² = {fit['r2']:.3f})"
            )
            ends = (0, 1.05 * most)
            axes.plot(ends, [fit["a"] + fit["b"] * e for e in ends], color=colour, linewidth=1.2)
        times = [r["fwd_bwd_ms"] for r in own]
        marker, size, face = ("s", 16, colour) if mode == "graph" else ("o", 70, "none")
        axes.scatter([r["events"] for r in own], times, size, edgecolors=colour, facecolors=face,
                     marker=marker, zorder=3, label=label)  # fmt: skip
    axes.set_xlim(0, 1.05 * most)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("events of the busiest head")
    axes.set_ylabel(STEP)
    axes.grid(True, color=theme_colour("grid"), linewidth=0.6)
    some = records[0]
    axes.set_title(f"Time against events, T = {some['T']}, B = {some['B']}, H = {some['H']}")
    axes.legend(frameon=False, loc="upper left")


# ---------------------------------------------------------------------------- engine.png


def engine(result: dict[str, Any]) -> "Figure":
    """The C engine's speed against the share of closed units, and the dense speed of its rivals."""
    figure = new_figure(7, 4.5)
    axes = figure.add_subplot()
    records = [r for r in result["records"] if "whole sequence" not in r["name"]]
    dense = next(r["sequence_us"] for r in records if r["name"] == "engine, dense, float32")
    for colour, weights in zip(COLOURS, ("float32", "int8"), strict=False):
        mine = [r for r in records if r["name"].endswith(weights)]
        for single, line, what in ((False, "o-", "groups"), (True, "x--", "single units")):
            drawn = [r for r in mine if ("single units" in r["name"]) == single]
            axes.plot([r["sparsity"] for r in drawn], [dense / r["sequence_us"] for r in drawn],
                      line, color=colour, label=f"engine, {what}, {weights}")  # fmt: skip
    most = max(r["sparsity"] or 0 for r in records)
    shares = [most * i / 100 for i in range(101)]
    axes.plot(
        shares,
        [1 / (1 - s) for s in shares],
        ":",
        color=theme_colour("text"),
        label="1 / open units",
    )
    for mark, r in zip("sD^v", (r for r in records if r["sparsity"] is None), strict=False):
        axes.plot(0, dense / r["sequence_us"], mark, color=GREY, fillstyle="none", label=r["name"])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("units that do not update (share over time steps and layers)")
    axes.set_ylabel("speed, engine's own dense float32 = 1")
    axes.set_title("2 x 256 GRU, streamed, one thread")
    axes.legend()
    open_axes(axes)
    return figure
