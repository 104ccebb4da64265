"""CPU training step: ``events`` against ``reference`` and ``nn.GRU`` of the same width.

    python benchmarks/cpu_events.py                  # the table in the README
    python benchmarks/cpu_events.py --out result.json

One training step is forward, a loss on all outputs, backward into weights, gates *and* inputs;
the input projection is part of it for everyone. All contestants take turns in one process, so
that a busy machine slows them alike; times are medians of many turns. Peak memory is measured in
a fresh process each, as growth of the resident set over the process's size before the step (Linux).
"""

import argparse
import functools
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

import surnn
from surnn import Rhythm, Surrogate

STEPS, BATCH, HIDDEN, HEADS = 1024, 32, 256, 16
RATES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02)
SURROGATES = {"sigmoid": Surrogate("sigmoid", 4.0), "triangle": Surrogate("triangle", 2.0)}


def build(name: str, rate: float, features: int) -> torch.nn.Module:
    torch.manual_seed(0)
    if name == "nn.GRU":
        return torch.nn.GRU(features, HIDDEN)
    backend, _, kind = name.partition("/")
    frozen = kind == "frozen"
    surrogate = SURROGATES.get(kind, SURROGATES["sigmoid"])
    gate = Rhythm(rate=rate, horizon=STEPS, surrogate=surrogate, frozen=frozen)
    return surnn.SuGRU(features, HIDDEN, heads=HEADS, gate=gate, backend=backend)


CONTESTANTS = ("nn.GRU", "reference", "events/sigmoid", "events/triangle", "events/frozen")


def training_step(layer: torch.nn.Module, x: torch.Tensor, weight: torch.Tensor) -> None:
    layer.zero_grad()
    x.grad = None
    y, _ = layer(x)
    (y * weight).sum().backward()


def problem(features: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    x = torch.randn(STEPS, BATCH, features, requires_grad=True)
    return x, torch.randn(STEPS, BATCH, HIDDEN)


def seconds(rate: float, features: int, turns: int) -> dict[str, float]:
    x, weight = problem(features)
    layers = {name: build(name, rate, features) for name in CONTESTANTS}
    times: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for turn in range(turns + 1):
        for name, layer in layers.items():
            begin = time.perf_counter()
            training_step(layer, x, weight)
            if turn:  # the first is a warm-up
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in times.items()}


@functools.cache
def peak_megabytes(name: str, rate: float, features: int) -> float:
    command = [sys.executable, __file__, "--measure-memory", name, str(rate), str(features)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def measure_memory(name: str, rate: float, features: int) -> float:
    x, weight = problem(features)
    layer = build(name, rate, features)
    tiny = torch.zeros(2, 1, features)
    layer(tiny)[0].sum().backward()  # libraries loaded, threads started
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = peak_resident()
    training_step(layer, x, weight)
    return peak_resident() - before


def peak_resident() -> float:
    """Peak resident memory in MB (Linux; a child's ru_maxrss would begin at its parent's size)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def run(features: int, turns: int) -> list[dict]:
    rows = []
    for rate in track(RATES, description=f"input width {features}"):
        times = seconds(rate, features, turns)
        # Neither torch's layer nor the reference depends on the rate: measured once.
        memory = {
            name: peak_megabytes(name, rate if "/" in name else RATES[0], features)
            for name in CONTESTANTS
        }
        rows.append({"rate": rate, "seconds": times, "peak_megabytes": memory})
    return rows


def show(console: Console, features: int, rows: list[dict]) -> None:
    title = f"training step, T={STEPS}, B={BATCH}, H={HIDDEN} as {HEADS} heads, input {features}"
    table = Table(title=title)
    table.add_column("update rate", justify="right")
    for name in CONTESTANTS:
        table.add_column(f"{name}\nms (MB)", justify="right")
    for versus in ("reference", "nn.GRU"):
        for kind in ("sigmoid", "triangle"):
            table.add_column(f"{kind}\nvs {versus}", justify="right")
    for row in rows:
        times, memory = row["seconds"], row["peak_megabytes"]
        cells = [f"{1e3 * times[n]:.0f} ({memory[n]:.0f})" for n in CONTESTANTS]
        for versus in ("reference", "nn.GRU"):
            for kind in ("sigmoid", "triangle"):
                cells.append(f"{times[versus] / times['events/' + kind]:.1f}x")
        table.add_row(f"{row['rate']:g}", *cells)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--features", type=int, nargs="+", default=[32, 256], help="input widths")
    parser.add_argument("--turns", type=int, default=7, help="timed turns of each contestant")
    parser.add_argument("--out", type=Path, help="write the raw numbers here, as JSON")
    parser.add_argument("--measure-memory", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure_memory:
        name, rate, features = arguments.measure_memory
        print(measure_memory(name, float(rate), int(features)))
        return
    console = Console(width=160)
    found = {}
    for features in arguments.features:
        found[features] = run(features, arguments.turns)
        show(console, features, found[features])
    if arguments.out:
        record = {
            "command": " ".join(["python", "benchmarks/cpu_events.py", *sys.argv[1:]]),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "processor": platform.processor() or platform.machine(),
            "shape": {"T": STEPS, "B": BATCH, "H": HIDDEN, "heads": HEADS},
            "results_by_input_width": found,
        }
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(record, indent=1))
        console.print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
