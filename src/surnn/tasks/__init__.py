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
    "selective_copy": "surnn.tasks.selective_copy:SelectiveCopy",
    "listops": "surnn.tasks.listops:ListOps",
    "pathfinder": "surnn.tasks.pathfinder:Pathfinder",
    "mackey_glass": "surnn.tasks.mackey_glass:MackeyGlass",
    "smnist": "surnn.tasks.mnist:SequentialMnist",
    "psmnist": "surnn.tasks.mnist:PermutedMnist",
    "spiking_psmnist": "surnn.tasks.mnist:SpikingPermutedMnist",
    "scifar": "surnn.tasks.cifar:SequentialCifar",
    "lra_image": "surnn.tasks.cifar:LraImage",
    "lra_text": "surnn.tasks.text:LraText",
    "lra_retrieval": "surnn.tasks.retrieval:LraRetrieval",
    "ecg_beats": "surnn.tasks.ecg:EcgBeats",
    "spoken_digits": "surnn.tasks.spoken_digits:SpokenDigits",
    "enwik8": "surnn.tasks.enwik8:Enwik8",
    "wikitext103": "surnn.tasks.wikitext:WikiText103",
    "wikitext2": "surnn.tasks.wikitext:WikiText2",
    "text_file": "surnn.tasks.text_file:TextFile",
}


def load_task(name: str) -> type[Any]:
    """The class of task ``name``."""
    module, _, attribute = TASKS[name].partition(":")
    return getattr(import_module(module), attribute)
