"""Processes that train together, started by torchrun; a single process runs the same code.

Tensors are summed on their devices. Decisions of the hosts, such as whether to stop, go from host
to host (gloo), so that they do not wait for a GPU.
"""

import gc
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from surnn.errors import ConfigError, SurnnError

TIMEOUT = 1800.0
"""Seconds to wait for another process, by default: it may be preparing data."""


class RemoteFailure(SurnnError, RuntimeError):
    """Another process failed; the message is that of its error."""


@dataclass(frozen=True)
class World:
    """The processes of a run, and the place of this one."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this process (rank 0) writes the run folder and prints."""
        return self.rank == 0

    # ------------------------------------------------------------ the model

    def wrap(self, model: nn.Module, shard: bool = False) -> nn.Module:
        """The model whose gradients are averaged over all processes.

        ``shard`` divides its weights among them too, block by block (FSDP2), in place.
        """
        if self.size == 1:
            return model
        device = next(model.parameters()).device
        model = synchronised_norms(model, device)
        if not shard:
            ids = [self.local_rank] if device.type == "cuda" else None
            return DistributedDataParallel(model, device_ids=ids)
        from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 (slow to import)
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

        # Blocks return views; nothing changes them in place.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
        mesh = init_device_mesh(device.type, (self.size,))
        for block in model.blocks:  # type: ignore[union-attr]
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model

    def defer_gradient_sync(self, model: nn.Module, more: bool) -> AbstractContextManager:
        """Do not average gradients over processes while ``more`` parts of the batch follow."""
        if isinstance(model, DistributedDataParallel):
            return model.no_sync() if more else nullcontext()
        if hasattr(model, "set_requires_gradient_sync"):
            model.set_requires_gradient_sync(not more)  # type: ignore[operator]
        return nullcontext()

    def sum(self, value: Tensor) -> Tensor:
        """Sum over all processes."""
        if self.size == 1:
            return value
        value = value.clone()
        distributed.all_reduce(value)
        return value

    # ------------------------------------------------------------ from host to host

    def largest(self, *own: float) -> list[float]:
        """The maximum of each number over all processes."""
        if self.size == 1:
            return list(own)
        numbers = torch.tensor(own, dtype=torch.float64)
        distributed.all_reduce(numbers, distributed.ReduceOp.MAX)
        return numbers.tolist()

    def any(self, value: bool) -> bool:
        """True if ``value`` is true in at least one process. All processes must call it."""
        return self.largest(float(value))[0] > 0

    def gather(self, own: Any) -> list[Any]:
        """The objects of all processes, by rank."""
        objects = [own] * self.size
        if self.size > 1:
            distributed.all_gather_object(objects, own)
        return objects

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """Raise in all processes if the block fails in one, instead of leaving the others waiting.

        All processes must enter, and the block must not communicate between them.
        """
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        messages = self.gather(None if failure is None else str(failure) or repr(failure))
        if failure is not None:
            raise failure
        failures = [f"process {rank} failed: {text}" for rank, text in enumerate(messages) if text]
        if failures:
            raise RemoteFailure("; ".join(failures))


def synchronised_norms(model: nn.Module, device: torch.device) -> nn.Module:
    """Compute batch-norm statistics over the whole batch, not over each process's part."""
    if not any(isinstance(m, _BatchNorm) for m in model.modules()):
        return model
    if device.type == "cpu":
        raise ConfigError(
            "torch synchronises batch norm over several processes on GPUs only; use --model.norm "
            "layer, or one process"
        )
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)


def join(timeout: float = TIMEOUT) -> World:
    """The world that torchrun set up for this process; without torchrun, this process alone.

    A process that waits for another one longer than ``timeout`` seconds fails.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return World()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    cuda = torch.cuda.is_available()
    if cuda and local < torch.cuda.device_count():
        torch.cuda.set_device(local)
    if not distributed.is_initialized():
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=timedelta(seconds=timeout)
        )
    return World(distributed.get_rank(), distributed.get_world_size(), local)


def leave(*, together: bool = True) -> None:
    """Leave the process group. ``together=True`` waits for the others; use False after an error."""
    if not distributed.is_initialized():
        return
    gc.collect()  # models in reference cycles would outlive the group and crash at exit
    if together:
        distributed.all_reduce(torch.zeros(()))  # not a barrier, which needs GPUs
    distributed.destroy_process_group()
    # gloo's threads release the last tensors under Python's lock; one that still waits for it when
    # Python exits would abort the process.
    time.sleep(0.1)


@contextmanager
def world_context(timeout: float = TIMEOUT) -> Iterator[World]:
    """Join the world of this process; leave it at the end of the context."""
    world = join(timeout)
    try:
        yield world
    except Exception as error:
        leave(together=False)
        if world.size > 1 and _is_timeout(error):
            raise RemoteFailure(
                f"another process did not answer for {timeout:g} seconds (--train.timeout): it "
                "stalled or was killed. Stop the other processes of the run, and resume it"
            ) from error
        raise
    leave()


def _is_timeout(error: Exception) -> bool:
    """Whether a backend gave up waiting. All of them raise RuntimeError."""
    words = ("timed out", "timeout", "connection closed by peer", "connection reset by peer")
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)
