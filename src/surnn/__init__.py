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
    if not name.startswith("_"):
        _load()
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    _load()
    return sorted(globals())


def _load() -> None:
    public = vars(import_module(".api", __name__))
    globals().update({k: v for k, v in public.items() if not k.startswith("_")})
