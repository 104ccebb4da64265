"""The environment of a run: versions, device, commit. torch is imported on first use."""

import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

ARCHIVED = "$Format:%H$"
"""git writes the commit in here when it makes an archive (.gitattributes says so)."""


def capture_environment() -> dict[str, Any]:
    """Versions, device and command of this process, without names of machines."""
    import torch  # noqa: PLC0415 (surnn info imports this module to parse its arguments)
    from torch import distributed  # noqa: PLC0415

    environment: dict[str, Any] = {
        "time": timestamp(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": version("triton"),
        "numpy": version("numpy"),
        "commit": commit(),
        "device": "cpu",
        "processes": distributed.get_world_size() if distributed.is_initialized() else 1,
        "command": " ".join(["surnn", *sys.argv[1:]]),
    }
    if torch.cuda.is_available():
        environment["device"] = torch.cuda.get_device_name()
        environment["cudnn"] = torch.backends.cudnn.version()
    return environment


def timestamp() -> str:
    """The local time, as 2026-01-31T12:00:00+0100."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def commit(folder: Path = Path(__file__).parents[1]) -> str | None:
    """The commit of this source; a trailing ``+`` marks an uncommitted working tree.

    In an archive it is the commit of the archive. None if there is neither.
    """

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # else the repository is another one
        return git("rev-parse", "HEAD") + "+" * bool(git("status", "--porcelain", "--", "."))
    except (OSError, subprocess.CalledProcessError):  # OSError: git is not installed
        return None if ARCHIVED.startswith("$") else ARCHIVED
