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
    library.surnn_scan_use_pool.argtypes = (ctypes.POINTER(_Pool),)
    library.surnn_scan_use_pool(_torch_pool())
    return library if library.surnn_scan_simd() else None


class _Pool(ctypes.Structure):
    """``surnn_pool``: functions of GNU OpenMP."""

    _fields_ = (("run", ctypes.c_void_p), ("size", ctypes.c_void_p))


def _torch_pool() -> _Pool | None:
    """The threads of torch's own operators, where torch is linked to GNU OpenMP or a lookalike.

    They spin for some milliseconds after each operator, so that threads of our own would find no
    free core meanwhile.
    """
    openmp = ctypes.CDLL(torch._C.__file__)  # finds what it is linked to, too
    run = getattr(openmp, "GOMP_parallel", None)
    size = getattr(openmp, "omp_get_num_threads", None)
    if run is None or size is None:
        return None
    return _Pool(*(ctypes.cast(function, ctypes.c_void_p) for function in (run, size)))
