"""The tables of docs/state_tracking.md."""

import json
from pathlib import Path
from typing import Any

from surnn.analysis import timed_curve
from surnn_recipes.state_tracking import RIVALS

from .records import read_records
from .tables import format_metric, format_rate, format_steps, format_times, head, overrides, row_of

S3 = "state-tracking-s3"
TESTS = ("", "task.length 32768", "task.length 131072", "task.length 32768, task.events 64")
SOLVED = 0.999


def table(results: Path) -> list[str]:
    """S3: all models after the same seconds, on several lengths."""
    records, speeds = read_records(results / "rows"), _load(results, "speeds")["records"]
    alone = {each["recipe"]: each["step_seconds"] for each in speeds}
    lines = head("", "parameters", "seeds", "steps", "seconds, computed", "T = 8,192", "32,768",
                 "131,072", "32,768, 64 elements", "updates")  # fmt: skip
    for name in ("", *RIVALS):
        row = f"{S3}-{name}" if name else S3
        about = f"**suGRU** (`{row}`)" if not name else f"{RIVALS[name][2]} (`{row}`)"
        if row not in records:
            lines.append(row_of(about, *["not finished"] + [""] * 8))
            continue
        record = records[row]
        tests = {overrides(test): test["test"] for test in record["other_tests"]}
        tests[""] = record["test"]
        took = f"{alone[row] * record['steps'][0]:.0f}" if name else f"{record['seconds'][0]:.0f}"
        lines.append(row_of(
            about, f"{record['parameters']:,}", str(len(record["seeds"])), format_steps(record),
            took, *(_worst(tests.get(test)) for test in TESTS),
            "all" if name else format_rate(record, kinds=False),
        ))  # fmt: skip
    return lines


def seconds(results: Path) -> list[str]:
    """Seconds of training to a validation accuracy of ``SOLVED``."""
    rows, records = results / "rows", read_records(results / "rows")
    lines = head("", "seconds", "other runs on the GPU")
    for row in (S3, *(f"state-tracking-parity{name}" for name in ("", "-gru", "-s4d"))):
        seed = rows / row / "seed0"  # of S3 the only one that was alone
        others = json.loads((seed / "environment.json").read_text())["other_runs"]
        curve = timed_curve(seed, records[row]["metric"])
        lines.append(row_of(f"`{row}`, seed 0", format_times([curve], SOLVED), str(others)))
    return lines


def stream(results: Path) -> list[str]:
    """Microseconds of a step in C."""
    found = _load(results, "stream")
    answers = found["answers"]
    lines = head(
        "one thread", "parameters", "µs a step, whole sequence", "µs a step, one call each"
    )
    for record in found["records"]:
        lines.append(row_of(
            record["name"], f"{record['parameters']:,}", f"{record['run_us']:.2f}",
            f"{record['step_us']:.1f}",
        ))  # fmt: skip
    return [
        *lines,
        "",
        f"{answers['sequences']} test sequences of {found['length']:,} time steps, "
        f"{answers['answers']} answers: {answers['different_answers']} differ from torch's, "
        f"{format_metric('accuracy', answers['accuracy'])} % are right. The largest difference of "
        f"an output is {answers['largest_difference']:.0e}. {answers['macs_done']:.1%} of the "
        f"multiply-adds are done. {found['processor']}, {found['simd']}.",
    ]


def _worst(values: list[float] | None) -> str:
    """The worst seed."""
    return "not tested" if values is None else format_metric("accuracy", min(values))


def _load(results: Path, name: str) -> dict[str, Any]:
    return json.loads((results / "state_tracking" / f"{name}.json").read_text())
