"""Whether values in a run's files have the types that the library wrote: they may be damaged."""

import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

LARGEST_STEP = 1 << 53
NUMBERS = {
    "loss", "seconds", "took", "gradient_norm", "learning_rate", "sequences", "of"
}  # fmt: skip
"""Entries of a line of metrics.jsonl that are numbers, where they occur."""
PLAIN = {
    int: int, float: int | float, bool: bool, str: str, dict: dict, list: list,
    None: types.NoneType, types.NoneType: types.NoneType,
}  # fmt: skip
"""What values from files are, by annotated type. A bool is no number."""
STATE = {
    "evaluated_step": int, "logged_step": int | None, "evaluations_since_best": int,
    "seconds": float, "startup_seconds": float, "evaluation_seconds": float | None,
    "loss_sum": float, "optimizer": dict, "random_states": list, "stream_states": list,
}  # fmt: skip
"""Entries of a checkpoint's state, where they occur."""


def fits(value: Any, kind: Any) -> bool:
    """Whether a value from a file has the annotated type; True for types that no file has."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in arguments)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in arguments)
    if origin is tuple:
        return isinstance(value, tuple | list) and _fit(value, arguments)
    is_bool = isinstance(value, bool)
    return kind not in PLAIN or (isinstance(value, PLAIN[kind]) and is_bool == (kind is bool))


def _fit(values: Sequence[Any], kinds: tuple[Any, ...]) -> bool:
    """Whether the entries of a tuple have the annotated types."""
    if kinds[1:] == (Ellipsis,):
        kinds = kinds[:1] * len(values)
    return len(values) == len(kinds) and all(map(fits, values, kinds))


def is_step(value: Any) -> bool:
    """Whether a value is a number of optimizer steps."""
    return fits(value, int) and 0 <= value < LARGEST_STEP


def is_metric(line: Mapping[str, Any]) -> bool:
    """Whether a line of metrics.jsonl has what every such line has, with the right types."""
    if not is_step(line.get("step")) or not isinstance(line.get("kind"), str):
        return False
    rates, kinds = line.get("update_rate", []), line.get("update_rate_by_kind")
    if not fits(rates, tuple[float, ...]):
        return False
    if kinds is not None and not (
        isinstance(kinds, list)
        and len(kinds) == len(rates)
        and all(
            isinstance(each, dict) and fits([*each.values()], tuple[float, ...]) for each in kinds
        )
    ):
        return False
    return all(fits(line[name], float) for name in NUMBERS & line.keys())


def wrong_state(state: Any) -> str | None:
    """What is wrong with the state of a checkpoint; None if nothing is."""
    if not isinstance(state, dict) or not is_step(state.get("step")):
        return "state.pt holds no state of a run"
    for name, kind in STATE.items():
        if name in state and not fits(state[name], kind):
            return f"state.pt has {type(state[name]).__name__} as {name}"
    return None
