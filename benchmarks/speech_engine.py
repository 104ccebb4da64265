"""Microseconds a frame of trained speech models in the C engine, and an hour of noise through it.

    python benchmarks/speech_engine.py runs/keyword-stream-seed0 runs/keyword-stream-gru-seed0 \
        --data FOLDER --out results/speech_engine/result.json     # two minutes, one thread

For each run: its best weights as an engine file with float32 and with int8 weights; a test stream
of the task frame by frame (the median over turns of each frame, then the mean over frames); an hour
of the test part of the background noise without any word. The update rate is that of the engine. In
the hour, the state of every closed unit is compared with the one before (==). A model without gates
is also timed as onnxruntime's operator with the same weights, if it is a GRU. DeltaGRU, Skip-RNN,
minGRU and S4D do not run in the engine.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from common import write_result
from torch import nn

from surnn import Engine
from surnn.bench.engine import processor
from surnn.bench.engine_rivals import latencies, onnx_session, onnx_streamed
from surnn.deploy.export import to_engine
from surnn.deploy.export.engine import Weights
from surnn.models.baselines import TorchRecurrent
from surnn.models.model import SequenceModel
from surnn.runs.loading import load
from surnn.tasks.base import generator_for
from surnn.tasks.speech_frames import (
    FRAME_RATE,
    background,
    draw_noise,
    from_decibels,
    load_noise,
    to_features,
    uniform,
)

CPU = torch.device("cpu")
HOUR = 3600 * FRAME_RATE
FRAME_US = 1e6 / FRAME_RATE


def noise_frames(frames: int, data: Path | None) -> np.ndarray:
    """[T, 40]: background without speech, at levels that change every four seconds on average."""
    random = generator_for(7, 0, CPU)
    noise = load_noise(data)["test"]
    power = background(noise, draw_noise(noise, 1, frames, random), frames)[0]
    level = from_decibels(uniform(-10, 15, (frames // 200 + 1,), random))
    return to_features(power * level.repeat_interleave(200)[:frames, None]).numpy()


def seconds_per_frame(engine: Engine, frames: np.ndarray, turns: int) -> np.ndarray:
    """[T]: the median over turns of each frame."""
    return np.median([engine.time_steps(frames) for _ in range(turns)], 0)


def hour(engine: Engine, frames: np.ndarray) -> dict[str, Any]:
    """The update rate in noise, and how many held numbers have changed."""
    stream, layers = engine.stream(), range(engine.layers)
    before = [stream.hidden(i).copy() for i in layers]
    opened, held, changed = 0.0, 0, 0
    for frame in frames:
        stream.step(frame)
        for i in layers:
            now, gate = stream.hidden(i), stream.gates(i)
            closed = np.repeat(gate == 0, now.size // gate.size)
            opened += float(np.mean(gate != 0))
            held += int(closed.sum())
            changed += int((now.ravel()[closed] != before[i].ravel()[closed]).sum())
            before[i] = now.copy()
    return {
        "frames": len(frames), "update_rate": opened / len(frames) / len(layers),
        "held_numbers": held, "held_numbers_that_changed": changed,
    }  # fmt: skip


def of_run(path: Path, data: Path | None, turns: int, frames: int) -> dict[str, Any]:
    """All numbers of a run."""
    model, task, config, step = load(path, "best", CPU)
    task.prepare(CPU, data)
    x = task.batch("test", 0, 1, 0, CPU).x[0].numpy()
    noise = noise_frames(frames, data)
    with torch.inference_mode():
        expected = model(torch.from_numpy(x)[None])[0].numpy()
    result: dict[str, Any] = {
        "run": path.name, "model": config.model.kind, "step": step,
        "parameters": sum(p.numel() for p in model.parameters()), "engine": {},
    }  # fmt: skip
    for weights in get_args(Weights):
        with tempfile.TemporaryDirectory() as folder:
            try:
                engine = Engine(to_engine(model, Path(folder) / "model.surnn", weights))
            except TypeError as error:
                return {**result, "not_run": str(error)}
            stream = engine.stream()
            y = stream.run(x)
            found = y if task.output.per == "step" else y[-1]
            times = {name: seconds_per_frame(engine, f, turns) * 1e6
                     for name, f in (("speech", x), ("noise", noise[: len(x)]))}  # fmt: skip
            result["engine"][weights] = {
                "file_bytes": (Path(folder) / "model.surnn").stat().st_size,
                "difference": float(np.abs(found - expected).max()),
                "update_rate": stream.work.update_rate, "skipped_work": stream.work.skipped,
                **{f"{name}_us": float(t.mean()) for name, t in times.items()},
                **{f"{name}_us_p99": float(np.percentile(t, 99)) for name, t in times.items()},
                "hour_of_noise": {
                    **hour(engine, noise),
                    "real_time_factor": float(engine.time_steps(noise).mean() * 1e6 / FRAME_US),
                },
            }  # fmt: skip
    layer = as_gru(model)
    if layer is not None:
        session = onnx_session(layer)
        each = [latencies(lambda note: onnx_streamed(session, x, note)) for _ in range(turns)]
        result["onnxruntime_us"] = float(np.median(each, 0).mean() * 1e6)
    return result


def as_gru(model: SequenceModel) -> nn.GRU | None:
    """The GRU layers of a plain stack as one of torch's modules; None for other models."""
    layers = [m.layer for m in model.modules() if isinstance(m, TorchRecurrent) and m.kind == "gru"]
    if not layers or model.model_config.form != "stack":
        return None
    whole = nn.GRU(layers[0].input_size, layers[0].hidden_size, len(layers))
    for i, layer in enumerate(layers):
        for name, value in layer.named_parameters():
            getattr(whole, f"{name.removesuffix('_l0')}_l{i}").data.copy_(value)
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--noise-frames", type=int, default=HOUR)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = [
        of_run(run, arguments.data, arguments.turns, arguments.noise_frames)
        for run in arguments.runs
    ]
    write_result(arguments.out, {"processor": processor(), "frame_us": FRAME_US, "runs": runs})


if __name__ == "__main__":
    main()
