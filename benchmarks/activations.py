"""Activation memory of a training step, in bytes per token: layers, and blocks of recipes.

    python benchmarks/activations.py --out results/activations/result.json     # seconds, on a CPU

Counted, not timed: the numbers are the same on any machine. In float32.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from common import write_result
from torch import nn

import surnn
from surnn.models.model import SequenceModel
from surnn_recipes import RECIPES

RATES = (1.0, 0.5, 0.25, 0.1, 0.02)
BLOCKS = ("enwik8-sugru", "enwik8-transformer", "enwik8-gru")
STEPS, BATCH, WIDTH, HEADS = 1024, 8, 512, 8
TOKENS = STEPS * BATCH


def layers() -> dict[str, float]:
    """One layer of 8 heads of 64 at several update rates, and torch's."""
    x = torch.zeros(STEPS, BATCH, WIDTH)
    found = {}
    for rate in RATES:
        near = surnn.Surrogate("triangle", 2.0)
        gate = surnn.AlwaysOpen() if rate == 1 else surnn.Rhythm(
            rate=rate, horizon=STEPS, surrogate=near
        )  # fmt: skip
        layer = surnn.SuGRU(WIDTH, WIDTH, heads=HEADS, gate=gate)
        found[f"{rate:g}"] = surnn.activation_bytes(layer, x) / TOKENS
    found["nn.GRU"] = surnn.activation_bytes(torch.nn.GRU(WIDTH, WIDTH), x) / TOKENS
    return found


def blocks() -> dict[str, float]:
    """A block of a recipe's model, with its convolution; for suGRU, a gated block."""
    found = {}
    for name in BLOCKS:
        config = RECIPES[name]()
        kind = replace(config.model, layers=1, ungated_layers=0)
        if kind.max_rate is not None:  # for GPUs only
            kind = replace(kind, max_rate=None)
        task = config.task
        model = SequenceModel(kind, config.gate, task.input, task.output, task.steps)
        x = torch.zeros(STEPS, BATCH, kind.width, requires_grad=True)
        found[name] = surnn.activation_bytes(nn.Sequential(*model.blocks), x) / TOKENS
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Bytes a token that training keeps.")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    result = {"torch": torch.__version__, "layer": layers(), "block": blocks()}
    for what, bytes_ in (*result["layer"].items(), *result["block"].items()):
        print(f"{what:22} {bytes_:8,.0f} bytes a token")
    write_result(arguments.out, result)


if __name__ == "__main__":
    main()
