"""The checkpoints of a run folder: last, previous and best.

Each is a folder with model.safetensors, state.pt, run_config.json (a copy) and manifest.json. It is
written under another name, synced, and then renamed, so that a process killed at any moment leaves
a complete one; metrics.jsonl is synced before the rename, so that the log never lacks lines of a
checkpoint. The manifest holds checksums, which detect damage.
"""

import contextlib
import json
import pickle
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from surnn.data.text_files import read_own_text
from surnn.errors import RunError, printable

from .files import FREE_SPACE, checksum, sync
from .values import wrong_state

CONFIG_COPY = "run_config.json"
"""The copy of the run's config.json in a checkpoint. By its own name a checkpoint would look like a
run."""
RESUMABLE = ("last", "previous")
"""Checkpoints with the state of the optimizer; ``best`` holds weights only."""
DAMAGE = (
    SafetensorError, pickle.UnpicklingError, OSError, RuntimeError, ValueError, TypeError, KeyError,
    EOFError, AttributeError, IndexError, AssertionError,
)  # fmt: skip
"""Exceptions of readers of damaged files."""
OLD_STATE_KEYS = {
    "starting": "startup_seconds",
    "since_best": "evaluations_since_best",
    "logged": "logged_step",
    "evaluated": "evaluated_step",
    "carried": "stream_states",
    "average": "weight_ema",
    "losses": "loss_sum",
    "random": "random_states",
}
"""Keys of state.pt in runs of version 0.1, and their names now."""


class Checkpoints:
    """Reads and writes the checkpoints of one run folder.

    Args:
        path: the run folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """The checkpoints that exist."""
        return [name for name in ("best", *RESUMABLE) if (self.path / name).exists()]

    def find(self, name: str) -> Path | None:
        """The folder of checkpoint ``name``, also after a crash between two renames."""
        others = {"last": ("previous",), "best": ("best.old",)}
        folders = [self.path / each for each in (name, *others.get(name, ()))]
        return next((folder for folder in folders if folder.exists()), None)

    # ------------------------------------------------------------ writing

    def save(self, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write ``last``; the one before becomes ``previous``."""
        last, previous = self.path / "last", self.path / "previous"
        written = self._write("last", weights, state)
        with self.write_errors():
            self._sync_log()
            if last.exists():
                if previous.exists():
                    shutil.rmtree(previous)
                last.rename(previous)
            written.rename(last)
            sync(self.path)

    def save_best(self, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write ``best``, the weights with the best validation metric so far."""
        best, old = self.path / "best", self.path / "best.old"
        written = self._write("best", weights, state)
        with self.write_errors():
            self._sync_log()
            if best.exists():
                shutil.rmtree(old, ignore_errors=True)  # left by a process that was killed here
                best.rename(old)
            written.rename(best)
            sync(self.path)
        shutil.rmtree(old, ignore_errors=True)

    def _sync_log(self) -> None:
        """Write the log to disk. It must be there before the checkpoint."""
        if (self.path / "metrics.jsonl").exists():
            sync(self.path / "metrics.jsonl")
        sync(self.path)

    def _write(self, name: str, weights: dict[str, Tensor], state: dict[str, Any]) -> Path:
        folder = self.path / f"{name}.new"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with self.write_errors():
                folder.mkdir()
                contiguous = {k: v.contiguous() for k, v in weights.items()}
                save_file(contiguous, folder / "model.safetensors")
                torch.save(state, folder / "state.pt")
                # safetensors ignores the umask and hides its files from other users
                shutil.copymode(folder / "state.pt", folder / "model.safetensors")
                if (self.path / "config.json").is_file():
                    (folder / CONFIG_COPY).write_text(read_own_text(self.path / "config.json"))
                sums = {p.name: checksum(p) for p in sorted(folder.iterdir())}
                (folder / "manifest.json").write_text(json.dumps(sums))
                for path in (*folder.iterdir(), folder):
                    sync(path)
        except RunError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder

    @contextlib.contextmanager
    def write_errors(self, what: str = "the checkpoint") -> Iterator[None]:
        """Raise the errors of all writers, each of which has its own type, as RunError."""
        try:
            yield
        except (OSError, RuntimeError, SafetensorError) as error:
            raise RunError(
                f"{what} could not be written to {self.path}: {error}; earlier checkpoints are "
                f"untouched. {FREE_SPACE} and resume: surnn resume {self.path}"
            ) from error

    # ------------------------------------------------------------ reading

    def load(
        self, folder: Path, device: torch.device | str = "cpu"
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights and state of a checkpoint's folder, if the checksums match."""
        if (damage := damage_of(folder)) is not None:
            raise RunError(f"checkpoint {folder} {damage}; {self._alternative(folder)}")
        try:
            weights = load_file(folder / "model.safetensors", device=str(device))
            _check_stored(folder / "state.pt")
            state: Any = torch.load(folder / "state.pt", map_location=device, weights_only=True)
            named = state
            if isinstance(state, dict):
                named = {OLD_STATE_KEYS.get(str(key), str(key)): v for key, v in state.items()}
            if (wrong := wrong_state(named)) is not None:
                raise ValueError(wrong)
        except DAMAGE as error:
            reason = str(error).partition("\n")[0]
            raise RunError(
                f"checkpoint {folder} cannot be read ({type(error).__name__}: {reason}); "
                f"{self._alternative(folder)}"
            ) from error
        return weights, named

    def _alternative(self, damaged: Path) -> str:
        """How to do without a damaged checkpoint."""
        if damaged.name == "last" and damage_of(self.path / "previous") is None:
            return "resuming from the one before it gives the same run: --checkpoint previous"
        best = damaged.name.startswith("best")
        for name in RESUMABLE if best else ("best",):  # of best, weights only
            if damage_of(self.path / name) is None:
                flag = f"--checkpoint {name} (in Python checkpoint={name!r})"
                return f"the weights of {name} are intact: {flag}"
        return "no other checkpoint is intact; start again with surnn train"


def _check_stored(path: Path) -> None:
    """Raise ValueError if a file of ``torch.save`` is compressed: torch never compresses, and a
    file of a megabyte can unpack to a gigabyte."""
    if zipfile.is_zipfile(path):  # otherwise torch's own reader refuses it, or reads the old format
        with zipfile.ZipFile(path) as archive:
            if sum(info.file_size for info in archive.infolist()) > path.stat().st_size:
                raise ValueError(f"{path.name} unpacks to more bytes than it has")


def damage_of(checkpoint: Path) -> str | None:
    """The damage of a checkpoint; None if it is intact."""
    try:
        sums = json.loads(read_own_text(checkpoint / "manifest.json"))
    except (OSError, ValueError, RecursionError):
        return "has no readable manifest"
    if not isinstance(sums, dict) or not {"model.safetensors", "state.pt"} <= set(sums):
        return "has no readable manifest"
    for name, expected in sums.items():
        if name in (".", "..") or "/" in name or "\\" in name:
            return (
                f"is damaged: its manifest names {printable(name)!r}, which is not one of its files"
            )
        try:
            matches = checksum(checkpoint / name) == expected
        except OSError as error:
            return f"is damaged: {name} cannot be read ({error.strerror or error})"
        if not matches:
            return f"is damaged: the checksum of {name} does not match"
    return None
