"""``x[...]`` on a sequence: the last time step, cuts of padding, some features."""

from dataclasses import replace
from typing import Any

from .lowering import Lowering
from .signals import NotExportable, Signal, Steps

ALL = slice(None)


def select(lowering: Lowering, x: Signal, index: Any) -> Signal:
    """The result of ``x[index]``."""
    parts = index if isinstance(index, tuple) else (index,)
    for axis, part in zip(x.layout, _expanded(parts, len(x.layout)), strict=True):
        if part == ALL:
            continue
        if axis == "T":
            x = _in_time(x, part)
        elif axis == "F":
            x = _features(lowering, x, part)
        else:
            raise NotExportable("it selects some sequences of the batch; a stream is one sequence")
    return x


def _expanded(parts: tuple[Any, ...], dimensions: int) -> list[Any]:
    """One index for each dimension."""
    if any(part is None for part in parts):
        raise NotExportable("it adds a dimension by None; use unsqueeze on a single feature")
    rest = [ALL] * (dimensions - len([part for part in parts if part is not Ellipsis]))
    where = [i for i, part in enumerate(parts) if part is Ellipsis]
    place = where[0] if where else len(parts)
    expanded = [*parts[:place], *rest, *parts[place + 1 :]]
    if len(expanded) != dimensions:
        raise NotExportable(f"it has {len(expanded)} indices for {dimensions} dimensions")
    return expanded


def select_last(x: Signal) -> Signal:
    """The last time step: in a stream, every time step is the last one so far."""
    x.expect_on_time()
    return x.with_layout(x.layout.replace("T", ""))


def _in_time(x: Signal, part: Any) -> Signal:
    if part == -1:
        return select_last(x)
    if not isinstance(part, slice):
        raise NotExportable(f"it reads time step {part}; a stream can read the last one, -1")
    start, stop = part.start or 0, part.stop
    trail = x.trail
    if isinstance(stop, int) and stop < 0:
        trail += stop
    elif isinstance(stop, Steps):
        trail = stop.extra - x.lead
    elif stop is not None:
        raise NotExportable(f"it cuts the sequence at a fixed length, {stop}")
    if part.step not in (None, 1) or start != 0 or trail < 0:
        raise NotExportable(
            "it drops time steps of the sequence; a stream computes all of them. Only items that "
            "padding added at the end can be cut off"
        )
    return replace(x, trail=min(trail, x.trail))


def _features(lowering: Lowering, x: Signal, part: Any) -> Signal:
    width = x.width.known()
    x.expect_no_lead()
    if isinstance(part, int):
        first = part % width
        single = lowering.part(x, first, first + 1)
        return single.with_layout(single.layout.replace("F", ""))
    if not isinstance(part, slice) or part.step not in (None, 1):
        raise NotExportable("features can be selected by a number or a range")
    first, end, _ = part.indices(width)
    return lowering.part(x, first, end)
