"""The run folder: the whole record of a training, and all that is needed to go on with it.

::

    config.json        every choice, task included
    environment.json   versions, device, commit, processes, where the data were
    metrics.jsonl      one line an event, only ever appended to
    evaluations.jsonl  one line each time that surnn eval evaluated it
    resumed.jsonl      one line each time that the run went on, and what was changed
    tokenizer.json     of language models with tokens of their own
    text.json          of text_file: lengths and checksums, lest another text take its place
    last/ previous/    checkpoints: model.safetensors, state.pt, manifest.json
    best/              the weights with the best validation metric
    lock               held by the process that trains

A checkpoint is written beside the old one, synced, and then renamed into place, so that a process
killed at any moment leaves a whole one; its manifest holds checksums, so that a damaged one is
noticed. A folder is never overwritten.
"""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, distributed

from .config import GateConfig, ModelConfig, RunConfig, TrainConfig
from .locks import Holder, give_back, holder, take
from .tasks import TASKS, load_task
from .versions import commit, version

CHECKPOINTS = ("last", "previous")
MEND = "Make room, or the folder writable,"


class RunError(Exception):
    """What is wrong with a run's folder, and how to mend it."""


class RunFolder:
    """Reads and writes one run's folder.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    # ------------------------------------------------------------ beginning and finding

    @classmethod
    def create(cls, path: Path, config: dict[str, Any], **about: Any) -> "RunFolder":
        """A new folder with its configuration; an existing one is left alone, with an error.

        ``about`` is kept beside the environment.
        """
        if path.exists() and not path.is_dir():
            raise RunError(f"{path} is a file; choose a folder with --out")
        if path.exists() and any(path.iterdir()):
            raise RunError(
                f"{path} exists already and is not empty; choose another folder with --out, or go "
                f"on with that run: surnn resume {path}"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"the folder {path} cannot be made: {error}") from error
        write_atomically(path / "config.json", json.dumps(config, indent=2) + "\n")
        here = {**environment(), **about}
        write_atomically(path / "environment.json", json.dumps(here, indent=2) + "\n")
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """An existing run."""
        if (path / "config.json").is_file():
            return cls(path)
        if not path.exists():
            raise RunError(f"there is no folder {path}; runs are made by surnn train, in runs/")
        if (path.parent / "config.json").is_file():
            raise RunError(f"{path} is a part of a run; did you mean {path.parent}?")
        raise RunError(
            f"{path} is not a run: it holds no config.json; runs are made by surnn train"
        )

    # ------------------------------------------------------------ one process at a time

    def lock(self) -> None:
        """Keep other processes from training in here, until :meth:`unlock` or this one's end."""
        with self._writing("the lock"):
            other = take(self.path / "lock")
        if other is not None:
            raise RunError(
                f"process {other.process or '?'} trains in {self.path} at this moment; wait for "
                f"its end, or stop it, which leaves a checkpoint: kill {other.process}"
            )

    def unlock(self) -> None:
        """Let others train in here."""
        give_back(self.path / "lock")

    def holder(self) -> Holder:
        """The process that trains in here; or that did, and came to no good end."""
        return holder(self.path / "lock")

    # ------------------------------------------------------------ its configuration

    def change(self, config: dict[str, Any]) -> dict[str, Any]:
        """Another configuration from here on, on record; what changed, as [before, now]."""
        before, now = flat(self.config()), flat(config)
        names = [name for name in now | before if before.get(name) != now.get(name)]
        changes = {name: [before.get(name), now.get(name)] for name in names}
        if changes:
            self.note(changes=changes)
            write_atomically(self.path / "config.json", json.dumps(config, indent=2) + "\n")
        return changes

    def note(self, **values: Any) -> None:
        """A line in resumed.jsonl."""
        self._append("resumed.jsonl", {**environment(), **values})

    def evaluated(self, **values: Any) -> None:
        """A line in evaluations.jsonl."""
        self._append("evaluations.jsonl", {"time": now(), **values}, then="evaluate it again")

    def has_checkpoint(self) -> bool:
        return any((self.path / name).exists() for name in CHECKPOINTS)

    def is_record(self) -> bool:
        """Whether its checkpoints are gone: a process that ends well leaves one, and so does one
        that is killed, if its log goes on after the first, or something was evaluated."""
        logged, first = self.reached(), self.config()["train"]["checkpoint_every"]
        killed_before = logged <= first and any(self.holder()) and not self.evaluations()
        return not self.has_checkpoint() and logged > 0 and not killed_before

    def config(self) -> dict[str, Any]:
        """Every choice of the run."""
        return self._json("config.json")

    def environment(self) -> dict[str, Any]:
        """What the run began on."""
        return self._json("environment.json")

    def _json(self, name: str) -> dict[str, Any]:
        try:
            return json.loads((self.path / name).read_text())
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path / name} is damaged: {error}") from error

    # ------------------------------------------------------------ metrics

    def log(self, **values: Any) -> None:
        """Append one line to metrics.jsonl."""
        self._append("metrics.jsonl", values)

    def _append(self, name: str, values: dict[str, Any], then: str = "") -> None:
        path, then = self.path / name, then or f"go on: surnn resume {self.path}"
        whole = path.stat().st_size if path.exists() else 0
        try:
            with path.open("a") as file:
                file.write(json.dumps(values) + "\n")
        except OSError as error:
            with contextlib.suppress(OSError):  # half a line is worse than none
                os.truncate(path, whole)
            raise RunError(
                f"{path} could not be written: {error}; checkpoints are whole. {MEND} and {then}"
            ) from error

    def metrics(self) -> list[dict[str, Any]]:
        """All lines; one that a killed process left half written is left out."""
        return list(self._lines("metrics.jsonl"))

    def evaluations(self) -> list[dict[str, Any]]:
        """What surnn eval has found."""
        return list(self._lines("evaluations.jsonl"))

    def tested(self, checkpoint: str = "best") -> dict[str, Any] | None:
        """What weights did on the test set of the task they were trained for, the last time; None
        if they have not been tested."""
        wanted = ("test", checkpoint, {})
        for line in reversed(self.evaluations()):
            if (line["split"], line["checkpoint"], line["overrides"]) == wanted:
                return line["metrics"]
        return None

    def reached(self) -> int:
        """The last update of its log."""
        return max((line["step"] for line in self.metrics()), default=0)

    def sessions(self) -> list[dict[str, Any]]:
        """When and where it went on, and what was changed then."""
        return list(self._lines("resumed.jsonl"))

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        path = self.path / name
        if not path.exists():
            return
        for line in path.read_text(errors="replace").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                yield json.loads(line)

    def forget_after(self, step: int, evaluated: int | None = None) -> None:
        """Drop lines past a checkpoint from which training goes on: they will be made again.

        Also an evaluation at the checkpoint itself, unless it was ``evaluated`` by then.
        """
        if not (self.path / "metrics.jsonl").exists():
            return
        kept = [
            line
            for line in self._lines("metrics.jsonl")
            if line["step"] < step
            or (line["step"] == step and (line["kind"] == "train" or evaluated == step))
        ]
        text = "".join(json.dumps(line) + "\n" for line in kept)
        write_atomically(self.path / "metrics.jsonl", text)

    # ------------------------------------------------------------ checkpoints

    def save(self, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
        """A checkpoint to go on from; the one before is kept as ``previous``."""
        last, previous = self.path / "last", self.path / "previous"
        fresh = self._write("last", weights, state)
        with self._writing():
            if last.exists():
                if previous.exists():
                    shutil.rmtree(previous)
                last.rename(previous)
            fresh.rename(last)
            sync(self.path)

    def save_best(self, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
        """The best weights so far."""
        best, old = self.path / "best", self.path / "best.old"
        fresh = self._write("best", weights, state)
        with self._writing():
            if best.exists():
                shutil.rmtree(old, ignore_errors=True)  # left by a process killed right after this
                best.rename(old)
            fresh.rename(best)
            sync(self.path)
        shutil.rmtree(old, ignore_errors=True)

    def _write(self, name: str, weights: dict[str, Tensor], state: dict[str, Any]) -> Path:
        folder = self.path / f"{name}.new"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with self._writing():
                folder.mkdir()
                plain = {k: v.contiguous() for k, v in weights.items()}
                save_file(plain, folder / "model.safetensors")
                torch.save(state, folder / "state.pt")
                # safetensors asks no umask and hides its files from all other users
                shutil.copymode(folder / "state.pt", folder / "model.safetensors")
                sums = {p.name: checksum(p) for p in sorted(folder.iterdir())}
                (folder / "manifest.json").write_text(json.dumps(sums))
                for path in (*folder.iterdir(), folder):
                    sync(path)
        except RunError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder

    @contextlib.contextmanager
    def _writing(self, what: str = "the checkpoint") -> Iterator[None]:
        """Errors of each writer, and each has its own, as one that says what is left."""
        try:
            yield
        except (OSError, RuntimeError, SafetensorError) as error:
            raise RunError(
                f"{what} could not be written to {self.path}: {error}; what was saved "
                f"before is untouched. {MEND} and go on: surnn resume {self.path}"
            ) from error

    def load(
        self, name: str, device: torch.device | str = "cpu"
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights and state of checkpoint ``name``: last, previous or best."""
        folder = self.path / name
        if not folder.exists() and (self.path / f"{name}.old").exists():
            folder = self.path / f"{name}.old"  # killed between two renames
        if not folder.exists() and name == "last" and (self.path / "previous").exists():
            folder = self.path / "previous"
        if not folder.exists():
            raise RunError(f"{self.path} holds no checkpoint {name!r}; {self._besides(name)}")
        self._verify(folder)
        weights = load_file(folder / "model.safetensors", device=str(device))
        state = torch.load(folder / "state.pt", map_location=device, weights_only=True)
        return weights, state

    def _besides(self, name: str) -> str:
        """What can be done while there is no checkpoint of that name."""
        there = [other for other in ("best", *CHECKPOINTS) if (self.path / other).exists()]
        if not there and self.is_record():
            return "they are gone, and its log is kept"
        if not there:
            return f"there is none yet, the run was stopped before: surnn resume {self.path}"
        why = "no validation came to its end yet; " if name == "best" else ""
        return f"{why}there is --checkpoint {there[0]} (in Python checkpoint={there[0]!r})"

    def _verify(self, folder: Path) -> None:
        if (damage := _damage(folder)) is not None:
            raise RunError(f"checkpoint {folder} {damage}; {self._instead(folder)}")

    def _instead(self, damaged: Path) -> str:
        """What can be done without a checkpoint."""
        if damaged.name == "last" and _damage(self.path / "previous") is None:
            return "the one before it leads to the same: --checkpoint previous"
        best = damaged.name.startswith("best")
        for name in CHECKPOINTS if best else ("best",):  # nothing to go on from, but weights
            if _damage(self.path / name) is None:
                how = f"--checkpoint {name} (in Python checkpoint={name!r})"
                return f"the weights of {name} are there still: {how}"
        return "there is no other that is whole; begin again with surnn train"


# ---------------------------------------------------------------------------- helpers


def _damage(checkpoint: Path) -> str | None:
    """What is wrong with it."""
    try:
        sums = json.loads((checkpoint / "manifest.json").read_text())
    except (OSError, ValueError):
        return "has no readable manifest"
    for name, wanted in sums.items():
        path = checkpoint / name
        if not path.exists() or checksum(path) != wanted:
            return f"is damaged: {name} is not what it was"
    return None


def write_atomically(path: Path, content: str | bytes) -> None:
    """All of it or nothing."""
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)
        sync(fresh)
        fresh.replace(path)
        sync(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise RunError(
            f"{path} could not be written: {error}; what it held before is untouched. {MEND} "
            "and try again"
        ) from error


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are really on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def environment() -> dict[str, Any]:
    """What the run ran on, without names of machines."""
    found: dict[str, Any] = {
        "time": now(),
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
        found["device"] = torch.cuda.get_device_name()
        found["cudnn"] = torch.backends.cudnn.version()
    return found


def config_to_dict(config: Any) -> dict[str, Any]:
    """A run's configuration as JSON; the task with its name."""
    plain = {f.name: asdict(getattr(config, f.name)) for f in fields(config) if f.name != "task"}
    return {"task": {"name": config.task.name, **task_options(config.task)}, **plain}


def config_from_dict(values: dict[str, Any]) -> RunConfig:
    """The configuration that a run's folder holds."""
    try:
        task = dict(values["task"])
        name = task.pop("name")
        parts = [(part, values[part]) for part in ("model", "gate", "train")]
    except (KeyError, TypeError) as error:
        raise RunError(f"the run's configuration is damaged: {error!r}") from error
    if name not in TASKS:
        raise RunError(
            f"the run's task {name!r} is none of this version of surnn: {', '.join(TASKS)}"
        )
    kinds = {"model": ModelConfig, "gate": GateConfig, "train": TrainConfig}
    try:
        return RunConfig(
            _from_dict(load_task(name), task), *(_from_dict(kinds[p], each) for p, each in parts)
        )
    except ValueError as error:  # an option was refused that an earlier version took
        raise RunError(f"the run's configuration: {error}") from error


def _from_dict(kind: type, values: dict[str, Any]) -> Any:
    unknown = set(values) - {f.name for f in fields(kind)}
    if unknown:
        raise RunError(
            f"the run's configuration has {', '.join(sorted(unknown))}, which this version of "
            f"{kind.__name__} does not know; it was made by another version of surnn"
        )
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested options as ``{"train.steps": 100}``."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = list(value) if isinstance(value, tuple) else value
    return found


def task_options(task: Any) -> dict[str, Any]:
    """The fields of a task."""
    return asdict(task) if is_dataclass(task) and not isinstance(task, type) else {}
