"""What was logged, as curves of few enough points for a page.

A long curve is cut into stretches of equally many points, and of each its lowest and its highest
value are kept: every peak stays, and every point shown is one that was logged. Means of the
stretches are kept beside them, for smoothing.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

Line = dict[str, Any]
Points = tuple[list[float], list[float]]
"""Updates, and values at them."""
MOST_POINTS = 2000
"""Of one curve."""
FEWEST_POINTS = 200
ALL_POINTS = 80_000
"""Of all curves of a page, unless these are very many."""
MEAN = "mean of layers"
RATE, OPENNESS = "update rate", "how far gates are open"
"""Charts of what is logged as update_rate: that of soft gates is no rate."""
NOT_CURVES = (
    "kind", "step", "seconds", "took", "sequences", "of", "update_rate", "update_rate_by_kind",
)  # fmt: skip


class Curve(dict[str, Any]):
    """A named curve, as it is put into the page.

    ``chart`` says what it is drawn into, ``split`` whether it was logged in training or validation;
    ``group`` and ``part`` which of several it is in there: a layer, or a layer and a kind of token.
    """

    def __init__(
        self, chart: str, split: str, points: Points, part: str = "", group: str = ""
    ) -> None:
        super().__init__(chart=chart, split=split, group=group, part=part, points=points)

    def thinned(self, most: int) -> "Curve":
        """The same of at most ``most`` points."""
        steps, values = self["points"]
        if len(steps) <= most:
            shown, means = (steps, values), None
        else:
            shown, means = thin(steps, values, most)
        found = Curve(self["chart"], self["split"], _plain(shown), self["part"], self["group"])
        found["logged"] = len(steps)
        if means is not None:
            found["means"] = _plain(means)
        return found


def thin(steps: list[float], values: list[float], most: int) -> tuple[Points, Points]:
    """At most ``most`` of the points, peaks among them; and the means of what lies around them."""
    places, heights = np.asarray(steps), np.asarray(values, float)
    kept, means = {0, len(values) - 1}, ([], [])
    for stretch in np.array_split(np.arange(len(values)), most // 2 - 1):
        here = heights[stretch]
        finite = np.isfinite(here)
        if finite.any():
            kept |= {int(stretch[np.where(finite, here, np.inf).argmin()])}
            kept |= {int(stretch[np.where(finite, here, -np.inf).argmax()])}
            means[0].append(round(float(places[stretch].mean()), 1))
            means[1].append(float(here[finite].mean()))
    chosen = sorted(kept)
    return ([steps[i] for i in chosen], [values[i] for i in chosen]), means


def curves(lines: list[Line], soft: bool) -> list[Curve]:
    """All that metrics.jsonl has, of a model whose gates are ``soft`` or not, and how fast training
    was."""
    chart = OPENNESS if soft else RATE
    train = [line for line in lines if line["kind"] == "train"]
    valid = [line for line in lines if line["kind"] == "valid"]
    found = [
        *(_scalars(train, "train")),
        *(_scalars(valid, "valid")),
        *_rates(train, "train", chart),
        *_rates(valid, "valid", chart),
        *_by_kind(valid, chart),
        Curve("updates per second", "train", speed(lines)),
    ]
    return [curve for curve in found if curve["points"][0]]


def with_means(runs: list[list[Curve]]) -> list[list[Curve]]:
    """Where one run has layers to take the mean of, the only layer of another is its mean: runs
    of several depths can then be compared."""
    if not any(curve["part"] == MEAN for own in runs for curve in own):
        return runs
    return [_means_of_one_layer(own) + own for own in runs]


def thin_all(runs: list[list[Curve]]) -> list[list[Curve]]:
    """Curves of several runs, with points enough for each."""
    count = max(1, sum(map(len, runs)))
    most = max(FEWEST_POINTS, min(MOST_POINTS, ALL_POINTS // count))
    return [[curve.thinned(most) for curve in own] for own in runs]


def clock(lines: list[Line]) -> Points:
    """Seconds of training at updates, validations and all, for curves against time."""
    known = [line for line in lines if line["kind"] == "train"]
    stride = max(1, len(known) // MOST_POINTS)
    some = [*known[:-1:stride], *known[-1:]]
    return [line["step"] for line in some], [line["seconds"] for line in some]


def speed(lines: list[Line], paused: bool = True) -> Points:
    """Updates per second between lines of the log, without the evaluations between these.

    Logs of earlier versions do not say how long those took. Of these, only lines without one
    between them count; where there are none, and unless ``paused`` is False, all do, pauses
    included.
    """
    with_pauses: list[tuple[float, float]] = []
    without: list[tuple[float, float]] = []
    before, pause = None, 0.0
    for line in lines:
        if line["kind"] != "train":
            pause += line.get("took", math.nan)
            continue
        known = not math.isnan(pause)
        if before is not None:
            seconds = line["seconds"] - before["seconds"] - (pause if known else 0.0)
            if seconds > 0:
                pace = line["step"], (line["step"] - before["step"]) / seconds
                with_pauses.append(pace)
                without += [pace] if known else []
        before, pause = line, 0.0
    found = without or (with_pauses if paused else [])
    return [step for step, _ in found], [pace for _, pace in found]


def finite(value: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if math.isfinite(value) else None


# ---------------------------------------------------------------------------- parts


def _scalars(lines: list[Line], split: str) -> Iterable[Curve]:
    """Single numbers: loss, metric, learning rate, ..."""
    known = dict.fromkeys(
        name for line in lines for name, value in line.items()
        if name not in NOT_CURVES and isinstance(value, int | float)
    )  # fmt: skip
    for name in known:
        yield Curve(name, split, _collect(lines, lambda line, name=name: line.get(name)))


def _rates(lines: list[Line], split: str, chart: str) -> Iterable[Curve]:
    """Means of gates: the mean over layers, and of each layer."""
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
    """Means of gates at each kind of token, of each layer."""
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
    found = [(line["step"], each) for line in lines if (each := value(line)) is not None]
    return [step for step, _ in found], [each for _, each in found]


def _mean(values: list[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


def _at(values: list[Any] | None, index: int) -> Any:
    return values[index] if values and index < len(values) else None


def _plain(points: Points) -> Any:
    return [list(points[0]), [finite(value) for value in points[1]]]
