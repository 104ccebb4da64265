"""Times an epoch of psMNIST, and the trainer's overhead over the model's bare step.

    python benchmarks/trainer.py --data FOLDER --out result.json     # on a GPU
    python benchmarks/trainer.py --data FOLDER --smoke               # tiny, on any device

The epoch is the recipe's: three layers of 32 heads of 16, batch 256; data, evaluation, checkpoint
included. The bare step is forward, loss, backward, clipping and AdamW on one prepared batch,
compiled and captured as the trainer's step is; both take turns in one process.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from common import write_result
from torch import nn

from surnn.config import RunConfig
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunFolder
from surnn.tasks.base import Batch
from surnn.train.evaluate import autocast
from surnn.train.progress import SilentReporter
from surnn.train.trainer import Trainer
from surnn_recipes import RECIPES


class Epochs(SilentReporter):
    """Records the time and the metric of each evaluation."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.metrics: list[float] = []

    def report(self, step, values):
        for name, value in values.items():
            if name.startswith("valid "):
                self.times.append(time.perf_counter())
                self.metrics.append(value)
                print(f"step {step}: {name} {value:.4f}", flush=True)


def configuration(arguments: argparse.Namespace) -> RunConfig:
    config = RECIPES["psmnist"]()
    epoch = config.train.evaluate_every
    train = replace(config.train, steps=arguments.epochs * epoch, log_every=epoch)
    model = replace(config.model, max_rate=arguments.max_rate)
    if arguments.smoke:
        train = replace(
            train, steps=4, batch=4, evaluate_every=2, checkpoint_every=2, evaluation_batches=1,
            log_every=2, warmup=1, precision="float32", cuda_graph=False, compile=False,
        )  # fmt: skip
        model = replace(model, width=32, layers=1)
    return replace(config, model=model, train=train)


def bare_step(trainer: Trainer, batch: Batch) -> Callable[[], None]:
    """A training step without a trainer, on the trainer's own model and batch."""
    config, model, task = trainer.config, trainer.model, trainer.task
    on_gpu = trainer.device.type == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=on_gpu, capturable=on_gpu)
    predict = torch.compile(model) if config.train.compile else model

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with autocast(trainer.device, config.train.precision):
            output = predict(batch.x, batch.lengths)
        task.loss(output, batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.train.clip)
        optimizer.step()

    if not config.train.cuda_graph:
        return step
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay(read: Batch = batch) -> None:  # the graph reads its memory: it must stay alive
        graph.replay()

    return replay


def seconds_of(work: Callable[[], None], times: int) -> float:
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    begin = time.perf_counter()
    for _ in range(times):
        work()
    wait()
    return (time.perf_counter() - begin) / times


def overhead(trainer: Trainer, turns: int, times: int) -> tuple[float, float]:
    """Median seconds of the trainer's step, batch and bookkeeping included, and of the bare
    step."""
    trainer.config = replace(trainer.config, train=replace(trainer.config.train, steps=10**9))
    trainer.model.train()
    bare = bare_step(trainer, trainer.batches.take(0))
    own, bare_times = [], []
    for _ in range(turns):
        own.append(seconds_of(trainer._train_step, times))
        bare_times.append(seconds_of(bare, times))
    return statistics.median(own), statistics.median(bare_times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with MNIST")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument(
        "--max-rate", type=float, help="SuGRU's max_rate; default: room for all time steps"
    )
    parser.add_argument("--smoke", action="store_true", help="tiny model; ignore the times")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    config, epochs = configuration(arguments), Epochs()
    with tempfile.TemporaryDirectory() as folder:
        record = RunFolder.create(Path(folder) / "run", config_to_dict(config))
        trainer = Trainer(config, record, data=arguments.data, reporter=epochs)
        begin = time.perf_counter()
        trainer.fit()
        own, bare = overhead(
            trainer, turns=2 if arguments.smoke else 5, times=1 if arguments.smoke else 50
        )
    spent = [after - before for before, after in zip(epochs.times, epochs.times[1:], strict=False)]
    about = torch.cuda.get_device_name() if trainer.device.type == "cuda" else "CPU"
    result = {
        "device": about, "torch": torch.__version__, "config": config_to_dict(config),
        "seconds_to_first_evaluation": epochs.times[0] - begin, "seconds_per_epoch": spent,
        "valid_accuracy": epochs.metrics, "step_seconds": own, "bare_step_seconds": bare,
    }  # fmt: skip
    print(
        f"{about}: {statistics.median(spent):.2f} s per epoch, all included; median of {len(spent)}"
    )
    print(f"step {own * 1e3:.2f} ms, bare step {bare * 1e3:.2f} ms: {own / bare - 1:+.1%}")
    write_result(arguments.out, result)


if __name__ == "__main__":
    main()
