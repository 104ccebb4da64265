"""Logged values as curves with few enough points for a page.

A long curve is cut into stretches with equally many points. Each stretch contributes its lowest and
its highest value: no peak is lost, and every point shown was logged. The means of the stretches are
stored too, for smoothing.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

Line = dict[str, Any]
Points = tuple[list[float], list[float]]
"""Optimizer steps, and the values at them."""
MAX_POINTS = 2000
"""Points of one curve, if the page has few curves."""
MIN_POINTS = 200
"""Points of one curve, if the page has many."""
PAGE_POINTS = 80_000
"""Points of all curves of a page, unless MIN_POINTS makes them more."""
MEAN = "mean of layers"
RATE, OPENNESS = "update rate", "how far gates are open"
"""Charts of the logged ``update_rate``: for soft gates it is a mean opening, not a rate."""
NOT_CURVES = (
    "kind", "step", "seconds", "took", "sequences", "of", "update_rate", "update_rate_by_kind",
)  # fmt: skip


class Curve(dict[str, Any]):
    """A curve as the page's JSON holds it.

    ``chart`` is the chart's name, ``split`` is ``train`` or ``valid``. ``group`` and ``part``
    identify one of several curves of a chart: a layer, or a layer and a kind of token.
    """

    def __init__(
        self, chart: str, split: str, points: Points, part: str = "", group: str = ""
    ) -> None:
        super().__init__(chart=chart, split=split, group=group, part=part, points=points)

    def limit(self, count: int) -> "Curve":
        """This curve with at most ``count`` points."""
        steps, values = self["points"]
        if len(steps) <= count:
            points, means = (steps, values), None
        else:
            points, means = thin(steps, values, count)
        curve = Curve(self["chart"], self["split"], _json(points), self["part"], self["group"])
        curve["logged"] = len(steps)
        if means is not None:
            curve["means"] = _json(means)
        return curve


def thin(steps: list[float], values: list[float], count: int) -> tuple[Points, Points]:
    """At most ``count`` of the points, all peaks included, and the means of the stretches."""
    x, y = np.asarray(steps), np.asarray(values, float)
    selection, means = {0, len(values) - 1}, ([], [])
    for stretch in np.array_split(np.arange(len(values)), count // 2 - 1):
        part = y[stretch]
        finite = np.isfinite(part)
        if finite.any():
            selection |= {int(stretch[np.where(finite, part, np.inf).argmin()])}
            selection |= {int(stretch[np.where(finite, part, -np.inf).argmax()])}
            means[0].append(round(float(x[stretch].mean()), 1))
            means[1].append(float(part[finite].mean()))
    indices = sorted(selection)
    return ([steps[i] for i in indices], [values[i] for i in indices]), means


def curves(lines: list[Line], soft: bool) -> list[Curve]:
    """All curves of metrics.jsonl, and the optimizer steps per second.

    Args:
        lines: of metrics.jsonl.
        soft: whether the model's gates are soft.
    """
    chart = OPENNESS if soft else RATE
    train = [line for line in lines if line["kind"] == "train"]
    valid = [line for line in lines if line["kind"] == "valid"]
    everything = [
        *_scalars(train, "train"),
        *_scalars(valid, "valid"),
        *_rates(train, "train", chart),
        *_rates(valid, "valid", chart),
        *_by_kind(valid, chart),
        Curve("steps per second", "train", steps_per_second(lines)),
    ]
    return [curve for curve in everything if curve["points"][0]]


def with_means(runs: list[list[Curve]]) -> list[list[Curve]]:
    """Add a mean over layers to runs with one layer if another run has several, so that runs of
    different depths can be compared."""
    if not any(curve["part"] == MEAN for own in runs for curve in own):
        return runs
    return [_means_of_one_layer(own) + own for own in runs]


def thin_all(runs: list[list[Curve]]) -> list[list[Curve]]:
    """The curves of several runs, with as many points as a page can hold."""
    count = max(1, sum(map(len, runs)))
    points = max(MIN_POINTS, min(MAX_POINTS, PAGE_POINTS // count))
    return [[curve.limit(points) for curve in own] for own in runs]


def clock(lines: list[Line]) -> Points:
    """Seconds of training, evaluations included, at optimizer steps: for curves against time."""
    train = [line for line in lines if line["kind"] == "train" and "seconds" in line]
    stride = max(1, len(train) // MAX_POINTS)
    some = [*train[:-1:stride], *train[-1:]]
    return [line["step"] for line in some], [line["seconds"] for line in some]


def steps_per_second(lines: list[Line], with_pauses: bool = True) -> Points:
    """Optimizer steps per second between lines of the log, without the evaluations between them.

    Logs of earlier versions do not contain the duration of evaluations. In such a log only pairs of
    lines without an evaluation between them count. If there is no such pair, all pairs count, with
    the evaluations in their time, unless ``with_pauses`` is False.
    """
    all_pairs: list[tuple[float, float]] = []
    without_pauses: list[tuple[float, float]] = []
    before, pause = None, 0.0
    for line in lines:
        if line["kind"] != "train":
            pause += line.get("took", math.nan)
            continue
        if "seconds" not in line:
            continue
        known = not math.isnan(pause)
        if before is not None:
            seconds = line["seconds"] - before["seconds"] - (pause if known else 0.0)
            if seconds > 0:
                pace = line["step"], (line["step"] - before["step"]) / seconds
                all_pairs.append(pace)
                without_pauses += [pace] if known else []
        before, pause = line, 0.0
    paces = without_pauses or (all_pairs if with_pauses else [])
    return [step for step, _ in paces], [pace for _, pace in paces]


def finite(value: float) -> float | None:
    """The value, or None for NaN and infinity, which JSON lacks."""
    return value if math.isfinite(value) else None


# ---------------------------------------------------------------------------- parts


def _scalars(lines: list[Line], split: str) -> Iterable[Curve]:
    """Single numbers: loss, metric, learning rate, ..."""
    scalars = dict.fromkeys(
        name for line in lines for name, value in line.items()
        if name not in NOT_CURVES and isinstance(value, int | float)
    )  # fmt: skip
    for name in scalars:
        yield Curve(name, split, _collect(lines, lambda line, name=name: line.get(name)))


def _rates(lines: list[Line], split: str, chart: str) -> Iterable[Curve]:
    """Update rates: the mean over layers, and each layer."""
    layers = max((len(line.get("update_rate", ())) for line in lines), default=0)
    if layers > 1:
        mean = _collect(lines, lambda line: _mean(line.get("update_rate")))
        yield Curve(chart, split, mean, MEAN)
    for layer in range(layers):
        points = _collect(lines, lambda line, at=layer: _at(line.get("update_rate"), at))
        yield Curve(chart, split, points, f"layer {layer + 1}")


def _means_of_one_layer(curves: list[Curve]) -> list[Curve]:
    rates = [curve for curve in curves if curve["chart"] in (RATE, OPENNESS)]
    if len({curve["part"] for curve in rates}) != 1:
        return []
    return [Curve(rate["chart"], rate["split"], rate["points"], MEAN) for rate in rates]


def _by_kind(lines: list[Line], chart: str) -> Iterable[Curve]:
    """Update rates of each layer at each kind of token."""
    name = "update_rate_by_kind"
    pairs = dict.fromkeys(
        (layer, kind) for line in lines
        for layer, rates in enumerate(line.get(name, ())) for kind in rates
    )  # fmt: skip
    for layer, kind in pairs:
        points = _collect(
            lines, lambda line, at=layer, kind=kind: (_at(line.get(name), at) or {}).get(kind)
        )
        yield Curve(f"{chart} by kind of token", "valid", points, kind, f"layer {layer + 1}")


def _collect(lines: list[Line], value: Callable[[Line], float | None]) -> Points:
    found = [(line["step"], value(line)) for line in lines]
    points = [(step, each) for step, each in found if isinstance(each, int | float)]
    return [step for step, _ in points], [each for _, each in points]


def _mean(values: list[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


def _at(values: list[Any] | None, index: int) -> Any:
    return values[index] if values and index < len(values) else None


def _json(points: Points) -> Any:
    return [list(points[0]), [finite(value) for value in points[1]]]
