"""The benchmark tables of RESULTS.md: run time of a training step, latency of the C engine."""

import json
from pathlib import Path

from surnn.bench.engine import total

from .tables import head, row_of

PAPER_LATENCY = {"reset": 0.40, "update": 0.082, "candidate": 0.087, "state": 0.24, "total": 0.19}
"""Time relative to a dense GRU at 83 % sparsity, from the paper's appendix on latency."""
CLOSED = "engine, 83% closed"


def run_time(folder: Path) -> list[str]:
    """Run time of a training step against the sequence's length, as in the paper's figure."""
    result = json.loads((folder / "result.json").read_text())
    records = [r for r in result["records"] if r["group"] == "length" and not r["error"]]
    about, shape = result["environment"], records[0]
    names = list(dict.fromkeys((r["contestant"], r["mode"]) for r in records))
    milliseconds = {(r["T"], r["contestant"], r["mode"]): r["fwd_bwd_ms"] for r in records}
    steps = sorted({r["T"] for r in records})
    turns = [len(r["fwd_bwd_turns_ms"]) for r in records]
    lines = [
        "## Run time of a training step",
        "",
        f"One layer of {shape['H']} units, {shape['B']} sequences, {shape['dtype']}, "
        f"{about['device']}; milliseconds forward and backward, medians of {min(turns)} to "
        f"{max(turns)}; p is the update rate. `4x64` is four heads of 64 units: its recurrence is "
        "block-diagonal, with a quarter of the GRU's recurrent weights. "
        f"`{about['command']}`, complete in "
        f"`results/{folder.name}/`.",
        "",
        *head("time steps", *map(str, steps)),
    ]
    for name, mode in names:
        times = [milliseconds.get((length, name, mode)) for length in steps]
        cells = ("not run" if time is None else f"{time:.3g}" for time in times)
        lines.append(row_of(f"{name}, {mode}", *cells))
    return lines


def latency(folder: Path) -> list[str]:
    """Time of each part of a time step of the C engine, dense and gated."""
    result = json.loads((folder / "result.json").read_text())
    names = ("part", "dense", "83 % closed", "of dense", "reset before: dense", "83 % closed",
             "of dense", "the paper's")  # fmt: skip
    lines = [
        "## Latency in C",
        "",
        f"A sequence of {result['steps']} time steps through two layers of 256 units, float32, one "
        f"thread of {result['environment']['processor']}: microseconds of each part, dense and "
        "with 83 % of units closed, in groups of 16. Weights are random. If the reset "
        "comes before the recurrent product, as it seems to do in the paper, any open unit needs "
        "the whole reset. `surnn bench engine`, complete "
        f"in `results/{folder.name}/`.",
        "",
        *head(*names),
    ]
    for part, paper in PAPER_LATENCY.items():
        cells = []
        for form in ("parts", "parts_reset_before"):
            dense, closed = (
                total(times) if part == "total" else 1e6 * times[part]
                for times in (result[form][name] for name in ("engine, dense", CLOSED))
            )
            cells += [f"{dense:,.0f}", f"{closed:,.0f}", f"{closed / dense:.2f}"]
        lines.append(row_of(part, *cells, str(paper)))
    return lines


def engine_ratios(folder: Path) -> dict[str, str]:
    """Time of a sequence with 83 % of units closed, as a share of a dense one's."""
    result = json.loads((folder / "result.json").read_text())
    forms = {"engine-ratio": "parts", "engine-ratio-reset-before": "parts_reset_before"}
    return {
        name: f"{total(result[form][CLOSED]) / total(result[form]['engine, dense']):.2f}"
        for name, form in forms.items()
    }
