"""The run folder: the whole record of a training run, and everything needed to resume it.

::

    config.json        every option, task included
    environment.json   versions, device, commit, processes, where the data were
    metrics.jsonl      one line a record, only ever appended to
    evaluations.jsonl  one line for each surnn eval
    resumed.jsonl      one line for each surnn resume, with the options that changed
    tokenizer.json     of language models with tokens of their own
    text.json          of text_file: lengths and checksums, to detect another text in its place
    last/ previous/    checkpoints: model.safetensors, state.pt, manifest.json
    best/              the weights with the best validation metric
    lock, lock.held    the process that trains, and its lock

A folder is never overwritten. It gets its name when it is complete, so that a process killed while
it is made leaves nothing of that name. Checkpoints, evaluations and sessions are on disk when they
are reported. Lines of metrics.jsonl are synced with the next checkpoint; lines after the last
checkpoint, which a resumed run writes again, can be lost if the power fails.

A folder may come from somebody else: its files are data, and are checked as such. See SECURITY.md.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from surnn.config.old_keys import upgrade
from surnn.data.text_files import read_own_text
from surnn.errors import RunError, printable

from .checkpoints import CONFIG_COPY, RESUMABLE, Checkpoints, damage_of
from .config_json import flat
from .environment import capture_environment, timestamp
from .files import append_line, new_folder, write_atomically
from .lock import Holder, acquire, lock_holder, release
from .values import is_metric


class FolderExists(RunError):
    """The folder of a new run exists already."""


class RunFolder:
    """Reads and writes one run's folder.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path)

    # ------------------------------------------------------------ creating and opening

    @classmethod
    def create(
        cls,
        path: Path,
        config: dict[str, Any],
        files: Mapping[str, str] | None = None,
        **about: Any,
    ) -> "RunFolder":
        """A new folder with its configuration; an existing run is an error, and left alone.

        ``files`` are further files by their names; ``about`` is added to environment.json.
        """
        if path.exists() and not path.is_dir():
            raise RunError(f"{path} is a file; choose a folder with --out")
        if path.exists() and any(path.iterdir()):
            raise FolderExists(
                f"{path} exists already and is not empty; choose another folder with --out, or "
                f"resume that run: surnn resume {path}"
            )
        environment = {**capture_environment(), **about}
        contents = {
            **(files or {}),
            "config.json": json.dumps(config, indent=2) + "\n",
            "environment.json": json.dumps(environment, indent=2) + "\n",
        }
        try:
            with new_folder(path) as draft:
                for name, text in contents.items():
                    write_atomically(draft / name, text)
        except FileExistsError as error:
            raise FolderExists(
                f"{path} was made by another process meanwhile; choose another folder with --out"
            ) from error
        except OSError as error:
            raise RunError(f"the folder {path} cannot be made: {error}; choose another") from error
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing run."""
        if (path / "config.json").is_file():
            return cls(path)
        if not path.exists():
            raise RunError(f"there is no folder {path}; surnn train makes runs, in runs/")
        if (path.parent / "config.json").is_file():
            raise RunError(f"{path} is a part of a run; did you mean {path.parent}?")
        raise RunError(f"{path} is not a run: it holds no config.json; surnn train makes runs")

    # ------------------------------------------------------------ one process at a time

    def lock(self) -> None:
        """Keep other processes from training in this folder, until :meth:`unlock` or exit."""
        with self.checkpoints.write_errors("the lock"):
            other = acquire(self.path / "lock", self)
        if other is not None and other.process == str(os.getpid()):
            raise RunError(
                f"this process is training in {self.path} already, with another RunFolder; wait "
                "until it ends, or unlock that one"
            )
        if other is not None:
            raise RunError(
                f"process {other.process or '?'} is training in {self.path}; wait until it ends, "
                f"or stop it, which leaves a checkpoint: kill {other.process}"
            )

    def unlock(self, *, ended: bool = True) -> None:
        """Let others train in this folder; ``ended`` says that training ended normally."""
        release(self.path / "lock", self, ended=ended)

    def lock_holder(self) -> Holder:
        """The process that trains here, or the last one that did and ended with an error."""
        try:
            return lock_holder(self.path / "lock")
        except OSError as error:
            raise RunError(
                f"the lock of {self.path} cannot be read: {error}; if no process trains there, "
                "delete that file"
            ) from error

    # ------------------------------------------------------------ configuration

    def set_config(self, config: dict[str, Any]) -> dict[str, Any]:
        """Replace the configuration and record the change; options as [before, now]."""
        before, now = flat(self.config()), flat(config)
        names = [name for name in now | before if before.get(name) != now.get(name)]
        changes = {name: [before.get(name), now.get(name)] for name in names}
        if changes:
            self.log_session(changes=changes)
            write_atomically(self.path / "config.json", json.dumps(config, indent=2) + "\n")
        return changes

    def config(self) -> dict[str, Any]:
        """Every option of the run, with its current name."""
        return upgrade(self._json("config.json"))

    def environment(self) -> dict[str, Any]:
        """The environment in which the run started."""
        return self._json("environment.json")

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            values = _printable(json.loads(read_own_text(path)))
            if not isinstance(values, dict):
                raise ValueError("it holds no options")
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"{path} is damaged: {error}{self._copy_of(name)}") from error
        return values

    def _copy_of(self, name: str) -> str:
        """How to restore a file if a checkpoint has a copy."""
        for folder in (self.path / each for each in self.checkpoints.names()):
            copy = folder / CONFIG_COPY
            if name == "config.json" and copy.is_file() and damage_of(folder) is None:
                return f"; a copy is in {copy}: copy it back"
        return ""

    # ------------------------------------------------------------ logs

    def log(self, **values: Any) -> None:
        """Append a line to metrics.jsonl."""
        self._append("metrics.jsonl", values, synced=False)

    def log_session(self, **values: Any) -> None:
        """Append a line to resumed.jsonl."""
        self._append("resumed.jsonl", {**capture_environment(), **values})

    def log_evaluation(self, **values: Any) -> None:
        """Append a line to evaluations.jsonl."""
        line = {"time": timestamp(), **values}
        self._append("evaluations.jsonl", line, retry="evaluate it again")

    def _append(
        self, name: str, values: dict[str, Any], retry: str = "", *, synced: bool = True
    ) -> None:
        retry = retry or f"resume: surnn resume {self.path}"
        append_line(self.path / name, json.dumps(values), retry, synced=synced)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, without one that a killed process left incomplete."""
        return [line for line in self._lines("metrics.jsonl") if is_metric(line)]

    def evaluations(self) -> list[dict[str, Any]]:
        """The lines of evaluations.jsonl: the results of surnn eval."""
        return list(self._lines("evaluations.jsonl"))

    def sessions(self) -> list[dict[str, Any]]:
        """The lines of resumed.jsonl: when and where the run resumed, and with which changes."""
        return list(self._lines("resumed.jsonl"))

    def test_metrics(self, checkpoint: str = "best") -> dict[str, Any] | None:
        """Metrics of the last test on the task of training; None if there was no such test."""
        for line in reversed(self.evaluations()):
            key = tuple(line.get(name) for name in ("split", "checkpoint", "overrides"))
            if key == ("test", checkpoint, {}) and "metrics" in line:
                return line["metrics"]
        return None

    def last_step(self) -> int:
        """The last optimizer step in metrics.jsonl."""
        return max((line["step"] for line in self.metrics()), default=0)

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        path = self.path / name
        if not path.exists():
            return
        try:
            text = read_own_text(path, errors="replace")
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error}; delete it, or restore it") from error
        for line in text.split("\n"):
            with contextlib.suppress(ValueError, RecursionError):
                values = _printable(json.loads(line))
                if isinstance(values, dict):
                    yield values

    def drop_lines_after(self, step: int, evaluated_step: int | None = None) -> None:
        """Drop lines of metrics.jsonl past a checkpoint; the resumed run writes them again.

        An evaluation at the checkpoint itself is dropped too, unless ``evaluated_step`` says that
        the checkpoint was saved after it.
        """
        if not (self.path / "metrics.jsonl").exists():
            return
        lines = [
            line
            for line in self.metrics()
            if line["step"] < step
            or (line["step"] == step and (line["kind"] == "train" or evaluated_step == step))
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        write_atomically(self.path / "metrics.jsonl", text)

    # ------------------------------------------------------------ checkpoints

    def save(self, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write checkpoint ``last``; the one before becomes ``previous``."""
        self.checkpoints.save(weights, state)

    def save_best(self, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Write checkpoint ``best``."""
        self.checkpoints.save_best(weights, state)

    def load(
        self, name: str, device: torch.device | str = "cpu"
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights and state of checkpoint ``name``: last, previous or best."""
        folder = self.checkpoints.find(name)
        if folder is None:
            raise RunError(f"{self.path} holds no checkpoint {name!r}; {self._alternative(name)}")
        return self.checkpoints.load(folder, device)

    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return any((self.path / name).exists() for name in RESUMABLE)

    def is_record(self) -> bool:
        """Whether the checkpoints were deleted, so that only the record is left.

        A process that ends normally leaves a checkpoint. A process that is killed leaves a
        checkpoint if its log reaches past the first one, or if it was evaluated.
        """
        logged = self.last_step()
        first = self.config().get("train", {}).get("checkpoint_every", 0)
        killed_before = logged <= first and any(self.lock_holder()) and not self.evaluations()
        return not self.has_checkpoint() and logged > 0 and not killed_before

    def _alternative(self, name: str) -> str:
        """How to do without a checkpoint that does not exist."""
        names = self.checkpoints.names()
        if not names and self.is_record():
            return "the checkpoints were deleted, only the record is left"
        if not names:
            return f"the run stopped before its first checkpoint: surnn resume {self.path}"
        reason = "no validation has finished yet; " if name == "best" else ""
        return f"{reason}use --checkpoint {names[0]} (in Python checkpoint={names[0]!r})"


def _printable(values: Any) -> Any:
    """Values of a JSON file with printable texts: they reach terminals and pages."""
    if isinstance(values, str):
        return printable(values)
    if isinstance(values, list):
        return [_printable(value) for value in values]
    if isinstance(values, dict):
        return {printable(name): _printable(value) for name, value in values.items()}
    return values
