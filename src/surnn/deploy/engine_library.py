"""The engine's shared library: its functions, structures and errors, as in ``csrc/surnn.h``."""

import ctypes
from functools import cache
from typing import Any

from surnn.errors import SurnnError
from surnn.library import HOW_TO_BUILD, LIBRARY, find_library

MAX_CLOCK = 1 << 50
"""Time steps that a stream can count, as in ``surnn.nn.state``, which needs torch. It is
SURNN_MAX_CLOCK of ``csrc/surnn.h``."""


class EngineError(SurnnError, RuntimeError):
    """The engine is not installed, or refused a file, an argument or a saved stream.

    Example:
        >>> import surnn
        >>> try:
        ...     surnn.Engine("missing.surnn")
        ... except EngineError as error:
        ...     print("missing.surnn" in str(error))
        True
    """


class Options(ctypes.Structure):
    """``surnn_options``."""

    _fields_ = (("mapping", ctypes.c_int), ("max_memory", ctypes.c_uint64))


class Info(ctypes.Structure):
    """``surnn_info``."""

    _fields_ = (
        ("takes_tokens", ctypes.c_uint32),
        ("input_size", ctypes.c_uint32),
        ("output_size", ctypes.c_uint32),
        ("layers", ctypes.c_uint32),
        ("stream_size", ctypes.c_uint64),
        ("state_size", ctypes.c_uint64),
        ("workspace_size", ctypes.c_uint64),
        ("saved_size", ctypes.c_uint64),
        ("macs_per_step", ctypes.c_uint64),
        ("simd", ctypes.c_char_p),
    )


class LayerInfo(ctypes.Structure):
    """``surnn_layer_info``."""

    _fields_ = (
        ("units", ctypes.c_uint32), ("gates", ctypes.c_uint32), ("components", ctypes.c_uint32)
    )  # fmt: skip


class WorkCounts(ctypes.Structure):
    """``surnn_work``."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("steps", "macs_done", "macs_all", "updates_done", "updates_all")
    )


class Parts(ctypes.Structure):
    """``surnn_parts``."""

    _fields_ = tuple(
        (name, ctypes.c_double)
        for name in ("reset", "update", "candidate", "state", "rest", "clock")
    )


@cache
def library() -> ctypes.CDLL:
    """The engine's shared library, with the signatures of ``csrc/surnn.h`` and ``csrc/bench.h``."""
    path = find_library(LIBRARY)
    if path is None:
        raise EngineError(
            f"the engine was not built when surnn was installed: {LIBRARY.name} is missing, and "
            f"{HOW_TO_BUILD}"
        )
    lib = ctypes.CDLL(str(path))
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
    clock = ctypes.c_int64
    lib.surnn_message.restype = ctypes.c_char_p
    lib.surnn_clock.restype = clock
    signatures: dict[str, tuple[Any, ...]] = {
        "message": (ctypes.c_int,),
        "load_with": (ctypes.c_char_p, pointer, pointer),
        "free": (pointer,),
        "describe": (pointer, pointer),
        "describe_layer": (pointer, number, pointer),
        "state_new": (pointer, pointer),
        "stream_free": (pointer,),
        "workspace_new": (pointer, pointer),
        "workspace_free": (pointer,),
        "reset": (pointer, pointer),
        "run_in": (pointer, pointer, pointer, pointer, size, pointer),
        "run_tokens_in": (pointer, pointer, pointer, pointer, size, pointer),
        "step_many": (pointer, pointer, pointer, size, pointer, pointer),
        "step_many_tokens": (pointer, pointer, pointer, size, pointer, pointer),
        "save": (pointer, pointer, pointer, size),
        "restore": (pointer, pointer, pointer, size),
        "clock": (pointer,),
        "set_clock": (pointer, pointer, clock),
        "work_done": (pointer, pointer, pointer),
        "gates": (pointer, pointer, number, pointer),
        "hidden": (pointer, pointer, number, pointer),
        "time_parts": (pointer, pointer, size, pointer, clock, ctypes.c_int, pointer),
        "time_steps": (pointer, pointer, size, pointer, clock, pointer),
        "time_streams": (pointer, pointer, size, size, clock, ctypes.c_int, pointer),
    }
    for name, arguments in signatures.items():
        getattr(lib, f"surnn_{name}").argtypes = arguments
    return lib


def check(status: int, context: str = "") -> None:
    """Raise an EngineError unless ``status`` is SURNN_OK."""
    if status:
        raise EngineError(f"{context}{library().surnn_message(status).decode()}")
