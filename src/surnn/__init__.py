"""Selective-update RNNs: recurrent layers whose units update or carry their state exactly.

Public names live in :mod:`surnn.api` and are loaded with the first one that is used, so that the
command ``surnn --help`` need not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [k for k in vars(import_module(".api", __name__)) if not k.startswith("_")]
    if not name.startswith("_"):
        _load()
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__getattr__("__all__"), "__version__", "__doc__", "__file__", "__path__"})


def _load() -> None:
    public = vars(import_module(".api", __name__))
    globals().update({k: v for k, v in public.items() if not k.startswith("_")})
