"""CPU: evaluation and training of surnn's layers against torch's layers of the same size.

    python benchmarks/cpu.py                              # all tables
    python benchmarks/cpu.py --out results/cpu_bench      # also JSON and a figure there
    python benchmarks/cpu.py --only cells --turns 3

A training step is forward, a loss on all outputs, backward into weights, gates *and* inputs, with
the input projection and the gate's gradient. Our layer and torch's take turns in one process, so
that a busy machine slows both; a ratio is that of their median times, smaller is better. Peak
memory is measured in a new process each, as growth of the resident set during a step (Linux).
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

import surnn

SHAPES = (
    (1, 256, 784, 32),
    (64, 128, 200, 16),
    (128, 512, 1000, 8),
    (16, 64, 100, 64),
    (256, 256, 2048, 4),
)
RATES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
THEIRS = {"SuGRU": nn.GRU, "SuLSTM": nn.LSTM, "SuRNN": nn.RNN, "SuSNN": nn.RNN}


@dataclass(frozen=True)
class Case:
    """A layer of ours, to be measured against torch's."""

    shape: tuple[int, int, int, int]
    """I, H, T, B."""
    layer: str = "SuGRU"
    heads: int = 1
    rate: float = 0.1
    gate: str = "Rhythm"
    backend: str = "auto"
    threads: int = 1

    def build(self) -> tuple[nn.Module, nn.Module]:
        """Our layer and torch's."""
        features, hidden, steps, _ = self.shape
        torch.manual_seed(0)
        options = {"horizon": steps} if self.gate == "Rhythm" else {"mode": "hard"}
        gate = getattr(surnn, self.gate)(rate=self.rate, **options)
        ours = getattr(surnn, self.layer)(
            features, hidden, heads=self.heads, gate=gate, backend=self.backend
        )
        if self.gate != "Rhythm":
            ours.calibrate(self.data()[0].detach())
        return ours, THEIRS[self.layer](features, hidden)

    def data(self) -> tuple[torch.Tensor, torch.Tensor]:
        """x, and the weights of the loss."""
        features, hidden, steps, batch = self.shape
        torch.manual_seed(1)
        x = torch.randn(steps, batch, features, requires_grad=True)
        return x, torch.randn(steps, batch, hidden)


def suites() -> dict[str, list[Case]]:
    """All cases, by table."""
    plain = [Case(shape) for shape in SHAPES]
    return {
        "cells": [replace(case, layer=layer) for layer in THEIRS for case in plain],
        "spiking, backend events": [
            replace(case, layer="SuSNN", backend="events") for case in plain
        ],
        "rates": [replace(case, rate=rate) for rate in RATES for case in plain],
        "rates, 16 heads": [replace(case, rate=rate, heads=16) for rate in RATES for case in plain],
        "input gates": [replace(case, gate="InputGate") for case in plain],
    }


def evaluate(layer: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        layer(x)


def train(layer: nn.Module, x: torch.Tensor, weight: torch.Tensor) -> None:
    layer.zero_grad()
    x.grad = None
    (layer(x)[0] * weight).sum().backward()


def take_turns(
    choices: dict[str, Callable[[], nn.Module]], x: torch.Tensor, weight: torch.Tensor, turns: int
) -> dict[str, float]:
    """Median milliseconds of an evaluation and of a training step, by name of the layer."""
    times: dict[str, list[float]] = {f"{m} {n}": [] for m in ("eval", "train") for n in choices}
    for turn in range(turns + 1):
        for name, choose in choices.items():
            layer = choose()
            start = time.perf_counter()
            evaluate(layer, x)
            middle = time.perf_counter()
            train(layer, x, weight)
            end = time.perf_counter()
            if turn:  # the first is a warm-up
                times[f"eval {name}"].append(1e3 * (middle - start))
                times[f"train {name}"].append(1e3 * (end - middle))
    return {name: statistics.median(values) for name, values in times.items()}


def measure(case: Case, turns: int) -> dict:
    """Median milliseconds of both layers, and their ratios."""
    torch.set_num_threads(case.threads)
    x, weight = case.data()
    layers = dict(zip(("ours", "torch"), case.build(), strict=True))
    choices = {name: lambda layer=layer: layer for name, layer in layers.items()}
    found = take_turns(choices, x, weight, turns)
    return {
        **asdict(case),
        "backend": layers["ours"].chosen_backend,
        "update_rate": layers["ours"].update_rate.item(),
        "milliseconds": found,
        "eval": found["eval ours"] / found["eval torch"],
        "train": found["train ours"] / found["train torch"],
    }


def peak_megabytes(case: Case, name: str) -> float:
    """Growth of memory in a training step of ``ours`` or ``torch``, in a new process."""
    argument = json.dumps([asdict(case), name])
    command = [sys.executable, __file__, "--measure-memory", argument]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure_memory(argument: str) -> float:
    fields, name = json.loads(argument)
    case = Case(**{**fields, "shape": tuple(fields["shape"])})
    torch.set_num_threads(case.threads)
    x, weight = case.data()
    ours, theirs = case.build()
    layer = ours if name == "ours" else theirs
    layer(torch.zeros(2, 1, case.shape[0]))[0].sum().backward()  # libraries are loaded
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = _peak_resident()
    train(layer, x, weight)
    return _peak_resident() - before


def _peak_resident() -> float:
    """Peak resident memory in MB (Linux; a child's ru_maxrss would begin at its parent's size)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def measure_input_gates(case: Case, turns: int) -> dict:
    """Median milliseconds of a training step with clocks, with input gates, and of those alone.

    The last is what it takes to compute such gates and their gradient, without any scan.
    """
    torch.set_num_threads(case.threads)
    x, weight = case.data()
    clocks, inputs = (replace(case, gate=gate).build()[0] for gate in ("Rhythm", "InputGate"))
    gate, t = inputs.gates[0], torch.arange(1, case.shape[2] + 1)[:, None]
    by_gate = weight[..., : gate.width]

    def compute_gates() -> None:
        gate(t, x)[0].g.backward(by_gate)

    runs = {
        "clocks": lambda: train(clocks, x, weight),
        "input gates": lambda: train(inputs, x, weight),
        "gates alone": compute_gates,
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(turns + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if turn:  # the first is a warm-up
                times[name].append(1e3 * (time.perf_counter() - start))
    found = {name: statistics.median(values) for name, values in times.items()}
    return {"shape": case.shape, "heads": case.heads, "milliseconds": found}


def show_input_gates(console: Console, rows: list[dict]) -> None:
    table = Table(title="a training step of SuGRU, relative to that with clocks of equal rate")
    for column in ("I, H, T, B", "heads", "clocks ms", "input gates", "gates alone"):
        table.add_column(column, justify="right")
    for row in rows:
        times = row["milliseconds"]
        clocks = times["clocks"]
        table.add_row(
            ", ".join(map(str, row["shape"])),
            str(row["heads"]),
            f"{clocks:.2f}",
            f"{times['input gates'] / clocks:.2f}",
            f"{times['gates alone'] / clocks:.2f}",
        )
    console.print(table)


def scaling_of_two_processes(turns: int) -> float:
    """How much more two processes compute at once than one alone: the most that threads can gain.

    Two cores that are two threads of one physical core give little more than 1.
    """
    command = [sys.executable, __file__, "--multiply"]

    def start() -> subprocess.Popen:
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    alone, both = [], []
    for _ in range(turns):
        alone.append(float(start().communicate()[0]))
        pair = [start(), start()]
        both.append(max(float(process.communicate()[0]) for process in pair))
    return 2 * statistics.median(alone) / statistics.median(both)


def multiply_seconds() -> float:
    """Seconds for matrix products on one thread, after a warm-up of half a second."""
    torch.set_num_threads(1)
    a, b = torch.randn(256, 256), torch.randn(256, 256)
    out = torch.empty_like(a)
    start = time.perf_counter()
    while time.perf_counter() < start + 0.5:
        torch.mm(a, b, out=out)
    start = time.perf_counter()
    for _ in range(5000):
        torch.mm(a, b, out=out)
    return time.perf_counter() - start


def measure_threads(case: Case, turns: int) -> dict:
    """Median milliseconds of our layer on one thread and on two, which take turns."""
    x, weight = case.data()
    layer, _ = case.build()

    def on_threads(threads: int) -> nn.Module:
        torch.set_num_threads(threads)
        train(layer, x, weight)  # threads start
        return layer

    found = take_turns({str(n): partial(on_threads, n) for n in (1, 2)}, x, weight, turns)
    gains = {mode: found[f"{mode} 1"] / found[f"{mode} 2"] for mode in ("eval", "train")}
    return {"shape": case.shape, "milliseconds": found, **gains}


def show_threads(console: Console, rows: list[dict], control: float) -> None:
    table = Table(title="SuGRU as it comes: time on one thread / time on two")
    for column in ("I, H, T, B", "eval ms", "gain", "train ms", "gain"):
        table.add_column(column, justify="right")
    for row in rows:
        cells = []
        for mode in ("eval", "train"):
            one, two = (row["milliseconds"][f"{mode} {threads}"] for threads in (1, 2))
            cells += [f"{one:.2f} / {two:.2f}", f"{row[mode]:.2f}"]
        table.add_row(", ".join(map(str, row["shape"])), *cells)
    console.print(table)
    console.print(f"two processes of matrix products, against one alone: {control:.2f}")


def show(console: Console, title: str, rows: list[dict]) -> None:
    table = Table(title=title)
    for column in ("layer", "I, H, T, B", "heads", "rate", "backend"):
        table.add_column(column)
    for column in ("eval ms", "ratio", "train ms", "ratio"):
        table.add_column(column, justify="right")
    for row in rows:
        times = row["milliseconds"]
        table.add_row(
            row["layer"],
            ", ".join(map(str, row["shape"])),
            str(row["heads"]),
            f"{row['update_rate']:.3f}",
            row["backend"],
            f"{times['eval ours']:.2f} / {times['eval torch']:.2f}",
            f"{row['eval']:.3f}",
            f"{times['train ours']:.2f} / {times['train torch']:.2f}",
            f"{row['train']:.3f}",
        )
    console.print(table)


def show_memory(console: Console, rows: list[dict]) -> None:
    table = Table(title="peak memory of a training step, SuGRU as it comes, rate 0.1")
    for column in ("I, H, T, B", "ours MB", "nn.GRU MB", "ratio"):
        table.add_column(column, justify="right")
    for row in rows:
        ratio = row["ours"] / row["torch"]
        shape = ", ".join(map(str, row["shape"]))
        table.add_row(shape, f"{row['ours']:.0f}", f"{row['torch']:.0f}", f"{ratio:.2f}")
    console.print(table)


def draw(path: Path, rows: dict[str, list[dict]]) -> None:
    """Ratios by update rate: training and evaluation, one dense head and 16 heads."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 (optional)

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for axis, name in zip(axes, ("rates", "rates, 16 heads"), strict=True):
        for shape in SHAPES:
            own = [r for r in rows[name] if tuple(r["shape"]) == shape]
            rates = [r["update_rate"] for r in own]
            label = "I {}, H {}, T {}, B {}".format(*shape)
            axis.loglog(rates, [r["train"] for r in own], marker="o", markersize=3, label=label)
        axis.axhline(1, color="0.6", linewidth=0.8)
        axis.set(xlabel="update rate", title="one dense head" if name == "rates" else "16 heads")
    axes[0].set_ylabel("training time / nn.GRU's")
    axes[0].legend(fontsize=7, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--turns", type=int, default=7, help="timed turns of each layer")
    parser.add_argument("--only", nargs="+", help="names of tables")
    parser.add_argument("--out", type=Path, help="write result.json and rates.png to this folder")
    parser.add_argument("--measure-memory", help=argparse.SUPPRESS)
    parser.add_argument("--multiply", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.multiply:
        print(multiply_seconds())
        return
    if arguments.measure_memory:
        print(measure_memory(arguments.measure_memory))
        return
    console = Console(width=140)
    names = arguments.only or [*suites(), "threads", "memory"]
    found: dict[str, Any] = {}
    for name, cases in suites().items():
        if name in names:
            found[name] = [
                measure(case, arguments.turns) for case in track(cases, description=name)
            ]
            show(console, name, found[name])
    if "threads" in names:
        found["threads"] = [
            measure_threads(Case(shape), arguments.turns)
            for shape in track(SHAPES, description="threads")
        ]
        found["two processes"] = scaling_of_two_processes(arguments.turns)
        show_threads(console, found["threads"], found["two processes"])
    if "input gates" in names:
        cases = [Case(shape, heads=heads) for heads in (1, 16) for shape in SHAPES]
        found["input gates and clocks"] = [
            measure_input_gates(case, arguments.turns) for case in track(cases, description="gates")
        ]
        show_input_gates(console, found["input gates and clocks"])
    if "memory" in names:
        found["memory"] = [
            {"shape": shape, **{n: peak_megabytes(Case(shape), n) for n in ("ours", "torch")}}
            for shape in track(SHAPES, description="memory")
        ]
        show_memory(console, found["memory"])
    if arguments.out:
        record = {
            "command": " ".join(["python", "benchmarks/cpu.py", *sys.argv[1:]]),
            "torch": torch.__version__,
            "processor": platform.processor() or platform.machine(),
            "tables": found,
        }
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "result.json").write_text(json.dumps(record, indent=1))
        if {"rates", "rates, 16 heads"} <= found.keys():
            draw(arguments.out / "rates.png", found)
        console.print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
