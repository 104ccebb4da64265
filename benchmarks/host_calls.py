"""Counts what a training step asks of the host: operators of torch, and kernels of Triton.

    TRITON_INTERPRET=1 python benchmarks/host_calls.py --out results/host_calls/result.json

On a GPU a small layer waits for the host, which needs some microseconds for each operator (views
and allocations included) and for each launch. Their number does not depend on the device: here
they are counted on a CPU, on the path of Triton's interpreter, which is that of a GPU. Nothing is
timed, and no kernel is executed: the number of events is made up. Each call is attributed to the
innermost function of surnn that made it; the operators that autograd calls between those functions
are under ``autograd``.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import write_result
from torch.utils._python_dispatch import TorchDispatchMode

import surnn
from surnn.nn import kernel_launch
from surnn.nn.runtime import is_interpreted
from surnn.scan.triton import lists

STEPS, BATCH, FEATURES, WIDTH = 128, 64, 64, 64
CASES: dict[str, Callable[[], torch.nn.Module]] = {
    "GRU, 4 heads, clock gates": lambda: _layer(heads=4),
    "GRU, 4 heads, input gates": lambda: _layer(heads=4, gate=surnn.InputGate(rate=0.17)),
    "GRU, as it comes (one head, a clock for each unit)": lambda: _layer(heads=1),
    "GRU, 4 heads, clock gates, three layers": lambda: _layer(heads=4, num_layers=3),
    "LSTM, 4 heads, clock gates": lambda: _layer(surnn.SuLSTM, heads=4),
}
PACKAGE = str(Path(surnn.__file__).parent)


def _layer(kind: Any = surnn.SuGRU, **options: Any) -> torch.nn.Module:
    options = {"gate": surnn.Rhythm(rate=0.17, horizon=STEPS), **options}
    return kind(FEATURES, WIDTH, backend="triton", **options)


class CallCounter(TorchDispatchMode):
    """Operators and launches by place; launches do nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.operators, self.launches = Counter[str](), Counter[str]()
        self._is_counting = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._is_counting:
            self.operators[f"{_place()}: {func.overloadpacket.__name__}"] += 1
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> "CallCounter":
        self._interpret = kernel_launch.interpret
        kernel_launch.interpret = self._launch
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        kernel_launch.interpret = self._interpret
        super().__exit__(*error)

    def _launch(self, kernel: Any, *arguments: Any) -> None:  # grid, arguments, constants
        self.launches[f"{_place()}: {kernel.__name__}"] += 1
        if kernel.fn.__module__ == lists.__name__:
            self._is_counting = False
            for value in arguments[1]:
                if isinstance(value, torch.Tensor) and value.dtype == torch.int64:
                    value.fill_(STEPS)  # a number of events
            self._is_counting = True

    def result(self) -> dict[str, Any]:
        """The counts, totals first."""
        counts = {"operators": self.operators, "launches": self.launches}
        totals = {name: count.total() for name, count in counts.items()}
        return totals | {f"{name} by place": dict(count) for name, count in counts.items()}


def _place() -> str:
    """The innermost function of surnn on the stack, but the launcher."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(PACKAGE) and not file.endswith("kernel_launch.py"):
            return f"{Path(file).relative_to(PACKAGE)} {frame.f_code.co_name}"
        frame = frame.f_back
    return "autograd"


def count(make: Callable[[], torch.nn.Module]) -> dict[str, Any]:
    """Counts of a forward and a backward pass, and of a forward pass without gradients."""
    torch.manual_seed(0)
    layer = make()
    x = torch.randn(STEPS, BATCH, FEATURES, requires_grad=True)
    by_y = torch.randn(STEPS, BATCH, WIDTH)
    with CallCounter():  # afterwards, everything that is kept between steps is there
        layer(x)[0].backward(by_y)
    layer.zero_grad()
    x.grad = None
    with CallCounter() as forward:
        y, _ = layer(x)
    with CallCounter() as backward:
        y.backward(by_y)
    with torch.no_grad(), CallCounter() as alone:
        layer(x)
    passes = {"forward": forward, "backward": backward, "forward without gradients": alone}
    return {name: counter.result() for name, counter in passes.items()}


def main() -> None:
    """Print a table, and write all counts if asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the counts here, as JSON")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    if not is_interpreted():
        raise SystemExit("set TRITON_INTERPRET=1: the kernels must run in Triton's interpreter")
    print(f"{'operators + launches':50s}  forward   backward  without gradients")
    cases = {}
    for name, make in CASES.items():
        if arguments.only not in name:
            continue
        cases[name] = count(make)
        each = [f"{c['operators']:4d} + {c['launches']:2d}" for c in cases[name].values()]
        print(f"{name:50s}", *each, sep="  ", flush=True)
    shape = {"steps": STEPS, "batch": BATCH, "features": FEATURES, "width": WIDTH}
    result = {"torch": torch.__version__, "shape": shape, "cases": cases}
    write_result(arguments.out, result)


if __name__ == "__main__":
    main()
