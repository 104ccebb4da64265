"""Fills the numbers into results/claims.md."""

import re
import statistics
from pathlib import Path

from surnn.runs.folder import RunFolder
from surnn_recipes import RECIPES

from . import ResultsError
from .records import Record
from .tables import IN_PERCENT, format_metric, format_steps, overrides, spread

SOURCES = ("paper", "literature", "setting", "computed")
"""Where a number comes from that no record has: the paper, other publications, an option of the
recipe, or arithmetic."""
FORMS = ("each", "spread")
"""How several seeds are shown, if not as their mean."""
_QUOTED = re.compile(r"\{([a-z]+)=([^{}]+)\}")
_PLACE = re.compile(r"\{([a-z0-9.-]+)(?::([A-Za-z0-9._, ]+))?\}")
_TYPED = re.compile(r"\d+\.\d+|\d+ ?%")


def fill_in(text: str, records: dict[str, Record], rows: Path | None = None, **others: str) -> str:
    """A text with its placeholders replaced by numbers from records.

    - ``{row}``: the test metric; ``{row:each}``: that of each seed; ``{row:spread}``: mean and
      deviation
    - ``{row:task.body 4096}``: the metric with that option of the task; ``{row:each task.body
      4096}``; ``{row:task.length 9, task.events 2}``
    - ``{row:typed beat F1}``: another number of the same test
    - ``{row:valid 1000}``: the validation metric after so many optimizer steps
    - ``{row:rate}``: the update rate; ``{row:KIND}``: on one kind of token; ``{row:layer 2 KIND}``:
      in one layer
    - ``{row:steps}``: optimizer steps; ``{row:speed}``: per second; ``{row:minutes}``: of training
    - ``{row:training}``: seeds, and the share of the recipe's steps that were run
    - ``{row:paper}``: the paper's number for the row
    - ``{paper=86.37 %}``: a number that no record has, with its source; see ``SOURCES``

    Args:
        text: the text.
        records: the records of all rows.
        rows: the folder of all rows, for ``valid``.
        others: numbers by name, for placeholders that are not rows.
    """

    def number(place: re.Match[str]) -> str:
        row, what = place.group(1), place.group(2)
        if row in others and what is None:
            return others[row]
        if row not in records:
            raise ResultsError(f"results/claims.md mentions {row}, which has not been run")
        value = _number(records[row], row, what or "", rows)
        if value is None:
            raise ResultsError(
                f"results/claims.md asks for {what!r} of {row}, whose record has no such number"
            )
        return value

    return _PLACE.sub(number, _QUOTED.sub(_quoted, text))


def typed_numbers(text: str) -> list[str]:
    """Percentages and decimal numbers of a text that are not in placeholders."""
    return _TYPED.findall(_PLACE.sub("", _QUOTED.sub("", text)))


def _quoted(place: re.Match[str]) -> str:
    if place.group(1) not in SOURCES:
        raise ResultsError(
            f"results/claims.md has a number from {place.group(1)!r}; known sources are "
            + ", ".join(SOURCES)
        )
    return place.group(2)


def _number(record: Record, row: str, what: str, rows: Path | None) -> str | None:
    """A number of a row; None if its record does not have it."""
    metric = record["metric"]
    form, _, option = what.partition(" ")
    if form not in FORMS:
        form, option = "", what
    tests = {overrides(test): test["test"] for test in record["other_tests"]}
    values = {"": record["test"], **tests}.get(option)
    if values is not None:
        if not values:
            raise ResultsError(f"results/claims.md mentions {row}, which has not been tested")
        if form == "spread":
            return _mean_and_deviation(metric, row, values)
        shown = values if form == "each" else [statistics.fmean(values)]
        return ", ".join(format_metric(metric, value) for value in shown) + _unit(metric)
    if what in record.get("parts", {}):
        return format_metric(metric, record["parts"][what]) + _unit(metric)
    if what.startswith("valid ") and rows is not None:
        return _validation(rows / row, metric, int(what.removeprefix("valid ")))
    if what.startswith("layer "):
        return _percent(_rate_of_layer(record, what))
    return _training(record, row, what)


def _training(record: Record, row: str, what: str) -> str | None:
    """A number about training, or an update rate."""
    if what == "speed" and None not in record["steps_per_second"]:
        return f"{statistics.fmean(record['steps_per_second']):.3g}"
    if what == "steps":
        return format_steps(record)
    if what == "minutes":
        return f"{statistics.fmean(record['seconds']) / 60:.1f}"
    if what == "training":
        count, share = (
            len(record["seeds"]),
            statistics.fmean(record["steps"]) / record["full_steps"],
        )
        return f"{count} seed{'s' * (count > 1)}, {100 * share:.0f} %"
    if what == "paper":
        paper = RECIPES[row].paper
        return (
            None
            if paper is None
            else format_metric(record["metric"], paper) + _unit(record["metric"])
        )
    return _percent({"rate": record["update_rate"], **record["update_rate_by_kind"]}.get(what))


def _rate_of_layer(record: Record, what: str) -> float | None:
    """The update rate of ``layer 2``, or of ``layer 2 KIND`` on one kind of token."""
    _, number, *kind = what.split(" ", 2)
    layers = record["update_rate_by_layer"]
    if not 1 <= int(number) <= len(layers):
        return None
    return layers[int(number) - 1].get(kind[0] if kind else "rate")


def _validation(row: Path, metric: str, step: int) -> str | None:
    """The validation metric after a number of optimizer steps, mean over seeds."""
    values = [
        line[metric]
        for seed in sorted(row.glob("seed*"))
        for line in RunFolder.open(seed).metrics()
        if (line["kind"], line["step"]) == ("valid", step)
    ]
    return format_metric(metric, statistics.fmean(values)) + _unit(metric) if values else None


def _mean_and_deviation(metric: str, row: str, values: list[float]) -> str:
    """A mean and a standard deviation."""
    if len(values) == 1:
        raise ResultsError(f"results/claims.md asks for the spread of {row}, which has one seed")
    return spread(metric, values).partition(" (")[0] + _unit(metric)


def _unit(metric: str) -> str:
    return " %" if metric in IN_PERCENT else ""


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"
