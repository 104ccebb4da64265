"""A layer below run folders that fails: file operations with errors, cut writes, kills, power cuts.

Operations are counted in the order in which the library calls them: opening for writing, writing,
syncing, renaming, removing and making folders. Only calls with paths are intercepted, so that
writers in C (safetensors, torch) appear by the folder and the syncs around them.
"""

import builtins
import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from unittest import mock

import torch

INTERCEPTED = (
    "open", "write", "fsync", "replace", "rename", "mkdir", "rmdir", "unlink", "ftruncate",
)  # fmt: skip
Node = tuple[int, int]
"""An inode, and how often its number was used before."""
WRITING = os.O_WRONLY | os.O_RDWR


class Fault(BaseException):
    """The end of the process; no handler of the library catches it."""


class FaultInjection:
    """Inside this context, operation ``number`` fails.

    Args:
        number: counted from 0.
        kind: ``error`` raises OSError (no space), and so do all later writes; ``half`` writes half
            of the bytes first; ``kill`` raises :class:`Fault` there and at all later operations;
            ``exit`` ends the process.
    """

    def __init__(self, number: int, kind: str) -> None:
        self.number, self.kind = number, kind
        self.count, self.happened = 0, False
        self._patches: list[Any] = []

    def __enter__(self) -> Self:
        for name in INTERCEPTED:
            original = getattr(os, name)
            patch = mock.patch.object(os, name, self._wrap(name, original))
            patch.start()
            self._patches.append(patch)
        return self

    def __exit__(self, *_: Any) -> None:
        for patch in reversed(self._patches):
            patch.stop()

    def _wrap(self, name: str, original: Callable) -> Callable:
        def run(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not arguments[1] & WRITING:
                return original(*arguments, **options)
            if self.before():
                return self.fail(name, original, arguments)
            gone = self.removed_by(name, arguments, options)
            result = original(*arguments, **options)
            self.after(name, arguments, gone)
            return result

        return run

    def before(self) -> bool:
        """Count the operation; whether it fails."""
        self.count += 1
        if self.kind == "kill" and self.happened:
            return True
        return self.count - 1 == self.number

    def removed_by(self, name: str, arguments: tuple, options: dict) -> int | None:
        """The inode that the operation removes, if it is asked for."""

    def after(self, name: str, arguments: tuple, gone: int | None) -> None:
        """Called after an operation that did not fail."""

    def fail(self, name: str, original: Callable, arguments: tuple) -> Any:
        """Fail as ``kind`` says."""
        self.happened = True
        if self.kind == "exit":
            os._exit(1)
        if self.kind == "half" and name == "write":
            original(arguments[0], arguments[1][: len(arguments[1]) // 2])
        if self.kind == "kill":
            raise Fault(f"killed at operation {self.number}, {name}")
        raise OSError(errno.ENOSPC, f"no space at operation {self.number}, {name}")


class _Counter(FaultInjection):
    def __init__(self) -> None:
        super().__init__(-1, "error")


def count_operations(function: Callable[[Path], None]) -> int:
    """Operations of ``function(path)`` in a new folder."""
    with tempfile.TemporaryDirectory() as folder, _Counter() as counter:
        function(Path(folder) / "run")
    return counter.count


class PowerCut(FaultInjection):
    """The power fails at operation ``number``: :meth:`restore` puts back what was on disk then.

    A file has the content of its last sync. A folder has the names of its last sync; names that
    were made or renamed since are as they were. This is the least that a file system promises.

    Args:
        root: the folder to watch.
        number: counted from 0.
    """

    def __init__(self, root: Path, number: int) -> None:
        super().__init__(number, "kill")
        self.root = root
        self.synced_step = 0
        self._used: dict[int, int] = {}
        """How often each inode was freed: the system uses its number again."""
        self._contents: dict[Node, bytes] = {}
        self._names: dict[Node, dict[str, Node]] = {}
        self._folders: set[Node] = {self._node(root)}

    def _node(self, path: Path) -> Node:
        number = os.stat(path, follow_symlinks=False).st_ino
        return number, self._used.get(number, 0)

    def removed_by(self, name: str, arguments: tuple, options: dict) -> int | None:
        if name not in ("unlink", "rmdir", "replace", "rename"):
            return None
        path = arguments[1] if name in ("replace", "rename") else arguments[0]
        folder = options.get("dst_dir_fd", options.get("dir_fd"))
        try:
            return os.stat(path, dir_fd=folder, follow_symlinks=False).st_ino
        except FileNotFoundError:
            return None

    def after(self, name: str, arguments: tuple, gone: int | None) -> None:
        if gone is not None:
            self._used[gone] = self._used.get(gone, 0) + 1
        if name != "fsync":
            return
        path = Path(os.readlink(f"/proc/self/fd/{arguments[0]}"))
        if not path.exists() or self.root not in (path, *path.parents):
            return
        if path.is_dir():
            self._folders.add(self._node(path))
            self._names[self._node(path)] = {p.name: self._node(p) for p in path.iterdir()}
            for each in path.iterdir():
                if each.is_dir():
                    self._folders.add(self._node(each))
        else:
            with builtins.open(path, "rb") as file:
                self._contents[self._node(path)] = file.read()
        if path == self.root / "run" and (path / "last").exists():
            state = torch.load(path / "last" / "state.pt", weights_only=True)
            self.synced_step = max(self.synced_step, state["step"])

    def restore(self) -> None:
        """Make the folder what was on disk."""
        root = self._node(self.root)
        shutil.rmtree(self.root)
        self._make(self.root, root)

    def _make(self, path: Path, node: Node) -> None:
        if node in self._folders:
            path.mkdir()
            for name, inside in self._names.get(node, {}).items():
                self._make(path / name, inside)
        else:
            path.write_bytes(self._contents.get(node, b""))
