"""Tasks: benchmarks with their data, loss and metric. One file each."""

from importlib import import_module
from typing import Any

from .base import Batch as Batch
from .base import Output as Output
from .base import Score as Score
from .base import Split as Split
from .base import Task as Task
from .base import Tokens as Tokens
from .base import Values as Values

# Where each task lives, by the name it has on the command line. Imported when it is asked for.
TASKS: dict[str, str] = {
    "copying": "surnn.tasks.copying:Copying",
}


def load_task(name: str) -> type[Any]:
    """The class of task ``name``."""
    module, _, attribute = TASKS[name].partition(":")
    return getattr(import_module(module), attribute)
