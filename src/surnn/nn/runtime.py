"""Capabilities of the runtime: triton, tracing, function transforms, CUDA graph capture."""

import importlib.util
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

Module = TypeVar("Module", bound=nn.Module)

_WITHOUT_FLOAT64 = {"mps"}  # tests add other devices
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_HAS_TRITON = importlib.util.find_spec("triton") is not None


def has_triton() -> bool:
    """Whether the package triton is installed. This does not import it."""
    return _HAS_TRITON


def has_float64(device: torch.device) -> bool:
    """Whether the device has 64-bit floating-point numbers. Apple's GPUs have not."""
    return device.type not in _WITHOUT_FLOAT64


def is_interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, one program after another."""
    return _INTERPRETED


def runs_kernels(x: Tensor) -> bool:
    """Whether Triton's kernels take x as it is: on a CUDA device, or all in the interpreter."""
    return _HAS_TRITON and (x.is_cuda or _INTERPRETED) and not is_traced(x)


def is_transformed() -> bool:
    """Whether a ``torch.func`` transform (vmap, grad, jvp) is active."""
    return torch._C._are_functorch_transforms_active()


def fake_mode() -> FakeTensorMode | None:
    """The active mode in which tensors have no values, or None."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)


def no_fake_mode() -> AbstractContextManager[Any]:
    """A block in which tensors have values, whatever mode is active around it."""
    return unset_fake_temporarily()


def make_fake(module: Module, mode: FakeTensorMode) -> Module:
    """``module`` with fake tensors in place of its parameters and buffers."""
    for part in module.modules():
        for name, value in part._parameters.items():
            if value is not None:
                fake = mode.from_tensor(value.data)
                part._parameters[name] = nn.Parameter(fake, value.requires_grad)
        for name, value in part._buffers.items():
            part._buffers[name] = None if value is None else mode.from_tensor(value)
    return module


def is_captured(x: Tensor) -> bool:
    """Whether a CUDA graph is being captured, which forbids host waits and caching tensors."""
    return x.is_cuda and _is_capturing(x)


def stream_of(x: Tensor) -> int:
    """The address of the CUDA stream that is current on x's device; 0 on other devices."""
    return torch._C._cuda_getCurrentRawStream(x.device.index) if x.is_cuda else 0


def on_its_device(function: Callable) -> Callable:
    """Run ``function`` with its first tensor's device current, where kernels are launched."""

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
    """a / b rounded up. (Triton's version also works in kernels, and is slow on the host.)"""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def is_traced(x: Tensor) -> bool:
    """Whether x is traced: by a compiler, by a function transform, or as a fake or meta tensor."""
    if torch.compiler.is_compiling() or x.device.type == "meta":
        return True
    if is_transformed():
        return True
    return type(x) not in (Tensor, torch.nn.Parameter)


def can_branch_on(x: Tensor) -> bool:
    """Whether Python may branch on the values of x: not in a traced or captured computation."""
    return not is_traced(x) and not is_captured(x)


def differentiable_gradients(
    output: Tensor, inputs: tuple[Tensor, ...], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients by ``inputs`` that can be differentiated again; None by inputs that need none."""
    leaves = [v for v in inputs if v.requires_grad]
    grads = iter(torch.autograd.grad(output, leaves, grad, create_graph=True))
    return tuple(next(grads) if v.requires_grad else None for v in inputs)
