"""Show this installation, a run and its status, or all runs in a folder.

surnn info
surnn info runs                                 all runs in a folder, the newest first
surnn info runs/copying/2026-01-31-120000
surnn info RUN --json                           everything, for programs
"""

import argparse
import json
import platform
from pathlib import Path

from surnn.runs.environment import commit, version

from ..tables import show

HELP = "show this installation, a run, or all runs in a folder"
PACKAGES = (
    "torch", "triton", "numpy", "tyro", "rich", "safetensors", "matplotlib", "tensorboard",
    "onnxruntime", "tokenizers", "transformers",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn info``."""
    parser.add_argument(
        "run", type=Path, nargs="?", metavar="RUN", help="a run's folder, or a folder of runs"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> None:
    """Print it as text, as a table or as JSON."""
    if arguments.run is None:
        facts = installation()
        lines = [f"{name:18} {value}" for name, value in facts.items()]
        print(json.dumps(facts, indent=2) if arguments.json else "\n".join(lines))
        return
    from surnn.runs.summary import find_runs  # noqa: PLC0415 (torch)

    if paths := find_runs(arguments.run):
        _show_runs(paths, arguments.json)
    else:
        _show_run(arguments.run, arguments.json)


def _show_runs(paths: list[Path], as_json: bool) -> None:
    from surnn.runs.summary import overview_row  # noqa: PLC0415 (torch)

    rows = sorted(map(overview_row, paths), key=lambda row: row["started"], reverse=True)
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        show(tuple(rows[0]), [tuple(row.values()) for row in rows])


def _show_run(path: Path, as_json: bool) -> None:
    from surnn.runs.config_json import config_from_dict  # noqa: PLC0415 (torch)
    from surnn.runs.folder import RunFolder  # noqa: PLC0415
    from surnn.runs.summary import run_details, summary_lines  # noqa: PLC0415

    folder = RunFolder.open(path)
    config = config_from_dict(folder.config())
    details = run_details(folder, config)
    if as_json:
        print(json.dumps(details, indent=2))
    else:
        lines = summary_lines(folder.path, config, details)
        print("\n".join(f"{name:12} {value}" for name, value in lines))


# ---------------------------------------------------------------------------- the installation


def installation() -> dict[str, str]:
    """Versions, devices, backends and data folders."""
    import torch  # noqa: PLC0415

    from surnn import __version__  # noqa: PLC0415
    from surnn.data.locate import places  # noqa: PLC0415

    facts = {"surnn": f"{__version__} ({commit() or 'not from git'})"}
    facts["python"] = platform.python_version()
    facts |= {name: version(name) or "not installed" for name in PACKAGES}
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        memory = gpu.total_memory / 2**30
        facts[f"GPU {index}"] = f"{gpu.name}, {memory:.0f} GiB, sm_{gpu.major}{gpu.minor}"
    if not torch.cuda.is_available():
        facts["GPU"] = "none that torch can use"
    facts["CPU threads"] = str(torch.get_num_threads())
    facts |= {f"backend {name}": answer for name, answer in backends().items()}
    facts["C engine"] = c_engine()
    facts["data"] = ", ".join(str(place) for place in places())
    return facts


def c_engine() -> str:
    """Whether the library of ``surnn.Engine`` can be loaded."""
    from surnn.deploy.engine import EngineError, library  # noqa: PLC0415 (numpy)

    try:
        library()
    except (EngineError, OSError) as error:  # OSError: built for another machine
        return f"no: {error}"
    return "yes"


def backends() -> dict[str, str]:
    """Whether each backend can run here."""
    import torch  # noqa: PLC0415

    from surnn.nn.runtime import has_triton  # noqa: PLC0415
    from surnn.scan import native  # noqa: PLC0415

    triton = "yes"
    if not has_triton():
        triton = "no: triton is not installed"
    elif not torch.cuda.is_available():
        triton = "no: it needs a GPU"
    in_c = "yes (CPU, float32)" if native.is_available() else "no: the C library was not built"
    return {
        "reference": "yes",
        "events": "yes",
        "onepass": "yes (GRU)",
        "native": in_c,
        "triton": triton,
    }
