"""Times training steps on packed documents against the same batches without resets, on a CPU.

    python benchmarks/documents.py

A byte-level language model of two blocks, on one thread. Both forms take turns, and the ratio is
that of their fastest steps, in processor time, which other processes disturb least. A document has
64 to 512 bytes, a window 512.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from surnn.config import InputGateConfig, ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.tasks.text_file import TextFile
from surnn.train.trainer import Trainer

GATES = {
    "input gates": InputGateConfig(rate=0.2),
    "rhythms": RhythmConfig(rate=0.2),
}


def write_text(path: Path, size: int = 1 << 19) -> None:
    """Random letters; every document starts with #."""
    draws = np.random.default_rng(0)
    letters = draws.integers(97, 123, size).astype(np.uint8)
    places = np.cumsum(draws.integers(64, 512, size // 64))
    letters[places[places < size]] = ord("#")
    path.write_bytes(letters.tobytes())


def make_trainer(path: Path, gate, documents: str, streams: bool) -> Trainer:
    task = TextFile(context=512, path=str(path), documents=documents, streams=streams)
    model = ModelConfig(layers=2, width=256, heads=16, block="feedforward")
    train = TrainConfig(steps=1000, batch=16, warmup=1, device="cpu")
    run = Trainer(RunConfig(task, model, gate, train), None)
    run.model.train()
    return run


def seconds(run: Trainer) -> float:
    start = time.process_time()
    run._train_step()
    return time.process_time() - start


def compare(path: Path, gate, streams: bool, steps: int) -> tuple[float, float]:
    """The fastest step without and with resets, in seconds."""
    runs = [make_trainer(path, gate, pattern, streams) for pattern in ("", "#")]
    times = [[seconds(run) for run in runs] for _ in range(steps)]
    return tuple(min(column) for column in zip(*times[1:], strict=True))  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=12, help="timed steps of each form")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text"
        write_text(path)
        for name, gate in GATES.items():
            for streams in (False, True):
                plain, packed = compare(path, gate, streams, arguments.steps)
                kind = "streams" if streams else "windows"
                print(
                    f"{name}, {kind}: {1e3 * plain:.0f} ms without, {1e3 * packed:.0f} ms with "
                    f"resets, {packed / plain - 1:+.1%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
