"""Packages that bring recipes and gates, found by their entry points.

=================  ==========================================================================
``surnn.recipes``  a dictionary of recipes
``surnn.tasks``    a class derived from ``surnn.tasks.Task``: see ``surnn.tasks.outside``
``surnn.gates``    a class derived from ``surnn.config.GateConfig``, with its gate as ``gate``
``surnn.cells``    an instance of ``surnn.Cell``: see ``surnn.nn.cells``
=================  ==========================================================================

The name of an entry point is the name on the command line. ``surnn_recipes``, which comes with
surnn, is found without an entry point, so that a source tree on ``PYTHONPATH`` has its recipes too.
"""

from functools import lru_cache
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

from surnn.errors import ConfigError

OWN = "surnn_recipes"


def find_recipes() -> dict[str, Any]:
    """All recipes by name: those that come with surnn first."""
    recipes: dict[str, Any] = {}
    if find_spec(OWN) is not None:
        recipes |= import_module(OWN).RECIPES
    for entry in metadata.entry_points(group="surnn.recipes"):
        if entry.module.partition(".")[0] != OWN:
            recipes |= entry.load()
    return recipes


@lru_cache(maxsize=1)
def load_gates() -> None:
    """Enter the gates of installed packages in ``GATE_CONFIGS`` and ``GATES``."""
    for entry in metadata.entry_points(group="surnn.gates"):
        from surnn.config import GATE_CONFIGS, GateConfig  # noqa: PLC0415 (rarely needed)
        from surnn.nn.gates import GATES, Gate  # noqa: PLC0415

        config: Any = entry.load()
        what = f"the entry point {entry.name} = {entry.value} in surnn.gates"
        if not (isinstance(config, type) and issubclass(config, GateConfig)):
            raise ConfigError(f"{what} must be a class derived from surnn.config.GateConfig")
        gate = getattr(config, "gate", None)
        if not (isinstance(gate, type) and issubclass(gate, Gate)):
            raise ConfigError(f"{what} must name its gate: gate: ClassVar = MyGate")
        if entry.name != config.kind or entry.name in GATE_CONFIGS:
            raise ConfigError(f"{what} must have its kind as name, and one that is not taken")
        GATE_CONFIGS[config.kind] = config
        GATES[config.kind] = gate
