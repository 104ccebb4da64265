"""Times one contestant in one mode: eager, or as a CUDA graph.

A turn is a forward pass (with autograd, without backward) and a training step: forward and backward
into weights, gates and x, from a fixed random gradient of y. Gradients start as None, in a graph
too: the captured step then overwrites them, and nothing has to be zeroed.
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
from .contestants import LayerInstance

# Untimed steps; another one follows when all contestants are ready.
WARM_UPS = 2
# Approximate seconds per contestant; each has at least three turns, unless it asks for fewer.
SECONDS = 1.5
FEWEST_TURNS = 3


def milliseconds(call: Callable[[], Any], device: torch.device) -> float:
    """Time of one call on an idle device, including the host's work."""
    if device.type != "cuda":
        begin = time.perf_counter()
        result = call()
        took = 1e3 * (time.perf_counter() - begin)
    else:
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        result = call()
        end.record()
        end.synchronize()
        took = begin.elapsed_time(end)
    del result  # freed after the clock has stopped
    return took


def allocated(device: torch.device) -> int:
    """Bytes of GPU memory in use; 0 on a CPU."""
    return torch.cuda.memory_allocated() if device.type == "cuda" else 0


def explain(error: Exception) -> str:
    """An error as text for the results, without paths of this machine."""
    if isinstance(error, ModuleNotFoundError):
        return f"not run: the package {error.name} is not installed"
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return re.sub(r"(?:/[\w.+-]+)+/", ".../", text)[:600]


class Job(ABC):
    """Times of one contestant in one mode.

    Args:
        layer: the layer and its facts.
        x: input, shared by all contestants of that dtype.
        grad_y: the loss's gradient, likewise.
        turns: the largest number of timed turns.
    """

    mode: Mode

    def __init__(self, layer: LayerInstance, x: Tensor, grad_y: Tensor, turns: int) -> None:
        self.layer = layer
        self.x = x.detach().requires_grad_()  # a separate leaf on the same memory
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
        """Warm up, measure memory, and check that outputs are finite."""

    @abstractmethod
    def forward(self) -> Any:
        """The timed forward pass."""

    @abstractmethod
    def step(self) -> Any:
        """The timed forward and backward pass."""

    def turn(self) -> None:
        """Time both once."""
        self.clear()
        self.fwd_ms.append(milliseconds(self.forward, self.device))
        self.clear()
        self.fwd_bwd_ms.append(milliseconds(self.step, self.device))
        self.clear()

    def rehearse(self) -> None:
        """An untimed turn: the preparation of others may have taken this one's cached memory."""
        self.turn()
        self.fwd_ms.clear()
        self.fwd_bwd_ms.clear()

    def clear(self) -> None:
        """Set gradients to None."""
        self.layer.module.zero_grad(set_to_none=True)
        self.x.grad = None

    def _outputs(self) -> Tensor:
        result = self.layer.module(self.x)
        return result[0] if isinstance(result, tuple) else result

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
                "outputs are not finite; in a graph, there may be more events than max_rate allows"
            )


class EagerJob(Job):
    """The layer called from Python."""

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
def _capture_cuda_stream() -> torch.cuda.Stream:
    """The CUDA stream for captures. One for all, because cuBLAS holds memory for every stream."""
    return torch.cuda.Stream()


class GraphJob(Job):
    """The same step captured once as a CUDA graph and replayed without the host.

    Its memory is that of the capture. Both graphs share a pool, so that the forward graph needs no
    second set of buffers.
    """

    mode = "graph"

    def prepare(self) -> None:
        here, side = torch.cuda.current_stream(), _capture_cuda_stream()
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
