"""What this installation can do, or what a run is.

surnn info
surnn info runs/copying/2026-01-31-120000
"""

import argparse
import json
import platform
from pathlib import Path

from ..cli import CommandError
from ..versions import commit, version

HELP = "about this installation, or a run"
PACKAGES = ("torch", "triton", "numpy", "tyro", "rich", "safetensors", "matplotlib", "tensorboard")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn info``."""
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN", help="a run's folder")


def run(arguments: argparse.Namespace) -> None:
    """Print it."""
    if arguments.run is None:
        for name, value in installation().items():
            print(f"{name:18} {value}")
        return
    from ..runs import RunError, RunFolder  # noqa: PLC0415 (torch)

    try:
        folder = RunFolder.open(arguments.run)
        print(json.dumps(folder.config(), indent=2))
    except RunError as error:
        raise CommandError(str(error)) from error
    for line in [m for m in folder.metrics() if m["kind"] == "valid"][-5:]:
        print(json.dumps(line))


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
    found["data"] = ", ".join(str(place) for place in places())
    return found


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
