"""A lock file: one process at a time, and what became of it.

The system holds the lock, so that a killed process leaves none. The file holds the number of the
process, which only one that came to a good end takes out again. Where there are no locks, on some
file systems and outside of Unix, nothing is kept from anyone.
"""

import errno
import os
from pathlib import Path
from typing import NamedTuple

try:
    import fcntl
except ImportError:  # not on Unix
    fcntl = None

_HELD: dict[tuple[int, Path], int] = {}
"""Open lock files, by process. Of a process, not of an object: any other descriptor of the same
file that is closed would give the lock back."""


class Holder(NamedTuple):
    """Who has a lock, or had it."""

    holds: bool
    """At this moment."""
    process: str
    """Its number; empty if it gave the lock back, or there was none."""


def take(path: Path) -> Holder | None:
    """Hold the lock until :func:`give_back` or this process's end; who has it, if another does."""
    mine = os.getpid(), path.resolve()
    if fcntl is None or mine in _HELD:
        return None
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        other = os.read(file, 99).decode().strip()
        os.close(file)
        return Holder(True, other) if _is_held(error) else None
    os.truncate(file, 0)
    os.write(file, f"{os.getpid()}\n".encode())
    _HELD[mine] = file
    return None


def give_back(path: Path) -> None:
    """Let others have it."""
    file = _HELD.pop((os.getpid(), path.resolve()), None)
    if file is not None:
        os.truncate(file, 0)
        os.close(file)


def holder(path: Path) -> Holder:
    """Who has it, without taking it."""
    if fcntl is None or not path.exists():
        return Holder(False, "")
    if (os.getpid(), path.resolve()) in _HELD:
        return Holder(True, str(os.getpid()))
    with path.open() as file:
        holds = False
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            holds = _is_held(error)
        return Holder(holds, file.read(99).strip())


def _is_held(error: OSError) -> bool:
    return error.errno in (errno.EACCES, errno.EAGAIN)
