"""Checks that several groups of options share."""

from dataclasses import fields
from typing import Any

from surnn.errors import ConfigError


def changed(config: Any, *ignored: str) -> dict[str, Any]:
    """The fields that differ from their defaults."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    defaults = {field.name: field.default for field in fields(config)}
    return {n: v for n, v in values.items() if n not in ignored and v != defaults[n]}


def check_at_least(config: Any, group: str, least: int, *names: str) -> None:
    """Refuse numbers below ``least``."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not value >= least:
            raise ConfigError(f"{group}.{name} must be at least {least}, got {value}")


def check_share(config: Any, group: str, *names: str) -> None:
    """Refuse numbers that are not between 0 and 1."""
    for name in names:
        value = getattr(config, name)
        if not 0 <= value <= 1:
            raise ConfigError(f"{group}.{name} is a share from 0 to 1, got {value}")


def check_at_most(config: Any, part: str, high: int, *names: str) -> None:
    """Raise if an option is above ``high``: nothing of that size can be built."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value > high:
            raise ConfigError(f"{part}.{name} must be at most {high}, got {value}")
