"""An optimizer step as a CUDA graph: captured once for each batch shape, then replayed."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from surnn.errors import ConfigError
from surnn.tasks.base import Batch

WARM_UP = 3
"""Runs before a capture, in which kernels are compiled and libraries select algorithms."""
MAX_SHAPES = 4
"""Most batch shapes. Each has its own graph and memory, so there must be few."""


class GraphedStep:
    """A function of a batch as a CUDA graph: run a few times, then captured, then replayed.

    Batches are copied into static memory, one buffer for each of a few shapes. The function must
    leave its results in the same tensors every time.

    Args:
        function: works on a batch without waiting for the device.
    """

    def __init__(self, function: Callable[[Batch], None]) -> None:
        self.function = function
        self.shapes: dict[tuple[str, ...], ShapeGraph] = {}
        self.cuda_stream = torch.cuda.Stream()

    def __call__(self, batch: Batch) -> None:
        """Run the function on this batch."""
        shape = self._load(batch)
        shape.runs += 1
        if shape.runs <= WARM_UP:
            main = torch.cuda.current_stream()
            self.cuda_stream.wait_stream(main)
            with torch.cuda.stream(self.cuda_stream):
                self.function(shape.batch)
            main.wait_stream(self.cuda_stream)
            return
        shape.graph = shape.graph or self._capture(shape.batch)
        shape.graph.replay()

    def _load(self, batch: Batch) -> "ShapeGraph":
        """The graph of the batch's shape, with the batch in its memory."""
        key = tuple(map(_describe, batch))
        if key in self.shapes:
            for static, new in zip(self.shapes[key].batch, batch, strict=True):
                if static is not None and new is not None:
                    static.copy_(new)
        elif len(self.shapes) < MAX_SHAPES:
            self.shapes[key] = ShapeGraph(map_tensors(batch, torch.Tensor.clone))
        else:
            raise ConfigError(
                f"each batch shape needs a CUDA graph of its own, and after {MAX_SHAPES} shapes "
                f"this batch is {', '.join(key)}; leave out --train.cuda-graph"
            )
        return self.shapes[key]

    def _capture(self, batch: Batch) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.cuda_stream):
                self.function(batch)
        except RuntimeError as error:
            cause = error.__context__ or error  # the end of a capture hides the first error
            reason = str(cause).strip().splitlines()[0]
            raise ConfigError(
                f"a step of this model cannot be captured as a CUDA graph ({reason}); leave out "
                "--train.cuda-graph"
            ) from error
        return graph


@dataclass
class ShapeGraph:
    """The graph for batches of one shape."""

    batch: Batch
    """The memory that batches are copied to."""
    runs: int = 0
    graph: torch.cuda.CUDAGraph | None = None


def map_tensors(batch: Batch, function: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
    """Apply ``function`` to every tensor of a batch."""
    return Batch(*(None if part is None else function(part) for part in batch))  # type: ignore[arg-type]


def _describe(part: torch.Tensor | None) -> str:
    return "absent" if part is None else f"{list(part.shape)} {part.dtype}"
