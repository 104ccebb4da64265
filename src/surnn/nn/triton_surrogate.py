"""A GPU kernel of the surrogate's derivative.

Plain PyTorch takes about eight small operations, which cost the host more than the device.
"""

import triton
import triton.language as tl
from torch import Tensor

from .kernel_launch import launch
from .runtime import cdiv, on_its_device

BLOCK = 1024


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def surrogate_derivative(a, KIND: tl.constexpr, SLOPE: tl.constexpr):
    """The derivative of :class:`~surnn.Surrogate`; 0 at NaN."""
    v = tl.where(tl.abs(a) >= 0, a * SLOPE, float("-inf"))
    if KIND == "triangle":
        d = tl.maximum(1.0 - tl.abs(v), 0.0)
    elif KIND == "rectangle":
        d = tl.where(tl.abs(v) <= 1.0, 0.5, 0.0)
    elif KIND == "sigmoid":
        d = sigmoid(v) * sigmoid(-v)
    else:
        v = v * 1.5707963267948966
        d = 0.5 / (1.0 + v * v)
    return d * SLOPE


@triton.jit(do_not_specialize=["SIZE"])
def step_gradient_kernel(
    A, GRAD, OUT, SIZE, KIND: tl.constexpr, SLOPE: tl.constexpr, BLOCK: tl.constexpr
):
    """GRAD times the derivative at A."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(A + i, mask=i < SIZE, other=0.0)
    grad = tl.load(GRAD + i, mask=i < SIZE, other=0.0)
    tl.store(OUT + i, grad * surrogate_derivative(a, KIND, SLOPE), mask=i < SIZE)


@on_its_device
def step_gradient(a: Tensor, grad: Tensor, kind: str, slope: float) -> Tensor:
    """``grad * derivative(a)`` in a's dtype."""
    a, grad = a.contiguous(), grad.contiguous()
    out = a.new_empty(a.shape)
    launch(
        step_gradient_kernel, (cdiv(a.numel(), BLOCK),), a, grad, out, a.numel(), KIND=kind,
        SLOPE=slope, BLOCK=BLOCK,
    )  # fmt: skip
    return out
