"""Layers of other packages, in the form of :mod:`torch.nn`: x [T, B, I] to y [T, B, H].

All packages are optional; a missing one raises ImportError when its layer is built. Batch-first
layers read the same memory as [B, T, I]: the numbers are random, and a transposition would only
cost time.
"""

import math
from importlib import import_module

import torch
from torch import Tensor, nn
from torch.nn import functional


class LogSpaceMinGRU(nn.Module):
    """minGRU (Feng et al., 2024) as published: no recurrent matrix, a scan in log space.

    Uses the parallel scan of Heinsen (2023). surnn's own baseline is slower and more exact.
    """

    def __init__(self, features: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.gates = nn.Linear(features, 2 * hidden)

    def forward(self, x: Tensor) -> Tensor:
        update, new = self.gates(x).float().chunk(2, -1)
        positive = (functional.relu(new) + 0.5).log()
        log_new = torch.where(new >= 0, positive, -functional.softplus(-new))
        log_keep = (-functional.softplus(update)).cumsum(0)
        log_write = log_new - functional.softplus(-update)
        return (log_keep + (log_write - log_keep).logcumsumexp(0)).exp().to(x.dtype)


class FlashLSTM(nn.Module):
    """LSTM by ``flashrnn`` (Pöppel et al., 2024), in its Triton kernels."""

    def __init__(self, features: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.run = import_module("flashrnn").flashrnn
        width = hidden // heads
        self.shape = (4, heads, width)
        self.project = nn.Linear(features, 4 * hidden, bias=False)
        self.recurrent = nn.Parameter(torch.randn(4, heads, width, width) / math.sqrt(width))
        self.bias = nn.Parameter(torch.zeros(self.shape))

    def forward(self, x: Tensor) -> Tensor:
        batch_first = x.view(x.shape[1], x.shape[0], -1)
        drive = self.project(batch_first).unflatten(-1, self.shape)
        kind = str(x.dtype).removeprefix("torch.")
        states, _ = self.run(
            drive, self.recurrent, self.bias, function="lstm", backend="triton_fused", dtype=kind
        )
        return states[0].reshape(*x.shape[:2], -1)


class HGRN(nn.Module):
    """HGRN's scan (Qin et al., 2023) by ``flash-linear-attention``; no recurrent matrix."""

    def __init__(self, features: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.run = import_module("fla.ops.hgrn").chunk_hgrn
        self.project = nn.Linear(features, 2 * hidden)

    def forward(self, x: Tensor) -> Tensor:
        new, forget = self.project(x.view(x.shape[1], x.shape[0], -1)).chunk(2, -1)
        log_forget = functional.logsigmoid(forget.float())
        new = functional.silu(new) * (1 - log_forget.exp()).to(new.dtype)
        y, _ = self.run(new, log_forget)
        return y.reshape(*x.shape[:2], -1)


PEERS: dict[str, type[nn.Module]] = {"mingru": LogSpaceMinGRU, "flashrnn": FlashLSTM, "hgrn": HGRN}
