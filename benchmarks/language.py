"""Times a training step of each recipe on enwik8.

    python benchmarks/language.py --data FOLDER --out results/language/result.json   # on a GPU
    python benchmarks/language.py --data FOLDER --smoke                              # anywhere

A step is the trainer's: batch, forward, backward, clipping, AdamW; 64 x 1024 bytes, in bfloat16,
compiled and captured as the recipe says. GRUs are timed with states in bfloat16 and in float32.
"Around the layers" is the same model with blocks that have no layer: the time that no recurrence,
however fast, can save.
"""

import argparse
import gc
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from common import write_result
from torch import Tensor, nn

from surnn.config import RunConfig
from surnn.models.blocks import ResidualBlock
from surnn.runs.environment import commit
from surnn.train.evaluate import float32_products
from surnn.train.optimizer_step import OptimizerStep
from surnn.train.trainer import Trainer
from surnn_recipes import RECIPES

NAMES = (
    "enwik8-sugru", "enwik8-sugru-input", "enwik8-hybrid", "enwik8-transformer", "enwik8-gru"
)  # fmt: skip
BARE = "enwik8-sugru around the layers"


class Nothing(nn.Module):
    """A mixer that gives what it gets."""

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return x


def cases() -> dict[str, RunConfig]:
    found = {name: RECIPES[name]() for name in NAMES}
    gru = found["enwik8-gru"]
    found["enwik8-gru, states in float32"] = replace(
        gru, model=replace(gru.model, half_state=False)
    )
    train = replace(found["enwik8-sugru"].train, rate_penalty=0.0)
    gate = replace(found["enwik8-sugru"].gate, target_rate=None)
    found[BARE] = replace(found["enwik8-sugru"], train=train, gate=gate)
    return found


def tiny(config: RunConfig) -> RunConfig:
    train = replace(
        config.train, batch=2, precision="float32", cuda_graph=False, compile=False, warmup=1
    )
    return replace(config, train=train, task=replace(config.task, context=32))


def measured(name: str, config: RunConfig, data: Path | None, turns: int) -> dict[str, Any]:
    """Milliseconds of a step, bytes per second, and memory."""
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    trainer = Trainer(config, data=data)
    if name == BARE:
        for block in trainer.model.blocks:
            if isinstance(block, ResidualBlock):
                block.mixer = Nothing()
        trainer.optimizer_step = OptimizerStep(trainer.model, config, trainer.world)
    trainer.model.train()
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    times = []
    with float32_products(trainer.device, config.train.tf32):
        for _ in range(6):  # compiled and captured by then
            trainer._train_step()
        wait()
        ready = time.perf_counter() - begin
        for _ in range(turns):
            wait()
            begin = time.perf_counter()
            trainer._train_step()
            wait()
            times.append(time.perf_counter() - begin)
    middle = statistics.median(times)
    found = {
        "milliseconds": 1000 * middle,
        "fastest": 1000 * min(times),
        "bytes_per_second": config.train.batch * config.task.context / middle,
        "peak_memory": torch.cuda.max_memory_allocated() if on_gpu else None,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "seconds_to_start": ready,
        "config": config_to_dict(config),
    }
    trainer.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with enwik8")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--only", help="cases whose name has this in it")
    parser.add_argument("--no-compile", action="store_true", help="captured only: starts sooner")
    parser.add_argument("--smoke", action="store_true", help="tiny; times mean nothing")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "torch": torch.__version__, "commit": commit(), "cases": {},
    }  # fmt: skip
    for name, full in cases().items():
        if arguments.only is not None and arguments.only not in name:
            continue
        config = tiny(full) if arguments.smoke else full
        if arguments.no_compile:
            config = replace(config, train=replace(config.train, compile=False))
        found = measured(name, config, arguments.data, 1 if arguments.smoke else arguments.turns)
        result["cases"][name] = found
        memory = found["peak_memory"]
        print(
            f"{name:32} {found['milliseconds']:7.1f} ms a step, "
            f"{found['bytes_per_second'] / 1000:7.0f} thousand bytes a second, "
            + (f"{memory / 1e9:.1f} GB, " if memory is not None else "")
            + f"{found['parameters'] / 1e6:.2f}M parameters, "
            f"starts in {found['seconds_to_start']:.0f} s",
            flush=True,
        )
        write_result(arguments.out, result)  # after each case, so that a stopped run has results
        torch.compiler.reset()
        gc.collect()  # a trainer's parts know each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
