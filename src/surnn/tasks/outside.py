"""Tasks that do not come with surnn: files, modules and entry points of other packages.

A run stores where its task came from: the file, the class and the file's checksum. A run folder may
come from somebody else, so that the code it names is never imported on its word. It is imported if

- the user names it: ``surnn train FILE.py:CLASS``, ``--task-from FILE.py:CLASS``; or
- the user has trained with this very file before: path and checksum are in the user's own list of
  trusted tasks, ``$SURNN_CACHE/trusted_tasks.json``.

Entry points are code of installed packages, which the user trusts already. See SECURITY.md.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from surnn.data.locate import cache_root
from surnn.errors import ConfigError, RunError, printable

from .base import Task

GROUP = "surnn.tasks"
TRUSTED = "trusted_tasks.json"
_allowed: list[tuple[str, type]] = []
"""Classes that the user named in this process: (name of the class, class)."""


def is_outside(name: str) -> bool:
    """Whether ``name`` is FILE.py:CLASS or module:CLASS."""
    return ":" in name


def load_outside(spec: str) -> type:
    """The class of FILE.py:CLASS or module:CLASS, which the user named. It is imported."""
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise ConfigError(f"{spec!r} is not a task; expected FILE.py:CLASS or package.module:CLASS")
    module = _import_file(Path(place).expanduser()) if _is_file(place) else _import_module(place)
    kind = getattr(module, name, None)
    if kind is None:
        tasks = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, Task)]
        raise ConfigError(f"{place} has no class {name!r}; its tasks are {', '.join(tasks) or '-'}")
    check_task(kind, spec)
    _allowed.append((kind.__qualname__, kind))
    return kind


def check_task(kind: Any, spec: str) -> None:
    """Raise unless ``kind`` is a whole task."""
    if not isinstance(kind, type) or not issubclass(kind, Task):
        raise ConfigError(f"{spec} is not a task; derive the class from surnn.tasks.Task")
    if not is_dataclass(kind):
        raise ConfigError(f"{spec} must be a dataclass: decorate it with @dataclass(frozen=True)")
    if open_methods := sorted(getattr(kind, "__abstractmethods__", ())):
        raise ConfigError(f"{spec} lacks {', '.join(open_methods)}; see surnn.tasks.Task")
    if not isinstance(getattr(kind, "name", None), str):
        raise ConfigError(f'{spec} has no name; add name: ClassVar[str] = "my_task"')


# ---------------------------------------------------------------------------- where it came from


def source_of(kind: type) -> dict[str, str] | None:
    """Where the class of a task came from; None if it is surnn's own or an entry point's."""
    if kind.__module__.partition(".")[0] == "surnn" or kind in entry_point_tasks().values():
        return None
    try:
        file = Path(inspect.getfile(kind)).absolute()
        source = {"file": str(file), "class": kind.__qualname__, "sha256": _checksum(file)}
        named = _root_of(file, kind.__module__) is not None
        return source | ({"module": kind.__module__} if named else {})
    except (OSError, TypeError):  # a class of an interactive session
        return {"file": "", "class": kind.__qualname__, "sha256": ""}


def trust(kind: type) -> None:
    """Remember that the user trained with this file, so that its runs load without a question."""
    source = source_of(kind)
    if source is None or not source["sha256"]:
        return
    known = _trusted()
    entry = [source["file"], source["sha256"]]
    if entry in known:
        return
    path = cache_root() / TRUSTED
    # A list that cannot be written costs one more --task-from, no more.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([*known, entry], indent=1) + "\n")


def load_source(source: Any) -> type:
    """The class of a run's task. It is imported only if the user has named or trusted it."""
    if not isinstance(source, dict) or not all(
        isinstance(source.get(key), str) for key in ("file", "class", "sha256")
    ):
        raise RunError("the run's configuration is damaged: it does not say where its task is")
    file, name = Path(source["file"]), source["class"]
    for qualname, kind in reversed(_allowed):  # named in this process: the user's word counts
        if qualname == name:
            return kind
    spec = printable(f"{file}:{name}")
    again = "--task-from FILE.py:CLASS (in Python surnn.load(run, task_from=...))"
    if not source["file"]:
        raise RunError(
            f"the run's task {name} was defined in an interactive session; write it to a file and "
            f"name that: {again}"
        )
    if not file.is_file():
        raise RunError(
            f"the run's task came from {spec}, and that file is gone: bring it back, or name its "
            f"new place: {again}"
        )
    untrusted = RunError(
        f"the run names code, {spec}, which you have not trained with here, so it was not "
        f"imported. Read that file; if you trust it, add --task-from {spec}"
    )
    known = _trusted()
    if str(file) not in [entry[0] for entry in known]:  # not even read: it may have any size
        raise untrusted
    now = _checksum(file)
    if now != source["sha256"]:
        raise RunError(
            f"the run's task came from {spec}, and that file has changed since: bring the old one "
            f"back, or use it as it is now: --task-from {spec}"
        )
    if [str(file), now] not in known:
        raise untrusted
    module = source.get("module", "")
    root = _root_of(file, module) if isinstance(module, str) else None
    if root is None:
        return load_outside(f"{file}:{name}")
    with _folder_on_path(root):  # a module of a package, which may import its neighbours
        return load_outside(f"{module}:{name}")


def _root_of(file: Path, module: str) -> Path | None:
    """The folder from which ``file`` is imported as ``module``; None if it is not."""
    parts = module.split(".")
    fits = file.with_suffix("").parts[-len(parts) :] == tuple(parts)
    return file.parents[len(parts) - 1] if module and fits else None


def _trusted() -> list[list[str]]:
    try:
        entries = json.loads((cache_root() / TRUSTED).read_text())
    except (OSError, ValueError):
        return []
    listed = entries if isinstance(entries, list) else []
    return [entry for entry in listed if isinstance(entry, list) and len(entry) == 2]


def _checksum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


# ---------------------------------------------------------------------------- importing


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place


def _import_file(path: Path) -> Any:
    """The module of a file. It can import modules from its own folder, as a script can."""
    path = path.absolute()
    if not path.is_file():
        raise ConfigError(f"there is no file {path}; expected FILE.py:CLASS")
    name = f"surnn_task_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _importing(str(path)), _folder_on_path(path.parent):
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return module


def _import_module(place: str) -> Any:
    with _importing(place), _folder_on_path(Path.cwd()):
        return importlib.import_module(place)


@contextlib.contextmanager
def _importing(place: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise ConfigError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _folder_on_path(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


# ---------------------------------------------------------------------------- entry points


@lru_cache(maxsize=1)
def entry_point_tasks() -> dict[str, type]:
    """The tasks of installed packages by name."""
    tasks = {}
    for entry in metadata.entry_points(group=GROUP):
        kind = entry.load()
        check_task(kind, f"the entry point {entry.name} = {entry.value}")
        tasks[entry.name] = kind
    return tasks
