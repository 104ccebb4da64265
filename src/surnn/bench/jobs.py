"""One contestant in one mode, ready to take its turns: eager, or as a CUDA graph.

A turn is a forward pass (recording for gradients, no backward) and a training step: forward and
backward into weights, gates and x, from a fixed random gradient of y. Gradients start as None, in a
graph too: what is captured then writes them instead of adding to them, and nothing needs zeroing.
"""

import functools
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .cases import Mode
from .contestants import Built

# Before the clock runs; one more warm-up comes when all contestants are ready.
WARM_UPS = 2
# A contestant is given about so many seconds, and three turns in any case, unless it asks for less.
SECONDS = 1.5
FEWEST_TURNS = 3


def milliseconds(call: Callable[[], Any], device: torch.device) -> float:
    """Time of one call on an idle device, whatever the host does for it included."""
    if device.type != "cuda":
        begin = time.perf_counter()
        kept = call()
        took = 1e3 * (time.perf_counter() - begin)
    else:
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        kept = call()
        end.record()
        end.synchronize()
        took = begin.elapsed_time(end)
    del kept  # freeing a pass's memory is not part of it
    return took


def allocated(device: torch.device) -> int:
    """Bytes of GPU memory in use; 0 on a CPU."""
    return torch.cuda.memory_allocated() if device.type == "cuda" else 0


def explain(error: Exception) -> str:
    """An error as text for the results: what it says, without this machine's folders."""
    if isinstance(error, ModuleNotFoundError):
        return f"not run: the package {error.name} is not installed"
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return re.sub(r"(?:/[\w.+-]+)+/", ".../", text)[:600]


class Job(ABC):
    """Times of one contestant in one mode.

    Args:
        built: the layer.
        x: input, shared by all contestants of that dtype.
        grad_y: the loss's gradient, likewise.
        turns: how often it is timed, at most.
    """

    mode: Mode

    def __init__(self, built: Built, x: Tensor, grad_y: Tensor, turns: int) -> None:
        self.built = built
        self.x = x.detach().requires_grad_()  # a leaf of its own on the same memory
        self.grad_y = grad_y
        self.turns = turns
        self.fwd_ms: list[float] = []
        self.fwd_bwd_ms: list[float] = []
        self.before = self.peak = 0

    @property
    def device(self) -> torch.device:
        return self.x.device

    @abstractmethod
    def prepare(self) -> None:
        """Warm up, measure memory, and check that what comes out is finite."""

    @abstractmethod
    def forward(self) -> Any:
        """What is timed as forward."""

    @abstractmethod
    def step(self) -> Any:
        """What is timed as forward and backward."""

    def turn(self) -> None:
        """Time both, once."""
        self.clear()
        self.fwd_ms.append(milliseconds(self.forward, self.device))
        self.clear()
        self.fwd_bwd_ms.append(milliseconds(self.step, self.device))
        self.clear()

    def rehearse(self) -> None:
        """A turn that does not count: preparing others may have taken this one's cached memory."""
        self.turn()
        self.fwd_ms.clear()
        self.fwd_bwd_ms.clear()

    def clear(self) -> None:
        """Forget gradients."""
        self.built.module.zero_grad(set_to_none=True)
        self.x.grad = None

    def _outputs(self) -> Tensor:
        found = self.built.module(self.x)
        return found[0] if isinstance(found, tuple) else found

    def _train(self) -> Tensor:
        y = self._outputs()
        y.backward(self.grad_y)
        return y.detach()

    def _start_memory(self) -> None:
        self.clear()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.before = allocated(self.device)

    def _stop_memory(self) -> None:
        if self.device.type == "cuda":
            self.peak = torch.cuda.max_memory_allocated()

    def _limit_turns(self, step_ms: float) -> None:
        affordable = int(1e3 * SECONDS / max(step_ms, 1e-6))
        self.turns = min(self.turns, max(FEWEST_TURNS, affordable))

    def _check(self, y: Tensor) -> None:
        if not torch.isfinite(y).all():
            raise ArithmeticError(
                "outputs are not finite; of a graph: more updates than max_rate has room for?"
            )


class EagerJob(Job):
    """As Python calls it."""

    mode = "eager"

    def prepare(self) -> None:
        took = 0.0
        for _ in range(WARM_UPS):  # the first compiles
            self.clear()
            took = milliseconds(self._train, self.device)
        self._limit_turns(took)
        self._start_memory()
        self._train()
        self._stop_memory()
        self.clear()
        self._check(self._outputs())

    def forward(self) -> Tensor:
        return self._outputs()

    def step(self) -> Tensor:
        return self._train()


@functools.cache
def _side_stream() -> torch.cuda.Stream:
    """Where graphs are captured. One for all, since cuBLAS keeps memory for every stream."""
    return torch.cuda.Stream()


class GraphJob(Job):
    """The same step captured once as a CUDA graph and replayed: no host in it.

    Its memory is what the capture took. Both graphs share a pool, so that forward alone does not
    hold a second set of buffers.
    """

    mode = "graph"

    def prepare(self) -> None:
        here, side = torch.cuda.current_stream(), _side_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self.clear()
                self._train()
        here.wait_stream(side)
        self._start_memory()
        self.step_graph, self.forward_graph = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.step_graph, stream=side):
            y = self._train()
        self._stop_memory()
        with torch.cuda.graph(self.forward_graph, pool=self.step_graph.pool(), stream=side):
            dropped = self._outputs()
        del dropped
        self.step()
        self._limit_turns(milliseconds(self.step, self.device))
        self._check(y)

    def turn(self) -> None:
        """The gradients belong to the graph, which overwrites them: nothing to clear."""
        self.fwd_ms.append(milliseconds(self.forward, self.device))
        self.fwd_bwd_ms.append(milliseconds(self.step, self.device))

    def forward(self) -> None:
        self.forward_graph.replay()

    def step(self) -> None:
        self.step_graph.replay()
