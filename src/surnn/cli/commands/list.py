"""List tasks, recipes, models, cells and gates.

surnn list                      all names
surnn list recipes              a table
surnn list recipes psmnist      only recipes with psmnist in their names
"""

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_args

from surnn.errors import suggestion

from ..main import CommandError
from ..tables import show

HELP = "list tasks, recipes, models, cells, gates"
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Column titles, and rows whose first entry is a name."""

MODELS = {
    "sugru": "GRU with selective update", "sulstm": "LSTM with selective update",
    "surnn": "Elman RNN with selective update", "susnn": "spiking neurons with selective update",
    "gru": "torch's nn.GRU (cuDNN)", "lstm": "torch's nn.LSTM (cuDNN)", "rnn": "torch's nn.RNN",
    "transformer": "causal attention with rotary positions",
    "s4d": "diagonal state-space layer", "mingru": "GRU whose gates do not read the state",
    "delta": "Gated DeltaNet with negative eigenvalues",
    "deltagru": "GRU that multiplies only what has changed", "skipgru": "GRU that skips time steps",
    "linear": "no memory: each time step on its own, as a control",
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn list``."""
    parser.add_argument("what", nargs="?", help=f"{', '.join(TABLES)}; default: all names")
    parser.add_argument("part", nargs="?", default="", help="only names that contain this")


def run(arguments: argparse.Namespace) -> None:
    """Print a table, or all names."""
    what = arguments.what
    if what is None:
        for name, table in TABLES.items():
            print(f"{name}:\n  " + "\n  ".join(row[0] for row in table()[1]))
        return
    if what not in TABLES:
        hint = suggestion(what, TABLES, f"there are {', '.join(TABLES)}")
        raise CommandError(f"there is no list of {what!r}; {hint}")
    titles, rows = TABLES[what]()
    chosen = [row for row in rows if arguments.part in row[0]]
    if not chosen:
        hint = suggestion(arguments.part, [row[0] for row in rows], f"see surnn list {what}")
        raise CommandError(f"none of the {what} has {arguments.part!r} in its name; {hint}")
    show(titles, chosen)


# ---------------------------------------------------------------------------- the tables


def tasks() -> Table:
    from surnn.tasks import load_task, task_names  # noqa: PLC0415 (torch)

    rows = []
    for name in sorted(task_names()):
        task = load_task(name)
        rows.append((name, task.metric, ", ".join(task.needs) or "generated", about(task)))
    return ("task", "metric", "data", "what it is"), rows


def recipes() -> Table:
    from surnn.plugins import find_recipes  # noqa: PLC0415 (torch)
    from surnn.runs.summary import format_size  # noqa: PLC0415

    rows = []
    for recipe in find_recipes().values():
        config = recipe()
        model = config.model
        number = "" if recipe.paper is None else f"{recipe.paper:.4f}"
        size = f"{model.kind} {format_size(model)}"
        rows.append(
            (recipe.name, config.task.name, size, number, recipe.paper_table, recipe.paper_name)
        )
    return ("recipe", "task", "model", "paper", "table", "the paper's name"), rows


def models() -> Table:
    from surnn.config import ModelKind  # noqa: PLC0415

    return ("--model.kind", "what it is"), [(name, MODELS[name]) for name in get_args(ModelKind)]


def cells() -> Table:
    from surnn.nn.cells import CELLS, load_cells  # noqa: PLC0415 (torch)

    load_cells()

    rows = [(name, ", ".join(cell.components), about(type(cell))) for name, cell in CELLS.items()]
    return ("cell", "state", "what it is"), rows


def gates() -> Table:
    from surnn.config import GATE_CONFIGS, LearnedGateConfig  # noqa: PLC0415
    from surnn.nn.gates import GATES  # noqa: PLC0415 (torch)
    from surnn.plugins import load_gates  # noqa: PLC0415

    load_gates()

    shared = {field.name for field in fields(LearnedGateConfig)}
    rows = []
    for kind, config in GATE_CONFIGS.items():
        own = [field.name for field in fields(config) if field.name not in shared]
        rows.append((kind, ", ".join(own), about(GATES[kind])))
    return ("--gate.kind", "options of its own", "what it is"), rows


TABLES: dict[str, Callable[[], Table]] = {
    "tasks": tasks, "recipes": recipes, "models": models, "cells": cells, "gates": gates
}  # fmt: skip


def about(kind: Any) -> str:
    """The first sentence of a class's docstring; of its module's, if that is only a title."""
    sentence = ""
    for text in (kind.__doc__, sys.modules[kind.__module__].__doc__):
        sentence = re.split(r"(?<=[.?!])(?<!eq\.)\s", " ".join((text or "").split()))[0]
        if len(sentence.split()) > 3:
            break
    return sentence.replace("``", "")
