"""Whether kernels may be launched right here, or someone looks on who needs plain operations."""

import importlib.util
from functools import cache

import torch
from torch import Tensor


@cache
def has_triton() -> bool:
    """Whether the package triton is installed (it is not imported to find out)."""
    return importlib.util.find_spec("triton") is not None


def is_traced(x: Tensor) -> bool:
    """A compiler, a function transform, or a tensor that is not a real one."""
    if torch.compiler.is_compiling() or x.device.type == "meta":
        return True
    if torch._C._are_functorch_transforms_active():
        return True
    return type(x) not in (Tensor, torch.nn.Parameter)
