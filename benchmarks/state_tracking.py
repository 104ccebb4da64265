"""Times an optimizer step of each model of state tracking, alone on this device.

    python benchmarks/state_tracking.py --out result.json        # on a GPU
    python benchmarks/state_tracking.py --smoke                  # tiny, on any device

A step is the trainer's: its batch is generated, and it is captured as a CUDA graph. ``--seconds``
prints how many steps fit into that time: those are the steps of the recipes. suGRU's time depends
on its update rate, which falls in training; its steps are counted in a whole run instead.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from common import write_result

from surnn.config import RunConfig
from surnn.train.evaluate import float32_products
from surnn.train.recipe_options import for_cpu
from surnn.train.trainer import Trainer
from surnn_recipes import RECIPES
from surnn_recipes.state_tracking import RIVALS

WARM_UP = 6
"""Steps before the clock starts: kernels are compiled, and the graph is captured."""


def configuration(name: str, *, smoke: bool) -> RunConfig:
    """A recipe; with ``smoke`` a tiny one."""
    config = RECIPES[name]()
    if not smoke:
        return config
    config = for_cpu(config)
    task = replace(config.task, length=64, events=4, growing=0)
    train = replace(config.train, steps=WARM_UP + 2, warmup=1, batch=2)
    return replace(config, task=task, train=train)


def step_time(config: RunConfig, seconds: float) -> dict[str, Any]:
    """Seconds of an optimizer step, mean over about ``seconds``, and the peak of memory."""
    trainer = Trainer(config)
    on_gpu = trainer.device.type == "cuda"

    def run(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            trainer._train_step()
        if on_gpu:
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / count

    with float32_products(trainer.device, config.train.tf32):
        trainer.model.train()
        startup = WARM_UP * run(WARM_UP)
        once = run(1)
        steps = max(1, min(round(seconds / once), 100))
        took = run(steps)
    reading = trainer.optimizer_step.read()
    trainer.close()
    return {
        "step_seconds": took, "startup_seconds": startup, "loss": reading.loss,
        "peak_memory": torch.cuda.max_memory_allocated() if on_gpu else None,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
    }  # fmt: skip


def main() -> None:
    """Time all models and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seconds", type=float, default=75.0, help="how many steps fit into this")
    parser.add_argument("--measure", type=float, default=2.0, help="seconds of each measurement")
    parser.add_argument("--models", nargs="*", default=["", *RIVALS])
    parser.add_argument("--recipe", default="state-tracking-s3")
    parser.add_argument("--half-state", action="store_true", help="time gru and lstm in bfloat16")
    parser.add_argument("--out", type=Path, help="write the numbers to this file")
    parser.add_argument("--smoke", action="store_true", help="tiny models, on any device")
    arguments = parser.parse_args()
    results = []
    for model in arguments.models:
        name = "-".join(part for part in (arguments.recipe, model) if part)
        config = configuration(name, smoke=arguments.smoke)
        if arguments.half_state:
            config = replace(config, model=replace(config.model, half_state=True))
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        result = step_time(config, 0.0 if arguments.smoke else arguments.measure)
        results.append({"recipe": name, "half_state": arguments.half_state, **result})
        fit = arguments.seconds / result["step_seconds"]
        memory = "" if result["peak_memory"] is None else f"{result['peak_memory'] / 1e9:.1f} GB"
        print(
            f"{name:32} {1e3 * result['step_seconds']:8.2f} ms  {fit:8.0f} steps in "
            f"{arguments.seconds:g} s  loss {result['loss']:.3f}  {memory}", flush=True,
        )  # fmt: skip
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    write_result(
        arguments.out,
        {"device": device, "torch": torch.__version__, "seconds": arguments.seconds,
         "records": results},
    )  # fmt: skip


if __name__ == "__main__":
    main()
