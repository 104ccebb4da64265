"""What this installation can do, or what a run is and how far it has come.

surnn info
surnn info runs                                 all runs in a folder, the newest first
surnn info runs/copying/2026-01-31-120000
surnn info RUN --json                           all of it, for programs
"""

import argparse
import json
import platform
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cli import CommandError
from ..rate_words import layers_in_words
from ..versions import commit, version
from .tables import show

if TYPE_CHECKING:
    from ..config import ModelConfig, RunConfig
    from ..runs import RunFolder

HELP = "about this installation, a run, or all runs in a folder"
PACKAGES = (
    "torch", "triton", "numpy", "tyro", "rich", "safetensors", "matplotlib", "tensorboard",
    "onnxruntime", "tokenizers", "transformers",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn info``."""
    parser.add_argument(
        "run", type=Path, nargs="?", metavar="RUN", help="a run's folder, or one of runs"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> None:
    """Print it."""
    if arguments.run is None:
        found = installation()
        told = [f"{name:18} {value}" for name, value in found.items()]
    elif inside := runs_in(arguments.run):
        found = sorted(map(at_a_glance, inside), key=lambda each: each["begun"], reverse=True)
        if not arguments.json:
            show(tuple(found[0]), [tuple(each.values()) for each in found])
            return
        told = []
    else:
        from ..runs import RunError, RunFolder, config_from_dict  # noqa: PLC0415 (torch)

        try:
            folder = RunFolder.open(arguments.run)
            config = config_from_dict(folder.config())
            found = about(folder, config)
        except RunError as error:
            raise CommandError(str(error)) from error
        told = [f"{name:12} {value}" for name, value in summary(folder.path, config, found)]
    print(json.dumps(found, indent=2) if arguments.json else "\n".join(told))


# ---------------------------------------------------------------------------- a folder of runs


def runs_in(path: Path) -> list[Path]:
    """The runs in a folder that is none itself, as deep as ``runs/NAME/TIME`` lies in its parent.

    Exported models have a config.json too, but no environment.json.
    """
    if (path / "config.json").is_file():
        return []
    found = (p.parent for depth in (1, 2, 3) for p in path.glob("*/" * depth + "environment.json"))
    return [folder for folder in found if (folder / "config.json").is_file()]


def at_a_glance(path: Path) -> dict[str, str]:
    """A row of the table of runs; of a damaged one, what is wrong with it."""
    from ..runs import RunError, RunFolder, config_from_dict  # noqa: PLC0415 (torch)
    from .standing import best_of, in_words, standing  # noqa: PLC0415

    folder, row = RunFolder(path), {"run": str(path)}
    row |= dict.fromkeys(("begun", "task", "model", "updates", "validation", "status"), "")
    try:
        row["begun"] = folder.environment()["time"]
        config = config_from_dict(folder.config())
        row |= {"task": config.task.name, "model": f"{config.model.kind} {size(config.model)}"}
        row["validation"] = in_words(best_of(folder.metrics(), config.task), config.task)
        now = standing(folder, config)
        row |= {"updates": f"{now.step}/{config.train.steps}", "status": now.status}
    except RunError as error:  # the others are as they were
        row["status"] = f"damaged: {error}"
    return row


# ---------------------------------------------------------------------------- a run


def about(folder: "RunFolder", config: "RunConfig") -> dict[str, Any]:
    """All that a run's folder tells."""
    from ..models import SequenceModel  # noqa: PLC0415 (torch)
    from ..runs import RunError  # noqa: PLC0415
    from .standing import Standing, best_of, standing  # noqa: PLC0415

    task, lines = config.task, folder.metrics()
    try:
        now = standing(folder, config)
    except RunError as error:  # the rest can be told all the same
        now = Standing("damaged", folder.reached(), str(error))
    model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps)
    return {
        **now._asdict(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "best": best_of(lines, task),
        "train": next((m for m in reversed(lines) if m["kind"] == "train"), None),
        "valid": next((m for m in reversed(lines) if m["kind"] == "valid"), None),
        "evaluations": folder.evaluations(),
        "config": folder.config(),
        "environment": folder.environment(),
    }


def summary(path: Path, config: "RunConfig", found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """For people: names, and a line of text for each."""
    from ..config import OURS  # noqa: PLC0415
    from .show import duration  # noqa: PLC0415
    from .standing import in_words, what_next  # noqa: PLC0415

    task, model, train, made = config.task, config.model, config.train, found["environment"]
    logged = found["train"]
    yield "run", str(path)
    yield "status", f"{found['status']} at update {found['step']}/{train.steps}: {found['why']}"
    yield "begun", f"{made['time']} on {made['device']}, torch {made['torch']}"
    yield "task", _listed(f"{task.name}: {task.steps} steps", chosen(task))
    made_of = f"{model.kind} {size(model)}: {found['parameters']:,} parameters"
    yield "model", _listed(made_of, chosen(model, "kind", "layers", "width", "widths"))
    if model.kind in OURS:
        yield "gate", _listed(config.gate.kind, chosen(config.gate, "kind"))
    yield "training", _listed(f"batch {train.batch}", chosen(train, "steps", "batch"))
    if logged is not None:
        time = duration(logged["seconds"])
        yield "loss", f"{logged['loss']:.4g} (update {logged['step']}, after {time})"
    yield "validation", in_words(found["best"], task)
    for layer, words in enumerate(layers_in_words(found["valid"] or logged or {}, config), 1):
        yield f"layer {layer}", str(words)
    for line in found["evaluations"]:
        options = [f"{name} {value}" for name, value in line["overrides"].items()]
        value = f"{task.metric} {line['metrics'][task.metric]:.4g}"
        weights = f"{line['checkpoint']} weights (update {line['step']})"
        yield line["split"], _listed(value, [weights, *options])
    yield from what_next(path, found["status"], found["more"], found["process"])


def size(model: "ModelConfig") -> str:
    """Layers and their widths: 2x128, or 32-64-128."""
    return "-".join(map(str, model.widths)) if model.widths else f"{model.layers}x{model.width}"


def chosen(config: Any, *but: str) -> list[str]:
    """Options that are not at their defaults."""
    each = [(f, getattr(config, f.name)) for f in fields(config) if f.name not in but]
    return [f"{f.name} {value}" for f, value in each if value != f.default]


def _listed(first: str, more: list[str]) -> str:
    return ", ".join([first, *more])


# ---------------------------------------------------------------------------- the installation


def installation() -> dict[str, str]:
    """Versions, devices, backends, folders."""
    import torch  # noqa: PLC0415

    from .. import __version__  # noqa: PLC0415
    from ..data.where import places  # noqa: PLC0415

    found = {"surnn": f"{__version__} ({commit() or 'not from git'})"}
    found["python"] = platform.python_version()
    found |= {name: version(name) or "not installed" for name in PACKAGES}
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        memory = about.total_memory / 2**30
        found[f"GPU {index}"] = f"{about.name}, {memory:.0f} GiB, sm_{about.major}{about.minor}"
    if not torch.cuda.is_available():
        found["GPU"] = "none that torch can use"
    found["CPU threads"] = str(torch.get_num_threads())
    found |= {f"backend {name}": able for name, able in backends().items()}
    found["C engine"] = c_engine()
    found["data"] = ", ".join(str(place) for place in places())
    return found


def c_engine() -> str:
    """Whether the library that ``surnn.Engine`` runs is here."""
    from ..engine import EngineError, library  # noqa: PLC0415 (numpy)

    try:
        library()
    except (EngineError, OSError) as error:  # OSError: it was built for another machine
        return f"no: {error}"
    return "yes"


def backends() -> dict[str, str]:
    """Whether each backend can run here."""
    import torch  # noqa: PLC0415

    from ..eager import has_triton  # noqa: PLC0415

    triton = "yes"
    if not has_triton():
        triton = "no: triton is not installed"
    elif not torch.cuda.is_available():
        triton = "no: it needs a GPU"
    return {"reference": "yes", "events": "yes", "onepass": "yes (GRU)", "triton": triton}
