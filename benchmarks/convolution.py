"""Times a convolution, forward and backward: ours, shifted sums, and torch's own.

    python benchmarks/convolution.py                        # on a GPU, or smaller on a CPU
    python benchmarks/convolution.py --taps 12 65 --steps 1024

All take turns in one process, uncompiled, in bfloat16; medians in milliseconds.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from surnn.models import blocks

TIMES = 15


def shifted(seen: Tensor, taps: Tensor) -> Tensor:
    kept = len(taps)
    terms = (
        taps[kept - back] * seen[kept - back : len(seen) - back] for back in range(1, kept + 1)
    )
    return sum(terms, torch.zeros_like(seen[kept:]))


def of_torch(seen: Tensor, taps: Tensor) -> Tensor:
    features = seen[:-1].permute(1, 2, 0)
    return functional.conv1d(features, taps.t().unsqueeze(1), groups=len(features[0])).permute(
        2, 0, 1
    )


WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "bands": blocks._banded, "windows": blocks._windowed, "shifted": shifted, "conv1d": of_torch,
}  # fmt: skip


def milliseconds(way: Callable[[Tensor, Tensor], Tensor], seen: Tensor, taps: Tensor) -> float:
    begin = time.perf_counter()
    torch.autograd.grad(way(seen, taps).float().square().sum(), (seen, taps))
    if seen.is_cuda:
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--taps", type=int, nargs="+", default=[4, 10, 33, 65])
    parser.add_argument("--steps", type=int, nargs="+", default=[8, 64, 1024])
    parser.add_argument("--batch", type=int, default=128 if on_gpu else 8)
    parser.add_argument("--width", type=int, default=256 if on_gpu else 64)
    chosen = parser.parse_args()
    print(f"{torch.cuda.get_device_name() if on_gpu else 'cpu'}, torch {torch.__version__}, batch "
          f"{chosen.batch}, width {chosen.width}")  # fmt: skip
    print(f"{'taps':>6}{'steps':>7}" + "".join(f"{name:>10}" for name in WAYS))
    where = {"device": "cuda" if on_gpu else "cpu", "dtype": torch.bfloat16}
    for count in chosen.taps:
        for steps in chosen.steps:
            taps = torch.randn(count - 1, chosen.width, **where).mul_(0.05).requires_grad_()
            shape = (steps + count - 1, chosen.batch, chosen.width)
            seen = torch.randn(shape, **where).requires_grad_()
            for way in WAYS.values():
                milliseconds(way, seen, taps)
            taken = [[milliseconds(way, seen, taps) for way in WAYS.values()] for _ in range(TIMES)]
            medians = (statistics.median(column) for column in zip(*taken, strict=True))
            print(f"{count:>6}{steps:>7}" + "".join(f"{value:10.2f}" for value in medians))


if __name__ == "__main__":
    main()
