"""Tables of the results, on the terminal and as text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from .cases import GROUPS, SHORT
from .results import Record, baseline, ratio

WIDTH = 150
CAPTION = (
    "medians, ± inter-quartile range; vs: how many times faster, or smaller, than the rival in the "
    "same mode (eager if it has no other)"
)


def console() -> Console:
    """The terminal; without one, a console wide enough for the tables."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=WIDTH)


def headline(name: str, seconds: float, records: Sequence[Record]) -> Text:
    """One line about a finished case."""
    failed = sum(record.error is not None for record in records)
    line = f"{name}: {len(records) - failed} of {len(records)} measured in {seconds:.1f} s"
    return Text(line, style="yellow" if failed else "")


def show(result: dict[str, Any], screen: Console, file: Path) -> None:
    """Print all tables, and write them to a text file."""
    shown = Group(*_parts(result))
    screen.print(shown)
    with file.open("w", encoding="utf-8") as text:
        Console(file=text, width=WIDTH).print(shown)


def _parts(result: dict[str, Any]) -> list[Any]:
    about = result["environment"]
    versions = ", ".join(f"{k} {about[k]}" for k in ("torch", "triton", "cudnn") if about[k])
    parts: list[Any] = [Text(f"{about['device']}; {versions}; {about['command']}")]
    for group, title in GROUPS.items():
        records = [r for r in result["records"] if r["group"] == group]
        if records:
            parts += [_table(title, records), *_errors(records)]
        parts += [Text(fit_text(f)) for f in result["fits"] if group == "long"]
    return [*parts, Text(CAPTION)]


def fit_text(fit: dict[str, Any]) -> str:
    """The fit of time against events, as text."""
    return (
        f"{fit['case']}, {fit['mode']}: {fit['a']:.2f} ms + {1e3 * fit['b']:.2f} µs per event of "
        f"the busiest head, R² = {fit['r2']:.4f}"
    )


def _table(title: str, records: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", show_lines=False)
    for name in ("T, B, H", "contestant", "mode", "dtype"):
        table.add_column(name, no_wrap=name != "contestant")
    numbers = "update rate|events|forward ms|fwd+bwd ms|vs forward|vs fwd+bwd|peak GB|vs peak"
    for name in numbers.split("|"):
        table.add_column(name.replace(" ", "\n"), justify="right", no_wrap=True)
    case = None
    for record in records:
        shape = f"{record['T']}, {record['B']}, {record['H']}"
        if case not in (None, record["case"]):
            table.add_section()
        first = record["case"] != case
        case = record["case"]
        table.add_row(shape if first else "", *_cells(record, records))
    return table


def _cells(record: dict[str, Any], records: list[dict[str, Any]]) -> list[str]:
    rival = baseline(record, records)
    name = escape(record["contestant"])
    if record["backend"] == "events" and "events" not in name:
        name += " (events)"  # auto chose plain torch: there is no kernel for it
    rate = record["measured_rate"]
    return [
        name,
        record["mode"],
        SHORT[record["dtype"]],
        "" if rate is None else f"{rate:.3g}",
        "" if record["events"] is None else str(record["events"]),
        _time(record, "fwd"),
        _time(record, "fwd_bwd"),
        _times(ratio(record, rival, "fwd_ms")),
        _times(ratio(record, rival)),
        _number(record["peak_gb"]),
        _times(ratio(record, rival, "peak_gb")),
    ]


def _time(record: dict[str, Any], which: str) -> str:
    median, spread = record[f"{which}_ms"], record[f"{which}_iqr_ms"]
    if median is None:
        skipped = record["error"] is not None and record["error"].startswith("not run")
        return "not run" if skipped else "failed"
    return _number(median) + ("" if spread is None else f" ±{_number(spread)}")


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _times(value: float | None) -> str:
    return "" if value is None else f"{_number(value)}x"


def _errors(records: list[dict[str, Any]]) -> list[Text]:
    return [
        Text(f"{r['case']}, {r['contestant']} ({r['mode']}): {r['error']}", style="yellow")
        for r in records
        if r["error"]
    ]
