"""Processes that train together, started by torchrun; or one alone, which is the same code."""

import gc
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel


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

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model whose gradients are averaged over all processes."""
        if self.size == 1:
            return model
        cuda = next(model.parameters()).is_cuda
        return DistributedDataParallel(model, device_ids=[self.local_rank] if cuda else None)

    def accumulating(self, model: nn.Module, more: bool) -> AbstractContextManager:
        """While more parts of a batch are to come, gradients stay where they are."""
        if more and isinstance(model, DistributedDataParallel):
            return model.no_sync()
        return nullcontext()

    def mean(self, value: Tensor) -> Tensor:
        """Over all processes."""
        if self.size == 1:
            return value
        value = value.clone()
        distributed.all_reduce(value)
        return value / self.size

    def any(self, mine: bool) -> bool:
        """Whether any process says so: all must do the same."""
        if self.size == 1:
            return mine
        flag = torch.tensor(float(mine))
        if distributed.get_backend() == "nccl":
            flag = flag.cuda()
        distributed.all_reduce(flag, distributed.ReduceOp.MAX)
        return bool(flag)


def join() -> World:
    """The world that torchrun has set up for this process; alone without it."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return World()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(local)
    if not distributed.is_initialized():
        distributed.init_process_group("nccl" if cuda else "gloo")
    return World(distributed.get_rank(), distributed.get_world_size(), local)


def leave(*, together: bool = True) -> None:
    """Say goodbye to the others; ``together`` waits for them, which after an error may be vain."""
    if not distributed.is_initialized():
        return
    gc.collect()  # wrapped models in cycles would outlive the group, and end the process badly
    if together:
        distributed.barrier()
    distributed.destroy_process_group()
