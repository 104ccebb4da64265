"""Processes that train together, started by torchrun; or one alone, which is the same code.

Tensors are summed where they are, without the host. What hosts agree on, such as whether to stop,
goes from host to host (gloo), so that no GPU is waited for.
"""

import gc
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel


class FailedElsewhere(RuntimeError):
    """Another process failed; this is what it said."""


@dataclass(frozen=True)
class World:
    """Who takes part."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def first(self) -> bool:
        """Whether this process keeps the record."""
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

        # Blocks give views, and nothing changes these in place.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
        mesh = init_device_mesh(device.type, (self.size,))
        for block in model.blocks:  # type: ignore[union-attr]
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model

    def accumulating(self, model: nn.Module, more: bool) -> AbstractContextManager:
        """While more parts of a batch are to come, gradients stay where they are."""
        if isinstance(model, DistributedDataParallel):
            return model.no_sync() if more else nullcontext()
        if hasattr(model, "set_requires_gradient_sync"):
            model.set_requires_gradient_sync(not more)  # type: ignore[operator]
        return nullcontext()

    def sum(self, value: Tensor) -> Tensor:
        """Over all processes."""
        if self.size == 1:
            return value
        value = value.clone()
        distributed.all_reduce(value)
        return value

    # ------------------------------------------------------------ from host to host

    def largest(self, *mine: float) -> list[float]:
        """The largest of every process's numbers, one by one."""
        if self.size == 1:
            return list(mine)
        numbers = torch.tensor(mine, dtype=torch.float64)
        distributed.all_reduce(numbers, distributed.ReduceOp.MAX)
        return numbers.tolist()

    def any(self, mine: bool) -> bool:
        """Whether any process says so: all must do the same."""
        return self.largest(float(mine))[0] > 0

    def gather(self, mine: Any) -> list[Any]:
        """What every process has, by rank."""
        found = [mine] * self.size
        if self.size > 1:
            distributed.all_gather_object(found, mine)
        return found

    @contextmanager
    def failing_together(self) -> Iterator[None]:
        """What fails in one process in here fails in all, instead of leaving the others waiting.

        All must enter, and inside there must be nothing that they do together.
        """
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            failure = error
        said = self.gather(None if failure is None else str(failure) or repr(failure))
        if failure is not None:
            raise failure
        told = [f"process {rank} failed: {text}" for rank, text in enumerate(said) if text]
        if told:
            raise FailedElsewhere("; ".join(told))


def synchronised_norms(model: nn.Module, device: torch.device) -> nn.Module:
    """BatchNorm's statistics over the whole batch, not over one process's part of it."""
    if not any(isinstance(m, _BatchNorm) for m in model.modules()):
        return model
    if device.type == "cpu":
        raise ValueError(
            "batch norm over several processes needs GPUs, torch has it for nothing else; use "
            "--model.norm layer, or one process"
        )
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)


def join() -> World:
    """The world that torchrun has set up for this process; alone without it."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return World()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    cuda = torch.cuda.is_available()
    if cuda and local < torch.cuda.device_count():
        torch.cuda.set_device(local)
    if not distributed.is_initialized():
        distributed.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    return World(distributed.get_rank(), distributed.get_world_size(), local)


def leave(*, together: bool = True) -> None:
    """Say goodbye to the others; ``together`` waits for them, which after an error may be vain."""
    if not distributed.is_initialized():
        return
    gc.collect()  # wrapped models in cycles would outlive the group, and end the process badly
    if together:
        distributed.all_reduce(torch.zeros(()))  # not a barrier: that would ask for GPUs
    distributed.destroy_process_group()
    # gloo's threads live on, and let go of the last tensors only when Python lets them; one that
    # still waits for that when Python ends would abort the process.
    time.sleep(0.1)
