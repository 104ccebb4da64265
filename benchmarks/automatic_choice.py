"""Does ``surnn train sequences`` choose well? Six generated sets, five configurations set by hand.

    python benchmarks/automatic_choice.py               all sets, results/automatic_choice
    python benchmarks/automatic_choice.py --sets cbf    one set, printed only

The sets are in the style of the UCR archive: published generators (CBF, synthetic control, two
patterns, ShapeletSim) and two of our own. Each configuration trains on the same division, with the
same batches and number of optimizer steps; the weights with the best validation are tested.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surnn.config import ModelConfig, RunConfig, gate_config
from surnn.runs.environment import capture_environment
from surnn.tasks.sequences import Sequences
from surnn.train.automatic import choose, with_choices
from surnn.train.evaluate_run import evaluate_run
from surnn.train.session import start_run

OUT = Path(__file__).parents[1] / "results" / "automatic_choice"
SEQUENCES = 1000
SHARES = 0.4, 0.2, 0.4
Set = tuple[list[np.ndarray], list[int]]


def cbf(random: np.random.Generator) -> Set:
    """Cylinder, bell or funnel: a plateau, a rise or a fall of random place and width."""
    xs, ys = [], []
    for n in range(SEQUENCES):
        a, t = random.integers(16, 33), np.arange(128)
        b = a + random.integers(32, 97)
        inside, ramp = (t >= a) & (t <= b), (t - a) / (b - a)
        shape = [np.ones(128), ramp, 1 - ramp][n % 3] * inside
        xs.append((6 + random.normal()) * shape + random.normal(size=128))
        ys.append(n % 3)
    return xs, ys


def synthetic_control(random: np.random.Generator) -> Set:
    """Six kinds of control charts: normal, cyclic, trend up or down, shift up or down."""
    xs, ys, t = [], [], np.arange(60)
    for n in range(SEQUENCES):
        kind, x = n % 6, 30 + 2 * random.uniform(-3, 3, 60)
        if kind == 1:
            x += random.uniform(10, 15) * np.sin(2 * np.pi * t / random.uniform(10, 15))
        if kind in (2, 3):
            x += (1 if kind == 2 else -1) * random.uniform(0.2, 0.5) * t
        if kind in (4, 5):
            x += (1 if kind == 4 else -1) * random.uniform(7.5, 20) * (t >= random.integers(20, 40))
        xs.append(x)
        ys.append(kind)
    return xs, ys


def two_patterns(random: np.random.Generator) -> Set:
    """Two steps, each up-down or down-up, at random places: four classes."""
    xs, ys = [], []
    for n in range(SEQUENCES):
        x = random.normal(size=128) * 0.5
        for part, up in enumerate((n % 4 // 2, n % 2)):
            width = random.integers(8, 20)
            at = random.integers(0, 62 - 2 * width) + 64 * part
            sign = 1 if up else -1
            x[at : at + width] += 5 * sign
            x[at + width : at + 2 * width] -= 5 * sign
        xs.append(x)
        ys.append(n % 4)
    return xs, ys


def early_cue(random: np.random.Generator) -> Set:
    """A cue in the first twentieth decides; the rest, 300 steps in all, is slow drift."""
    xs, ys = [], []
    for n in range(SEQUENCES):
        x = np.cumsum(random.normal(size=300)) * 0.1
        at = random.integers(2, 10)
        x[at : at + 5] += 3 * (1 if n % 2 else -1)
        xs.append(x + 0.1 * random.normal(size=300))
        ys.append(n % 2)
    return xs, ys


def shapelet(random: np.random.Generator) -> Set:
    """Noise of 200 steps; one of two shapes, a triangle or a square wave, at a random place."""
    xs, ys = [], []
    ramp = np.concatenate((np.linspace(0, 1, 15), np.linspace(1, 0, 15)))
    square = np.where(np.arange(30) % 10 < 5, 1.0, 0.0)
    for n in range(SEQUENCES):
        x = random.uniform(-1, 1, 200)
        at = random.integers(0, 170)
        x[at : at + 30] += 3 * (ramp, square)[n % 2]
        xs.append(x)
        ys.append(n % 2)
    return xs, ys


def gestures(random: np.random.Generator) -> Set:
    """Three channels, 60 to 140 steps: circles, eights and lines at different speeds."""
    xs, ys = [], []
    for n in range(SEQUENCES):
        length = random.integers(60, 141)
        phase = np.linspace(0, 2 * np.pi * random.uniform(1.5, 3), length) + random.uniform(0, 6)
        kind = n % 3
        second = (np.cos(phase), np.sin(2 * phase), np.sin(phase))[kind]
        path = np.stack((np.sin(phase), second, np.gradient(second)), 1)
        xs.append(path + 0.4 * random.normal(size=path.shape))
        ys.append(kind)
    return xs, ys


SETS: dict[str, Callable[[np.random.Generator], Set]] = {
    f.__name__: f for f in (cbf, synthetic_control, two_patterns, early_cue, shapelet, gestures)
}
HAND: dict[str, tuple[dict[str, Any], tuple[str, dict[str, Any]]]] = {
    "open, width 64, mean": ({"width": 64, "pool": "mean"}, ("open", {})),
    "rhythm 0.1, width 64, mean": ({"width": 64, "pool": "mean"}, ("rhythm", {"rate": 0.1})),
    "rhythm 0.3, width 128, mean": ({"width": 128, "pool": "mean"}, ("rhythm", {"rate": 0.3})),
    "input 0.3, width 64, mean": ({"width": 64, "pool": "mean"}, ("input", {"rate": 0.3})),
    "rhythm 0.1, width 64, last": ({"width": 64}, ("rhythm", {"rate": 0.1})),
}


def write_set(name: str, folder: Path) -> Path:
    """The set as an npz file, padded with NaN."""
    xs, ys = SETS[name](np.random.default_rng(0))
    columns = [x.reshape(len(x), -1) for x in xs]
    padded = np.full((len(xs), max(map(len, xs)), columns[0].shape[1]), np.nan, np.float32)
    for row, x in enumerate(columns):
        padded[row, : len(x)] = x
    path = folder / f"{name}.npz"
    np.savez(path, x=padded, y=np.array(ys))
    return path


def measure(config: RunConfig, out: Path) -> dict[str, float]:
    """Train and test one configuration."""
    begin = time.process_time()
    start_run("choice", config, out)
    metrics = evaluate_run(out, "test", device="cpu").metrics
    rates = metrics.get("update_rate", [1.0])
    return {
        "accuracy": metrics["accuracy"],
        "update_rate": sum(rates) / len(rates),
        "cpu_seconds": round(time.process_time() - begin, 1),
    }


def compare(name: str, folder: Path, steps: int | None) -> dict[str, Any]:
    """The automatic choice and all configurations set by hand on one set."""
    task = Sequences(path=str(write_set(name, folder)), shares=SHARES).complete()
    task.prepare(torch.device("cpu"))
    choices = choose(task.facts())
    chosen = with_choices(RunConfig(task), choices)
    train = replace(
        chosen.train, device="cpu", log_every=10**6, **({} if steps is None else {"steps": steps})
    )
    chosen = replace(chosen, train=train)
    row = {"chosen": {c.option: c.value for c in choices}, "facts": task.facts()._asdict()}
    row["automatic"] = measure(chosen, folder / name / "automatic")
    row["hand"] = {}
    for number, (text, (model, (kind, gate))) in enumerate(HAND.items()):
        options: Any = gate_config(kind, **gate)  # type: ignore[arg-type]
        config = RunConfig(task, ModelConfig(**model), options, train)
        row["hand"][text] = measure(config, folder / name / str(number))
    return row


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Accuracies as a Markdown table."""
    titles = ["set", "automatic", "rate", *HAND, "best by hand - automatic"]
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for name, row in rows.items():
        hand = [row["hand"][text]["accuracy"] for text in HAND]
        own = row["automatic"]["accuracy"]
        cells = [name, f"{own:.3f}", f"{row['automatic']['update_rate']:.2f}"]
        cells += [f"{value:.3f}" for value in hand] + [f"{100 * (max(hand) - own):+.1f} points"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=tuple(SETS), default=tuple(SETS))
    parser.add_argument("--steps", type=int, help="optimizer steps (default: the automatic choice)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = {}
    environment = capture_environment() | {"command": "python benchmarks/automatic_choice.py"}
    for name in arguments.sets:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            rows[name] = compare(name, Path(folder), arguments.steps)
        if arguments.sets == tuple(SETS):
            OUT.mkdir(parents=True, exist_ok=True)
            about = {"environment": environment, "sets": rows}
            (OUT / "choice.json").write_text(json.dumps(about, indent=1) + "\n")
        print(table(rows), flush=True)


if __name__ == "__main__":
    main()
