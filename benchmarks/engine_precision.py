"""The test metric of trained runs in the C engine, with float32 and with fewer bits.

    surnn train ecg_beats ... --out runs/ecg          # the command of examples/tutorials/ecg.py
    surnn train spoken_digits --task.seconds 3 --model.layers 2 --model.width 128 \
        --model.block stack --gate.kind rhythm --gate.rate 0.2 --train.batch 32 --train.lr 3e-3 \
        --train.steps 250 --train.evaluate-every 50 --train.device cpu --out runs/digits
    python benchmarks/engine_precision.py runs/ecg runs/digits --data FOLDER \
        --out results/engine_precision/result.json    # minutes, one thread

For each run: its best weights, in Python and as engine files with float32 weights, with 8-bit
weights, and with 8-bit weights and activations. Each test sequence is a new stream. Sequences with
lengths, and tasks on pairs, are refused.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from common import write_result
from torch import Tensor

from surnn import Engine
from surnn.bench.engine import PRECISIONS, processor
from surnn.deploy.export import to_engine
from surnn.models.model import SequenceModel
from surnn.runs.loading import load
from surnn.tasks.base import Score, Task

CPU, BATCH = torch.device("cpu"), 64


def of_engine(engine: Engine, task: Task, x: Tensor) -> tuple[Tensor, list[float]]:
    """Predictions for a batch, and the update rate of each stream."""
    outputs, rates, stream = [], [], engine.stream()
    for frames in x.numpy():
        y = torch.from_numpy(stream.reset().run(frames))
        outputs.append(y if task.output.per == "step" else y[-1])
        rates.append(stream.work.update_rate)
    return torch.stack(outputs), rates


@torch.inference_mode()
def of_run(path: Path, data: Path | None) -> dict[str, Any]:
    """The metric of a run, of its model in Python and of each file."""
    model, task, config, step = load(path, "best", CPU)
    task.prepare(CPU, data)
    engines = exports(model)
    scores: dict[str, Score] = {}
    rates: dict[str, list[float]] = {name: [] for name in engines}
    if (sequences := task.size("test")) is None:
        raise ValueError(f"{path}: the test set of {task.name} has no end")
    for number in range(-(-sequences // BATCH)):
        batch = task.batch("test", number, BATCH, 0, CPU)
        if batch.lengths is not None:
            raise ValueError(f"{path}: sequences of several lengths are not supported")
        predictions = {"python": model(batch.x)}
        for name, engine in engines.items():
            predictions[name], some = of_engine(engine, task, batch.x)
            rates[name] += some
        for name, prediction in predictions.items():
            score = task.score(prediction, batch)
            scores[name] = scores[name] + score if name in scores else score
    return {
        "task": task.name, "metric": task.metric, "optimizer steps": step, "sequences": sequences,
        "layers": config.model.layers, "width": config.model.width,
        "score": {name: score.value for name, score in scores.items()},
        "update rate": {name: sum(some) / len(some) for name, some in rates.items()},
    }  # fmt: skip


def exports(model: SequenceModel) -> dict[str, Engine]:
    """An engine of each precision; files that are small are copied into memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.surnn")
        return {
            name: Engine(to_engine(model, path, *precision), map=False)
            for name, precision in PRECISIONS.items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = [of_run(run, arguments.data) for run in arguments.runs]
    for run in runs:
        print(run["task"], {name: round(score, 4) for name, score in run["score"].items()})
    command = f"python benchmarks/engine_precision.py {' '.join(str(r) for r in arguments.runs)}"
    write_result(arguments.out, {"command": command, "processor": processor(), "runs": runs})


if __name__ == "__main__":
    main()
