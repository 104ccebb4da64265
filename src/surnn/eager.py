"""Launching kernels: whether it may be done right here, on which device, by what arithmetic."""

import importlib.util
import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

_FOUND_TRITON = importlib.util.find_spec("triton") is not None


def has_triton() -> bool:
    """Whether the package triton is installed (it is not imported to find out)."""
    return _FOUND_TRITON


def is_interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, one program after another."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def is_transformed() -> bool:
    """Whether ``torch.func`` (vmap, grad, jvp) is at work."""
    return torch._C._are_functorch_transforms_active()


def is_captured(x: Tensor) -> bool:
    """Whether a CUDA graph is being captured, in which nothing may wait or be kept for later."""
    return x.is_cuda and _is_capturing(x)


def on_its_device(function: Callable) -> Callable:
    """Kernels are launched on the current device: let it be that of the first tensor given."""

    @wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        first = next(v for v in arguments if isinstance(v, Tensor))
        if not first.is_cuda or first.device.index == torch.cuda.current_device():
            return function(*arguments, **options)
        with torch.cuda.device(first.device):
            return function(*arguments, **options)

    return run


@on_its_device
def _is_capturing(x: Tensor) -> bool:
    return torch.cuda.is_current_stream_capturing()


def cdiv(a: int, b: int) -> int:
    """a / b rounded up. (Triton's own is made for kernels too, and slow on the host.)"""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << (n - 1).bit_length()


def is_traced(x: Tensor) -> bool:
    """A compiler, a function transform, or a tensor that is not a real one."""
    if torch.compiler.is_compiling() or x.device.type == "meta":
        return True
    if is_transformed():
        return True
    return type(x) not in (Tensor, torch.nn.Parameter)


def second(output: Tensor, inputs: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients that can be differentiated again, None by what needs none."""
    wanted = [v for v in inputs if v.requires_grad]
    found = iter(torch.autograd.grad(output, wanted, grad, create_graph=True))
    return tuple(next(found) if v.requires_grad else None for v in inputs)
