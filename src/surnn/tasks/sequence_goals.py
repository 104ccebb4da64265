"""Prediction goals for a user's sequences, inferred from their targets."""

from typing import Literal

import numpy as np

from surnn.data.series import Series
from surnn.data.series.base import as_texts

Goal = Literal["auto", "classify", "classify_steps", "regress", "regress_steps", "forecast"]
IGNORED = -100
"""Class of time steps without a label."""
MOST_CLASSES = 50
"""Whole numbers with more different values than this are numbers, not classes."""


def find_goal(series: Series) -> Goal:
    """The goal that the targets suggest; without targets, a forecast."""
    if series.target is None:
        return "forecast"
    per_step = "_steps" if series.per_step else ""
    return f"classify{per_step}" if has_classes(series.target) else f"regress{per_step}"  # type: ignore[return-value]


def has_classes(target: np.ndarray) -> bool:
    """Whether targets are classes: texts, or few different whole numbers."""
    if target.dtype.kind != "f":
        return True
    if target.shape[1] > 1:
        return False
    known = target[~np.isnan(target)]
    return bool((known == np.rint(known)).all()) and len(np.unique(known)) <= MOST_CLASSES


def class_texts(target: np.ndarray) -> np.ndarray:
    """Targets [R, 1] as texts [R]: whole numbers without a point, missing ones (NaN) empty."""
    texts = as_texts(target[:, 0])
    return np.where(np.char.lower(texts) == "nan", "", texts)


def class_names(texts: np.ndarray) -> tuple[str, ...]:
    """All classes in order: numbers by value, then texts."""
    names = [name for name in np.unique(texts).tolist() if name]
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(names)


def class_numbers(texts: np.ndarray, classes: tuple[str, ...]) -> np.ndarray:
    """Texts as numbers of ``classes``; a missing one is IGNORED, an unknown one an error."""
    names, inverse = np.unique(texts, return_inverse=True)
    known = {name: number for number, name in enumerate(classes)} | {"": IGNORED}
    if unknown := [name for name in names.tolist() if name not in known]:
        raise ValueError(
            f"the data have the class {unknown[0]!r}, and the task has {', '.join(classes)}; "
            "correct the label, or name all classes with --task.classes"
        )
    return np.array([known[name] for name in names.tolist()], np.int64)[inverse.reshape(-1)]


def check_goal(goal: Goal, series: Series) -> None:
    """Raise ValueError if the data have no targets for the goal."""
    if goal == "forecast":
        return
    if series.target is None:
        raise ValueError(
            f"task.goal is {goal}, and the data have no target: name its column with "
            "--task.target, sort files into a folder for each class, or use --task.goal forecast"
        )
    if goal.endswith("_steps") and not series.per_step:
        raise ValueError(f"task.goal is {goal}, and each sequence has one target, not each step")
    if not goal.endswith("_steps") and series.per_step:
        one = " There is one sequence only: name the column that separates them with --task.id"
        raise ValueError(
            f"task.goal is {goal}, which needs one target for each sequence, and the target "
            "changes within a sequence." + (one if len(series.lengths) == 1 else "")
        )
