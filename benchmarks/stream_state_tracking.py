"""Streams state tracking in C: are the answers torch's, and how long is a step?

    python benchmarks/stream_state_tracking.py RUN --out results/state_tracking/stream.json
    python benchmarks/stream_state_tracking.py --smoke          # untrained, short

RUN is a run of state-tracking-s3 with its weights. Test sequences of ``--length`` time steps go
through torch and through the engine, and the answers at all elements and at the end are compared.
Times are those of one thread (its own processor time, the fastest of ``--turns``), next to dense
GRUs in the engine: one with as many parameters, one of the same width. Weights do not matter to
a dense GRU's time, so these are not trained. ``run`` gets a whole sequence, ``step`` one token a
call from Python.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import write_result

from surnn import Engine
from surnn.bench.engine import processor
from surnn.config import ModelConfig
from surnn.deploy.export import to_engine
from surnn.models.model import SequenceModel
from surnn.runs.loading import load
from surnn.tasks.copying import IGNORED
from surnn.tasks.state_tracking import StateTracking
from surnn_recipes import RECIPES

DENSE = {
    "dense GRU, as many parameters": RECIPES["state-tracking-s3-gru"]().model,
    "dense GRU, as wide": replace(RECIPES["state-tracking-s3-gru"]().model, width=128),
}


def make_model(config: ModelConfig, task: StateTracking) -> SequenceModel:
    """An untrained model."""
    gate = RECIPES["state-tracking-s3"]().gate
    return SequenceModel(config, gate, task.input, task.output, task.steps).eval()


def export(model: SequenceModel, folder: Path) -> Engine:
    """The model in the engine."""
    path = folder / f"{id(model)}.surnn"
    to_engine(model, path)
    return Engine(path)


@torch.inference_mode()
def compare(model: SequenceModel, engine: Engine, task: StateTracking, count: int) -> dict:
    """Answers of torch and of the engine at all elements and at the end of test sequences."""
    batch = task.batch("test", 0, count, 0, torch.device("cpu"))
    asked = batch.target != IGNORED
    in_torch = torch.cat([model(x[None]) for x in batch.x])
    streams = [engine.stream() for _ in range(count)]
    in_c = torch.stack(
        [
            torch.from_numpy(stream.run(x.numpy()))
            for stream, x in zip(streams, batch.x, strict=True)
        ]
    )
    answers, ours = in_torch.argmax(-1)[asked], in_c.argmax(-1)[asked]
    return {
        "sequences": count, "answers": int(asked.sum()),
        "different_answers": int((answers != ours).sum()),
        "largest_difference": float((in_torch - in_c).abs().max()),
        "accuracy": float((ours == batch.target[asked]).float().mean()),
        "update_rate": float(np.mean([stream.work.update_rate for stream in streams])),
        "macs_done": float(np.mean([1 - stream.work.skipped for stream in streams])),
    }  # fmt: skip


def microseconds(engine: Engine, tokens: np.ndarray, turns: int) -> dict[str, float]:
    """A step of a stream, in the fastest turn."""
    times: dict[str, list[float]] = {"run": [], "step": []}
    few = tokens[: len(tokens) // 8].tolist()
    for _ in range(turns):
        stream = engine.stream()
        begin = time.thread_time()
        stream.run(tokens)
        times["run"].append((time.thread_time() - begin) / len(tokens))
        stream = engine.stream()
        begin = time.thread_time()
        for token in few:
            stream.step(token)
        times["step"].append((time.thread_time() - begin) / len(few))
    return {f"{name}_us": 1e6 * min(values) for name, values in times.items()}


def main() -> None:
    """Compare, time, print, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("run", type=Path, nargs="?", help="a run of state-tracking-s3")
    parser.add_argument("--length", type=int, default=32_768)
    parser.add_argument("--sequences", type=int, default=4, help="test sequences to compare")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the numbers to this file")
    parser.add_argument("--smoke", action="store_true", help="an untrained model, 512 time steps")
    arguments = parser.parse_args()
    if (arguments.run is None) != arguments.smoke:
        parser.error("name a run, or use --smoke")
    torch.set_num_threads(1)
    length = 512 if arguments.smoke else arguments.length
    task = replace(RECIPES["state-tracking-s3"]().task, length=length, growing=0)
    if arguments.smoke:
        ours = make_model(RECIPES["state-tracking-s3"]().model, task)
    else:
        ours = load(arguments.run).model.eval()
    models = {"suGRU": ours, **{name: make_model(c, task) for name, c in DENSE.items()}}
    tokens = task.batch("test", 0, 1, 0, torch.device("cpu")).x[0].numpy()
    records: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        engines = {name: export(model, Path(folder)) for name, model in models.items()}
        answers = compare(ours, engines["suGRU"], task, arguments.sequences)
        print(", ".join(f"{name} {value:.4g}" for name, value in answers.items()), flush=True)
        for name, engine in engines.items():
            times = microseconds(engine, tokens, 1 if arguments.smoke else arguments.turns)
            parameters = sum(p.numel() for p in models[name].parameters())
            records.append({"name": name, "parameters": parameters, **times})
            print(f"{name:32} {parameters:8,} parameters  {times['run_us']:6.2f} µs a step in run, "
                  f"{times['step_us']:6.2f} in step", flush=True)  # fmt: skip
    write_result(
        arguments.out,
        {"processor": processor(), "simd": engines["suGRU"].simd, "length": length,
         "answers": answers, "records": records},
    )  # fmt: skip


if __name__ == "__main__":
    main()
