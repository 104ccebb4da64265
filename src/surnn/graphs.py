"""Work on a GPU without the host in its way: CUDA graphs, and batches made ahead of time."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .tasks.base import Batch

WARM_UP = 3
"""Runs before a capture: kernels are compiled and libraries settle on their algorithms."""
FAR_AHEAD = 8
"""Batches by which the host may be ahead of the device; more would only fill its memory, and be
late to notice a signal or the end of the time."""
MOST_SHAPES = 4
"""Of batches. Each is captured by itself, in memory of its own, so that they must be few."""


class Captured:
    """A function of a batch as a CUDA graph: a few times as it is, then captured, then replayed.

    Batches are copied into the same memory, one for each of a few shapes. What the function leaves
    behind must be left in the same tensors every time.

    Args:
        work: done on a batch, without waiting for the device.
    """

    def __init__(self, work: Callable[[Batch], None]) -> None:
        self.work = work
        self.shapes: dict[tuple[str, ...], OfOneShape] = {}
        self.stream = torch.cuda.Stream()

    def __call__(self, batch: Batch) -> None:
        """Work on this batch."""
        shape = self._shape_of(batch)
        shape.runs += 1
        if shape.runs <= WARM_UP:
            main = torch.cuda.current_stream()
            self.stream.wait_stream(main)
            with torch.cuda.stream(self.stream):
                self.work(shape.given)
            main.wait_stream(self.stream)
            return
        shape.graph = shape.graph or self._capture(shape.given)
        shape.graph.replay()

    def _shape_of(self, batch: Batch) -> "OfOneShape":
        """What is known of such batches, with this one in its memory."""
        form = tuple(map(_form, batch))
        if form in self.shapes:
            for mine, new in zip(self.shapes[form].given, batch, strict=True):
                if mine is not None and new is not None:
                    mine.copy_(new)
        elif len(self.shapes) < MOST_SHAPES:
            self.shapes[form] = OfOneShape(each(batch, torch.Tensor.clone))
        else:
            raise ValueError(
                f"a CUDA graph is of one shape of batch, and after {MOST_SHAPES} others this one "
                f"is {', '.join(form)}; train without --train.cuda-graph"
            )
        return self.shapes[form]

    def _capture(self, given: Batch) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.stream):
                self.work(given)
        except RuntimeError as error:
            first = error.__context__ or error  # what ends a capture is not what went wrong in it
            reason = str(first).strip().splitlines()[0]
            raise ValueError(
                f"this model's update cannot be captured as a CUDA graph ({reason}); train "
                "without --train.cuda-graph"
            ) from error
        return graph


@dataclass
class OfOneShape:
    """What is done with batches of one shape."""

    given: Batch
    """Where they are copied to."""
    runs: int = 0
    graph: torch.cuda.CUDAGraph | None = None


def each(batch: Batch, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
    """A batch of changed tensors."""
    return Batch(*(None if part is None else change(part) for part in batch))  # type: ignore[arg-type]


def _form(part: torch.Tensor | None) -> str:
    return "absent" if part is None else f"{list(part.shape)} {part.dtype}"


class Ahead:
    """Batches by number, on a GPU one ahead, made on a stream of their own.

    Making one may wait for the device, to copy row numbers or to find the longest sequence. On its
    own stream that is not waiting for the model.
    """

    def __init__(self, make: Callable[[int], Batch], device: torch.device) -> None:
        self.make, self.device = make, device
        self.ready: tuple[int, Batch] | None = None
        self.taken: deque[torch.cuda.Event] = deque()
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(device))  # the data are there

    def prepare(self, number: int) -> None:
        """Make batch ``number`` while the device works on the one before."""
        if self.stream is not None:
            with torch.cuda.stream(self.stream):
                self.ready = number, self.make(number)

    def take(self, number: int) -> Batch:
        """Batch ``number``."""
        if self.stream is None:
            return self.make(number)
        if self.ready is None or self.ready[0] != number:
            self.prepare(number)
        assert self.ready is not None
        batch, self.ready = self.ready[1], None
        main = torch.cuda.current_stream(self.device)
        self.taken.append(torch.cuda.Event())
        self.taken[-1].record(main)
        if len(self.taken) > FAR_AHEAD:
            self.taken.popleft().synchronize()
        main.wait_stream(self.stream)
        for part in batch:
            if part is not None:
                part.record_stream(main)  # its memory is in use until the model is done with it
        return batch
