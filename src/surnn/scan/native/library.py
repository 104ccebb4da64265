"""The scan of the C library: its arguments (``csrc/scan.h``) and its functions."""

import ctypes
from functools import cache

import torch

from surnn.library import find_library

_SIZES = (
    "steps", "batch", "heads", "width", "features", "cell", "gate_batch", "gate_width", "binary",
    "blocks", "threads", "chunk", "updates", "surrogate",
)  # fmt: skip
_NUMBERS = ("threshold", "beta", "slope")
_TENSORS = (
    "x", "weight", "bias", "recurrent", "unit", "gate", "decay", "lengths", "relevant", "reset",
    "state", "y", "last", "saved", "marks", "grad_y", "grad_last", "by_x", "by_weight", "by_bias",
    "by_recurrent", "by_unit", "by_gate", "by_decay", "by_state",
)  # fmt: skip
_FRAME_SIZES = (
    "batch", "heads", "width", "features", "cell", "gate_batch", "gate_width", "binary",
)  # fmt: skip
_FRAME_TENSORS = (
    "x", "weight_ih", "weight_hh", "bias_ih", "bias_hh", "gate", "state", "next",
)  # fmt: skip


class Scan(ctypes.Structure):
    """``surnn_scan``: sizes, options and tensors of one scan."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _SIZES),
        *((name, ctypes.c_double) for name in _NUMBERS),
        *((name, ctypes.c_void_p) for name in _TENSORS),
    )


class Frame(ctypes.Structure):
    """``surnn_frame``: sizes and tensors of one time step of one layer."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in _FRAME_SIZES),
        *((name, ctypes.c_void_p) for name in _FRAME_TENSORS),
    )


@cache
def scan_library() -> ctypes.CDLL | None:
    """The C library, or None if it was not built, or was built without the scan."""
    path = find_library()
    if path is None:
        return None
    library = ctypes.CDLL(str(path))
    library.surnn_scan_simd.restype = ctypes.c_char_p
    library.surnn_scan_updates.restype = ctypes.c_int64
    for name in ("updates", "forward", "backward"):
        getattr(library, f"surnn_scan_{name}").argtypes = (ctypes.POINTER(Scan),)
    library.surnn_scan_step.argtypes = (ctypes.POINTER(Frame),)
    library.surnn_scan_equal.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    library.surnn_scan_use_pool.argtypes = (ctypes.c_void_p,)
    library.surnn_scan_use_pool(_torch_pool())
    return library if library.surnn_scan_simd() else None


def _torch_pool() -> int | None:
    """The address of ``GOMP_parallel`` in the OpenMP library that torch is linked to, if it has it.

    After each of torch's operators its threads spin for a few milliseconds. Where a scan runs on
    threads of its own, they take the cores from it.
    """
    function = getattr(ctypes.CDLL(torch._C.__file__), "GOMP_parallel", None)
    return ctypes.cast(function, ctypes.c_void_p).value if function else None
