"""Tables of numbers in the README and in docs/, written from records.

A document marks the place of a table::

    <!-- results: cpu -->
    <!-- /results -->

``write`` fills it in, and ``check`` fails if it is not up to date.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import ResultsError, keywords, language, parity, recurrent_ppo, state_tracking
from .headlines import headline_table
from .records import read_records
from .tables import head, row_of, spread

_BLOCK = re.compile(r"(<!-- results: (\S+) -->\n).*?(<!-- /results -->)", flags=re.DOTALL)


def fill_blocks(text: str, results: Path) -> str:
    """A document with its tables made from the records in the folder ``results``."""

    def fill(block: re.Match[str]) -> str:
        name = block.group(2)
        if name not in BLOCKS:
            raise ResultsError(f"there is no table {name!r}; known are {', '.join(sorted(BLOCKS))}")
        return block.group(1) + "\n".join(BLOCKS[name](results)) + "\n" + block.group(3)

    return _BLOCK.sub(fill, text)


def documents(root: Path) -> list[Path]:
    """The documents that may contain tables."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def numbers(results: Path) -> list[str]:
    """The README's numbers."""
    records = read_records(results / "rows")
    s3, s3_gru = records[state_tracking.S3], records[f"{state_tracking.S3}-gru"]
    ours, heads, gru = (records[f"psmnist-stepwise{name}"] for name in ("", "-heads", "-gru"))
    cpu = [row for row in _load(results, "cpu_bench")["tables"]["cells"] if row["layer"] == "SuGRU"]
    train = [row["train"] for row in cpu]
    steps = _steps(_load(results, "engine_bench"))
    closed, dense = steps["engine, 83% closed, float32"], steps["engine, dense, float32"]
    rival = steps["onnxruntime GRU, streamed"]
    return [
        *head("measured", "surnn", "for comparison", "command"),
        row_of(
            "accuracy on state tracking, S3 [%]", _scored(s3), f"GRU: {_scored(s3_gru)}",
            f"`surnn reproduce {state_tracking.S3}`",
        ),
        row_of(
            "time of a training step on one CPU core, `SuGRU(I, H)` with default options "
            "(a tenth of updates)",
            f"{min(train):.2f} to {max(train):.2f} of `nn.GRU`'s", "1 (`nn.GRU`, as many units)",
            "`python benchmarks/cpu.py`",
        ),
        row_of(
            "time of a step in C, 2 x 256 units, 83 % of them closed, in groups of 16",
            f"{closed:.1f} µs", f"dense {dense:.0f} µs, onnxruntime {rival:.0f} µs",
            "`surnn bench engine`",
        ),
        row_of(
            "accuracy on psMNIST, pixel by pixel [%]",
            f"{_scored(ours)}, {100 * ours['update_rate']:.0f} % of updates; "
            f"16 heads: {_scored(heads)}",
            f"GRU: {_scored(gru)}", "`surnn reproduce psmnist-stepwise`, `psmnist-stepwise-heads`",
        ),
    ]  # fmt: skip


def _scored(record: dict[str, Any]) -> str:
    """The test accuracy, and the size of the model."""
    return f"{spread('accuracy', record['test'])}, {record['parameters']:,} parameters"


def cpu(results: Path) -> list[str]:
    """Time of all layers on a CPU, as a share of torch's."""
    table = _load(results, "cpu_bench")["tables"]["cells"]
    shapes = list(dict.fromkeys(tuple(row["shape"]) for row in table))
    lines = head("evaluation / training", *(", ".join(map(str, shape)) for shape in shapes))
    for layer in dict.fromkeys(row["layer"] for row in table):
        cells = {tuple(r["shape"]): r for r in table if r["layer"] == layer}
        ratios = (f"{cells[s]['eval']:.2f} / {cells[s]['train']:.2f}" for s in shapes)
        lines.append(row_of(f"`{layer}`", *ratios))
    return lines


def cpu_rates(results: Path) -> list[str]:
    """Training time on a CPU by update rate, as a share of nn.GRU's."""
    tables = _load(results, "cpu_bench")["tables"]
    shapes = list(dict.fromkeys(tuple(row["shape"]) for row in tables["rates"]))
    lines = head("heads, rate", *(", ".join(map(str, shape)) for shape in shapes))
    for name, heads in (("rates", 1), ("rates, 16 heads", 16)):
        for rate in dict.fromkeys(row["rate"] for row in tables[name]):
            cells = {tuple(r["shape"]): r for r in tables[name] if r["rate"] == rate}
            ratios = (f"{cells[shape]['train']:.2f}" for shape in shapes)
            lines.append(row_of(f"{heads}, {rate:g}", *ratios))
    return lines


def gpu(results: Path) -> list[str]:
    """Time of a training step on a GPU, next to cuDNN's in the same dtype."""
    lines = head("layer", "T, B", "dtype", "cuDNN", "p=1", "p=0.17", "cuDNN, graph", "p=1, graph",
                 "p=0.17, graph")  # fmt: skip
    cases: dict[str, list[dict[str, Any]]] = {}
    for record in _load(results, "gpu_bench")["records"]:
        if record["group"] in ("layer", "dense") and not record["error"]:
            cases.setdefault(record["case"], []).append(record)
    for records in cases.values():
        theirs = {r["mode"]: r for r in records if r["kind"] == "torch"}
        dtype = theirs["eager"]["dtype"]
        ours = {
            (r["mode"], r["rate"]): r
            for r in records
            if r["kind"] == "ours" and r["dtype"] == dtype and r["backend"] != "onepass"
        }
        one = ours["eager", 1.0]
        cells = [f"{one['cell'].upper()}, {one['heads']} x {one['H'] // one['heads']}",
                 f"{one['T']}, {one['B']}", dtype.replace("bfloat16", "bf16")]  # fmt: skip
        for mode in ("eager", "graph"):
            base = theirs[mode]["fwd_bwd_ms"]
            cells.append(f"{base:.3g} ms")
            times = (ours[mode, rate]["fwd_bwd_ms"] for rate in (1.0, 0.17))
            cells += [f"{time:.3g} ms, {base / time:.1f}x" for time in times]
        lines.append(row_of(*cells))
    return lines


_ENGINE_ROWS = {
    "dense": "engine, dense",
    "83 % of units closed, in groups of 16": "engine, 83% closed",
    "87 %": "engine, 87% closed",
    "83 %, each unit by itself": "engine, 83% closed, single units",
    "87 %, each unit by itself": "engine, 87% closed, single units",
}


def engine(results: Path) -> list[str]:
    """Microseconds of a step of the C engine."""
    bench = _load(results, "engine_bench")
    steps, records = _steps(bench), {r["name"]: r for r in bench["records"]}
    dense = steps["engine, dense, float32"]
    lines = head(
        "2 x 256 GRU, µs a step", "float32", "faster than dense", "worst step",
        "at equal work", "int8", "int8 activations too",
    )  # fmt: skip
    for text, name in _ENGINE_ROWS.items():
        time, record = steps[f"{name}, float32"], records[f"{name}, float32"]
        lines.append(row_of(
            text, f"{time:.1f}", f"{dense / time:.1f}x",
            f"{record['worst_us']:.1f}", f"{record['worst_of_alike']:.1f}x",
            f"{steps[f'{name}, int8']:.1f}", f"{steps[f'{name}, int8 by int8']:.1f}",
        ))  # fmt: skip
    for name in ("onnxruntime GRU, streamed", "torch nn.GRU, streamed"):
        lines.append(
            row_of(name, f"{steps[name]:.1f}", f"{dense / steps[name]:.1f}x", "", "", "", "")
        )
    return lines


def engine_precision(results: Path) -> list[str]:
    """The test metric of trained runs in the engine, with fewer bits."""
    names = {"python": "Python", "float32": "float32", "int8": "int8",
             "int8 by int8": "int8 activations too"}  # fmt: skip
    lines = head("test metric [%]", *names.values())
    for run in _load(results, "engine_precision")["runs"]:
        text = f"{run['task']}, {run['metric']}, {run['layers']} x {run['width']}"
        lines.append(row_of(text, *(f"{100 * run['score'][name]:.2f}" for name in names)))
    return lines


def choice(results: Path) -> list[str]:
    """Test accuracy of the automatic choice, and of five configurations set by hand."""
    sets = json.loads((results / "automatic_choice" / "choice.json").read_text())["sets"]
    hand = list(next(iter(sets.values()))["hand"])
    lines = head("accuracy [%]", "automatic", "its rate", *hand, "best by hand")
    for name, row in sets.items():
        others = [100 * row["hand"][text]["accuracy"] for text in hand]
        own = 100 * row["automatic"]["accuracy"]
        lines.append(row_of(
            name.replace("_", " "), f"{own:.2f}", f"{row['automatic']['update_rate']:.0%}",
            *(f"{value:.2f}" for value in others), f"{max(others) - own:+.2f} points",
        ))  # fmt: skip
    return lines


def own_data(results: Path) -> list[str]:
    """Seconds from a file of one's own to a report and to C files."""
    kinds = {"series.csv": "a CSV of 2,000 labelled series", "series.npz": "the same as npz",
             "wavs": "600 wav files in a folder for each class"}  # fmt: skip
    rows = _load(results, "own_data")["rows"]
    lines = head("seconds", "train", "report", "export --to c", "all three")
    for name, kind in kinds.items():
        seconds = [rows[name][step] for step in ("train", "report", "export")]
        lines.append(row_of(kind, *(f"{s:.0f}" for s in seconds), f"{sum(seconds):.0f}"))
    return lines


def edge(results: Path) -> list[str]:
    """Models on an emulated Cortex-M4: instructions of a frame, memory, flash."""
    found = _load(results, "edge")
    lines = head(
        "suGRU, 40 inputs, 12 classes", "weights", "updates", "instructions a frame",
        "of the dense GRU", "fewer", "RAM a stream", "flash: model", "engine", "answers equal",
    )  # fmt: skip
    for name, forms in found["models"].items():
        for weights in ("float32", "int8"):
            row, dense = forms[f"selective, {weights}"], forms[f"dense, {weights}"]
            some, all_ = row["instructions"]["mean"], dense["instructions"]["mean"]
            lines.append(row_of(
                name, weights, f"{row['updates'] / dense['updates']:.1%}", f"{some:,.0f}",
                f"{all_:,.0f}", f"{all_ / some:.1f}x", f"{row['memory']['stream']:,}",
                f"{row['flash']['model']:,}", f"{row['flash']['engine']:,}",
                f"{row['equal_answers']:.0%} of {row['frames']}",
            ))  # fmt: skip
    return lines


def edge_clocks(results: Path) -> list[str]:
    """Instructions of a time step with clock gates, at different times."""
    lines = head("t from", "median", "most", "ratio")
    for row in _load(results, "edge")["clocks"]:
        numbers = (f"{row[k]:,.0f}" for k in ("clock", "median", "most"))
        lines.append(row_of(*numbers, f"{row['ratio']:.2f}"))
    return lines


def _load(results: Path, folder: str) -> dict[str, Any]:
    return json.loads((results / folder / "result.json").read_text())


def _steps(engine_bench: dict[str, Any]) -> dict[str, float]:
    """Microseconds of a time step of each contestant."""
    return {r["name"]: r["sequence_us"] / engine_bench["steps"] for r in engine_bench["records"]}


BLOCKS: dict[str, Callable[[Path], list[str]]] = {
    "numbers": numbers,
    "headlines": lambda results: headline_table(results / "rows"),
    "cpu": cpu,
    "cpu-rates": cpu_rates,
    "gpu": gpu,
    "engine": engine,
    "engine-precision": engine_precision,
    "choice": choice,
    "own-data": own_data,
    "edge": edge,
    "edge-clocks": edge_clocks,
    "keywords": keywords.accuracy,
    "language": language.table,
    "parity": parity.causes,
    "recurrent-ppo": recurrent_ppo.curves,
    "state-tracking": state_tracking.table,
    "state-tracking-seconds": state_tracking.seconds,
    "state-tracking-stream": state_tracking.stream,
}
