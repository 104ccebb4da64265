"""The table of docs/language_models.md."""

import statistics
from pathlib import Path
from typing import Any

from surnn_recipes import RECIPES

from .records import read_records
from .tables import format_memory, format_metric, head, row_of

ROWS = ("enwik8-hybrid", "enwik8-transformer", "enwik8-sugru-input", "enwik8-sugru", "enwik8-gru")


def table(results: Path) -> list[str]:
    """Models of 44M parameters on enwik8."""
    records = read_records(results / "rows")
    lines = head("recipe", "bits per byte, test", "seeds", "thousand bytes/s", "million bytes read",
                 "update rate", "memory")  # fmt: skip
    for name in ROWS:
        record = records[name]
        config = RECIPES[name]()
        window = config.train.batch * config.task.steps  # bytes of an optimizer step
        read = window * statistics.fmean(record["steps"]) / 1e6
        lines.append(row_of(
            f"`{name}`", format_metric(record["metric"], statistics.fmean(record["test"])),
            str(len(record["seeds"])),
            f"{window * statistics.fmean(record['steps_per_second']) / 1e3:,.0f}", f"{read:.0f}",
            _rates(record, config.model.ungated_layers), format_memory(record["peak_memory"]),
        ))  # fmt: skip
    return lines


def _rates(record: dict[str, Any], ungated: int) -> str:
    """The mean update rate, and that of the layers with gates."""
    if record["update_rate"] is None:
        return ""
    gated = [layer["rate"] for layer in record["update_rate_by_layer"][ungated:]]
    return f"{record['update_rate']:.0%} ({statistics.fmean(gated):.0%} where gated)"
