"""How many products does a model see until it multiplies in a group?

    python benchmarks/group_products.py --heads 2 --width 256 --out result.json
    python benchmarks/group_products.py --smoke

Sequences are elements without noise, gates are open, and every element has a target: the product so
far. The number of elements grows from stage to stage, whenever the moving average of the accuracy
at the last one passes 99 %. A product is a target after the first element of a sequence.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from common import write_result
from torch.nn import functional

from surnn.config import AlwaysOpenConfig, ModelConfig
from surnn.models.model import SequenceModel
from surnn.models.signature import Output, Tokens
from surnn.tasks.state_tracking import multiplication_table, prefix_products

STAGES = (2, 3, 4, 6, 12)
"""Elements per sequence."""
SOLVED, SMOOTHING = 0.99, 0.8
"""Accuracy that ends a stage, and the weight of the past in its average."""
WARM_UP, CLIP = 50, 1.0
OTHER_TOKENS = 9
"""Noise and the last token, which the task has too."""


def learn(options: argparse.Namespace) -> dict[str, Any]:
    """Train until the stages are solved or the time is over; where each stage ended."""
    torch.manual_seed(options.seed)
    table = multiplication_table(options.group)
    order = len(table)
    config = ModelConfig(
        options.kind, layers=options.layers, width=options.width, heads=options.heads,
        block=options.block,
    )  # fmt: skip
    inputs, output = Tokens(order + OTHER_TOKENS), Output(order, "step")
    model = SequenceModel(config, AlwaysOpenConfig(), inputs, output, steps=64)
    optimizer = torch.optim.AdamW(
        model.parameters(), options.lr, betas=(0.9, 0.95), weight_decay=0.0
    )
    random = torch.Generator().manual_seed(options.seed + 1)
    stages, step, products, average = list(options.stages), 0, 0, None
    solved: list[dict[str, Any]] = []
    begin = time.process_time()
    while stages and time.process_time() - begin < options.seconds:
        for group in optimizer.param_groups:
            group["lr"] = options.lr * min(1, (step + 1) / WARM_UP)
        shape = (options.batch, stages[0])
        elements = torch.randint(order, shape, generator=random)
        target = prefix_products(elements, table)
        scores = model(elements)
        loss = functional.cross_entropy(scores.float().flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        step, products = step + 1, products + options.batch * (stages[0] - 1)
        right = (scores[:, -1].argmax(-1) == target[:, -1]).float().mean().item()
        average = right if average is None else SMOOTHING * average + (1 - SMOOTHING) * right
        if average >= SOLVED:
            cpu = round(time.process_time() - begin)
            solved.append({"elements": stages.pop(0), "steps": step, "products": products,
                           "cpu_seconds": cpu})  # fmt: skip
            print(solved[-1], flush=True)
            average = None
    return {
        "options": {key: value for key, value in vars(options).items() if key != "out"},
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "solved": solved, "steps": step, "products": products,
        "next": {"elements": stages[0], "accuracy": average} if stages else None,
    }  # fmt: skip


def main() -> None:
    """Parse the arguments, train, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--kind", default="sugru", choices=("sugru", "sulstm", "surnn"))
    parser.add_argument("--group", default="A5")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, help="default: heads of 16")
    parser.add_argument("--block", default="stack", choices=("stack", "residual"))
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--stages", type=int, nargs="+", default=STAGES)
    parser.add_argument("--seconds", type=float, default=100.0, help="of processor time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the record to this file")
    parser.add_argument("--smoke", action="store_true", help="parity by a small model")
    options = parser.parse_args()
    if options.smoke:
        options.group, options.width, options.stages, options.batch = "Z2", 32, (2,), 64
    torch.set_num_threads(1)
    write_result(options.out, learn(options))


if __name__ == "__main__":
    main()
