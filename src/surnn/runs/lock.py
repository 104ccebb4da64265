"""A lock: one trainer at a time, and whether the last one ended normally.

The file ``lock`` holds the id of the process; a process that ends normally erases it. The operating
system holds the lock of ``lock.held`` (by ``filelock``: flock on Unix, LockFileEx on Windows), so
that a killed process leaves none. They are two files because others cannot read a file that is
locked on Windows. Inside a process, a lock belongs to the object that acquired it: another one does
not get it. Where locks are unavailable (some file systems) nothing is locked.
"""

import errno
import gc
import os
import stat
import weakref
from pathlib import Path
from typing import NamedTuple

import filelock

from surnn.data.text_files import open_regular

from .files import NO_FOLLOW

UNAVAILABLE = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
"""Errors of file systems that have no locks."""


class _Held(NamedTuple):
    lock: filelock.BaseFileLock | None
    owner: "weakref.ref[object]"


_HELD: dict[tuple[int, Path], _Held] = {}
"""Locks that are held, by process: a forked child does not hold those of its parent. The lock is
None where locks are unavailable."""


class Holder(NamedTuple):
    """The process that holds a lock, or held it last."""

    holds: bool
    """Whether it holds the lock now."""
    process: str
    """Its id; empty if it released the lock, or there was none."""


def acquire(path: Path, owner: object) -> Holder | None:
    """Hold the lock until :func:`release` or exit; the holder if somebody else has it.

    ``owner`` is the object that holds it. A lock whose owner no longer exists can be acquired.
    """
    mine = os.getpid(), path.resolve()
    if (held := _HELD.get(mine)) is not None:
        if held.owner() not in (None, owner):
            gc.collect()  # a trainer that failed may live on in a reference cycle
        if held.owner() not in (None, owner):
            return Holder(True, str(os.getpid()))
        _HELD[mine] = _Held(held.lock, weakref.ref(owner))
        return None
    file = open_regular(path, os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o644)
    try:
        try:
            lock = _lock(path)
        except filelock.Timeout:
            return Holder(True, _process(os.read(file, 99)))
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
    finally:
        os.close(file)
    _HELD[mine] = _Held(lock, weakref.ref(owner))
    return None


def release(path: Path, owner: object, *, ended: bool = True) -> None:
    """Release the lock, if ``owner`` holds it; ``ended`` says that it ended normally."""
    mine = os.getpid(), path.resolve()
    held = _HELD.get(mine)
    if held is not None and held.owner() in (owner, None):
        del _HELD[mine]
        if ended:
            os.truncate(path, 0)
        if held.lock is not None:
            held.lock.release()


def lock_holder(path: Path) -> Holder:
    """The holder of a lock, without acquiring it."""
    if not path.exists():
        return Holder(False, "")
    if (os.getpid(), path.resolve()) in _HELD:
        return Holder(True, str(os.getpid()))
    file = open_regular(path)
    try:
        process = _process(os.read(file, 99))
    finally:
        os.close(file)
    return Holder(_is_held(path, process), process)


def _is_held(path: Path, process: str) -> bool:
    if not _system_file(path).exists():
        return False
    try:
        lock = _lock(path)
    except filelock.Timeout:
        return True
    except PermissionError:  # somebody else's folder: it is held unless it was released
        return bool(process)
    if lock is not None:
        lock.release()
    return False


def _lock(path: Path) -> filelock.BaseFileLock | None:
    """The system's lock, or None where there are no locks; Timeout if somebody else holds it."""
    file = _system_file(path)
    if file.is_symlink() or (file.exists() and not stat.S_ISREG(file.lstat().st_mode)):
        raise OSError(f"{file} is not a regular file")
    lock = filelock.FileLock(file, timeout=0, mode=0o644, thread_local=False)
    try:
        lock.acquire()
    except NotImplementedError:
        return None
    except OSError as error:
        if isinstance(error, filelock.Timeout) or error.errno not in UNAVAILABLE:
            raise
        return None
    return lock


def _system_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.held")


def _process(content: bytes) -> str:
    """The process id in a lock file; a file that holds anything else names none."""
    text = content.decode(errors="replace").strip()
    return text if text.isascii() and text.isdigit() else ""
