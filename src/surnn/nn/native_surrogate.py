"""Gates and the surrogate's gradient in C, for float32 on a CPU.

Plain PyTorch takes about eight passes over all gates.
"""

import ctypes
from functools import cache

import torch
from torch import Tensor

from surnn.library import find_library

KINDS = ("sigmoid", "triangle", "rectangle", "arctan")
"""In the order of ``csrc/scan.h``."""
# A thread must have this many gates to compute to be worth its start.
_GATES_PER_THREAD = 1 << 18


class _Gates(ctypes.Structure):
    """``surnn_surrogate`` of ``csrc/scan.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("size", "surrogate", "threads")),
        *((name, ctypes.c_double) for name in ("slope", "noise")),
        *((name, ctypes.c_void_p) for name in ("preactivation", "random", "by_gate", "to")),
    )


@cache
def _library() -> ctypes.CDLL | None:
    path = find_library()
    if path is None:
        return None
    library = ctypes.CDLL(str(path))
    library.surnn_scan_simd.restype = ctypes.c_char_p
    for name in ("sample", "gradient"):
        function = getattr(library, f"surnn_surrogate_{name}")
        function.argtypes, function.restype = (ctypes.POINTER(_Gates),), None
    return library if library.surnn_scan_simd() else None


def is_available(a: Tensor) -> bool:
    """Whether the library is there and takes this tensor."""
    return a.is_cpu and a.dtype == torch.float32 and _library() is not None


def _run(name: str, a: Tensor, kind: str, slope: float, noise: float, **tensors: Tensor) -> Tensor:
    a = a.contiguous()
    to = torch.empty_like(a)
    pointers = {k: v.contiguous() for k, v in tensors.items()}
    gates = _Gates(
        size=a.numel(), surrogate=KINDS.index(kind), slope=slope, noise=noise,
        threads=max(1, min(torch.get_num_threads(), a.numel() // _GATES_PER_THREAD)),
        preactivation=a.data_ptr(), to=to.data_ptr(),
        **{k: v.data_ptr() for k, v in pointers.items()},
    )  # fmt: skip
    getattr(_library(), f"surnn_surrogate_{name}")(ctypes.byref(gates))
    return to


def sampled_gates(a: Tensor, slope: float, noise: float) -> Tensor:
    """1 where ``sigmoid(slope * a)`` exceeds a threshold around 1/2, drawn at random."""
    return _run("sample", a, "sigmoid", slope, noise, random=torch.rand_like(a))


def step_gradient(a: Tensor, grad: Tensor, kind: str, slope: float) -> Tensor:
    """``grad * derivative(a)``."""
    return _run("gradient", a, kind, slope, 0.0, by_gate=grad)
