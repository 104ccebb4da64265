"""Names that a package imports when they are first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its ``__name__``.
        homes: the module that defines each name. If the last part of the module's name equals the
            name, the module itself is returned.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(homes[name])
        except ModuleNotFoundError as error:
            from surnn.errors import missing_extra  # noqa: PLC0415 (only if a package is missing)

            raise missing_extra(error, f"{package}.{name}") from error
        return module if homes[name].rpartition(".")[2] == name else getattr(module, name)

    def list_names() -> list[str]:
        return sorted({*homes, "__doc__", "__file__", "__path__"})

    return get, list_names
