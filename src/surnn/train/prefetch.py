"""Batches made ahead of time, on their own CUDA stream."""

from collections import deque
from collections.abc import Callable

import torch

from surnn.tasks.base import Batch

MAX_AHEAD = 8
"""Batches by which the host may run ahead of the device. More would fill its memory and delay the
reaction to a signal or to the end of a time budget."""


class BatchPrefetcher:
    """Batches by number; on a GPU the next one is made ahead, on its own CUDA stream.

    Making a batch may wait for the device, to copy row numbers or to find the longest sequence. On
    its own stream this does not wait for the model.

    Args:
        make: makes a batch from its number.
        device: the device of the batches.
    """

    def __init__(self, make: Callable[[int], Batch], device: torch.device) -> None:
        self.make, self.device = make, device
        self.ready: tuple[int, Batch] | None = None
        self.used: deque[torch.cuda.Event] = deque()
        self.cuda_stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self.cuda_stream is not None:
            self.cuda_stream.wait_stream(torch.cuda.current_stream(device))  # the data are loaded

    def prepare(self, number: int) -> None:
        """Make batch ``number`` while the device works on the one before."""
        if self.cuda_stream is not None:
            with torch.cuda.stream(self.cuda_stream):
                self.ready = number, self.make(number)

    def take(self, number: int) -> Batch:
        """Batch ``number``, made now or ahead."""
        if self.cuda_stream is None:
            return self.make(number)
        if self.ready is None or self.ready[0] != number:
            self.prepare(number)
        assert self.ready is not None
        batch, self.ready = self.ready[1], None
        main = torch.cuda.current_stream(self.device)
        self.used.append(torch.cuda.Event())
        self.used[-1].record(main)
        if len(self.used) > MAX_AHEAD:
            self.used.popleft().synchronize()
        main.wait_stream(self.cuda_stream)
        for part in batch:
            if part is not None:
                part.record_stream(main)  # its memory stays reserved until the model has used it
        return batch
