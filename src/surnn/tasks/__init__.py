"""Tasks: benchmarks with their data, loss and metric. One file each."""

from importlib import import_module
from typing import Any

from surnn.models.signature import Output as Output
from surnn.models.signature import Tokens as Tokens
from surnn.models.signature import Values as Values

from .base import Batch as Batch
from .base import Score as Score
from .base import Split as Split
from .base import Task as Task
from .outside import entry_point_tasks

# The module of each task by its name on the command line; imported on first use.
TASKS: dict[str, str] = {
    "copying": "surnn.tasks.copying:Copying",
    "selective_copy": "surnn.tasks.selective_copy:SelectiveCopy",
    "state_tracking": "surnn.tasks.state_tracking:StateTracking",
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
    "article_pairs": "surnn.tasks.article_pairs:ArticlePairs",
    "ecg_beats": "surnn.tasks.ecg:EcgBeats",
    "spoken_digits": "surnn.tasks.spoken_digits:SpokenDigits",
    "speech_commands": "surnn.tasks.speech_commands:SpeechCommands",
    "keyword_stream": "surnn.tasks.keyword_stream:KeywordStream",
    "enwik8": "surnn.tasks.enwik8:Enwik8",
    "wikitext103": "surnn.tasks.wikitext:WikiText103",
    "wikitext2": "surnn.tasks.wikitext:WikiText2",
    "wikitext2_words": "surnn.tasks.wikitext:WikiText2Words",
    "text_file": "surnn.tasks.text_file:TextFile",
    "sequences": "surnn.tasks.sequences:Sequences",
}
UNLISTED: dict[str, str] = {"python_data": "surnn.tasks.python_data:PythonData"}
"""Tasks of runs that the command line cannot start."""


def load_task(name: str) -> type[Any]:
    """The class of task ``name``: one of surnn's own, or of an entry point."""
    place = TASKS.get(name) or UNLISTED.get(name)
    if place is None:
        return entry_point_tasks()[name]
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def task_names() -> tuple[str, ...]:
    """All tasks that have a name: surnn's own, then those of installed packages."""
    return tuple({**TASKS, **dict.fromkeys(entry_point_tasks())})
