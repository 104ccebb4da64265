"""Trained models as files for other programs: the C engine, ONNX, torch.export.

Each function is loaded when it is first asked for, so that none needs what another needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .c_folder import to_c_folder as to_c_folder
    from .engine import to_engine as to_engine
    from .onnx import to_onnx as to_onnx
    from .pt2 import to_pt2 as to_pt2

_HOMES = {"to_engine": "engine", "to_c_folder": "c_folder", "to_onnx": "onnx", "to_pt2": "pt2"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
