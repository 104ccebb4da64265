"""From data of one's own to a report page and C files: three commands, timed.

    python benchmarks/own_data.py --out results/own_data/result.json
    python benchmarks/own_data.py --data wavs --out results/own_data/result.json    one row of it

Generates 2,000 labelled series as a CSV and as an npz file, and 600 labelled recordings as wav
files, then runs ``surnn train sequences``, ``surnn report`` and ``surnn export --to c`` on each.
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import wave
from pathlib import Path

import numpy as np
from common import write_result

from surnn.runs.environment import capture_environment

DATA = ("series.csv", "series.npz", "wavs")
SERIES, STEPS, RECORDINGS, RATE = 2000, 150, 600, 8000


def make_series(random: np.random.Generator) -> tuple[np.ndarray, list[str]]:
    """A motor's current and voltage [N, T, 2], and its state: idle, spinning or jammed."""
    labels = [("idle", "spin", "jam")[n % 3] for n in range(SERIES)]
    t = np.arange(STEPS)
    x = np.empty((SERIES, STEPS, 2), np.float32)
    for n, label in enumerate(labels):
        cycles = 0.0 if label == "idle" else 0.2
        x[n, :, 0] = 20 + 3 * np.sin(2 * np.pi * cycles * t + random.uniform(0, 6))
        x[n, :, 0] += random.normal(0, 1, STEPS)
        if label == "jam":
            begin = random.integers(20, 130)
            x[n, begin : begin + 12, 0] += 6
        x[n, :, 1] = 230 + random.normal(0, 2, STEPS) + 2 * (t > 75)
    return x, labels


def write_csv(path: Path, x: np.ndarray, labels: list[str]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "time", "current", "voltage", "label"])
        for n, label in enumerate(labels):
            for t in range(STEPS):
                writer.writerow([n, t, f"{x[n, t, 0]:.3f}", f"{x[n, t, 1]:.3f}", label])


def write_wavs(folder: Path, random: np.random.Generator) -> None:
    for n in range(RECORDINGS):
        label = ("low", "high", "sweep")[n % 3]
        t = np.arange(int(RATE * random.uniform(0.5, 1))) / RATE
        phase = {"low": 300 * t, "high": 900 * t, "sweep": 300 * t + 300 * t * t}[label]
        sound = 0.3 * np.sin(2 * np.pi * phase * random.uniform(0.9, 1.1))
        sound += random.normal(0, 0.1, len(t))
        (folder / label).mkdir(parents=True, exist_ok=True)
        with wave.open(str(folder / label / f"{n}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes((sound.clip(-1, 1) * 32767).astype("<i2").tobytes())


def timed(folder: Path, *arguments: str) -> tuple[float, str]:
    """Seconds of a command of surnn, and what it printed."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "surnn", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return time.perf_counter() - begin, done.stdout


def measure(folder: Path, data: str) -> dict[str, float]:
    run = f"run-{data}"
    seconds = {
        "train": timed(folder, "train", "sequences", "--task.path", data, "--out", run)[0],
        "report": timed(folder, "report", run, "--data", ".")[0],
        "export": timed(folder, "export", run, "--to", "c")[0],
    }
    _, shown = timed(folder, "eval", run, "--split", "test")
    found = re.search(r"accuracy\s+([0-9.]+)", shown)
    assert found is not None, shown
    return {**seconds, "test_accuracy": float(found.group(1))}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, help="write the numbers to this file")
    parser.add_argument("--data", choices=DATA, nargs="+", default=DATA, help="default: all")
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        x, labels = make_series(random)
        write_csv(folder / "series.csv", x, labels)
        np.savez(folder / "series.npz", x=x, y=np.array(labels))
        write_wavs(folder / "wavs", random)
        rows = {data: measure(folder, data) for data in arguments.data}
    print(json.dumps(rows, indent=1))
    if arguments.out is not None and arguments.out.exists():
        rows = json.loads(arguments.out.read_text())["rows"] | rows
    command = "python benchmarks/own_data.py --out results/own_data/result.json"
    environment = capture_environment() | {"command": command}
    about = {"command": command, "environment": environment, "cores": os.cpu_count()}
    write_result(arguments.out, {**about, "rows": rows})


if __name__ == "__main__":
    main()
