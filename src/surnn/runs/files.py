"""Files that survive a crash: written atomically, synced to disk, verified by checksum.

A run folder may come from somebody else. Nothing here follows a symbolic link when it writes, and
only regular files are opened: a pipe would block for ever, a device may have effects.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from surnn.data.text_files import BINARY, NO_WAIT, open_regular, regular_size
from surnn.errors import RunError

FREE_SPACE = "Free disk space, or make the folder writable,"
"""How to fix a failed write; a message continues it."""
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)  # 0 on Windows, which has no such flag


# ---------------------------------------------------------------------------- writing


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write the whole file or leave the old one untouched."""
    data = content.encode() if isinstance(content, str) else content
    temporary = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        sync(path.parent)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise RunError(
            f"{path} could not be written: {error}; its old content is untouched. {FREE_SPACE} "
            "and try again"
        ) from error


def make_folder(path: Path) -> None:
    """Make a folder and its parents, if they do not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"the folder {path} cannot be made: {error}; choose another") from error


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A draft folder that gets the name ``path``, complete and synced, at the end of the context.

    ``path`` must not exist, or be an empty folder: otherwise FileExistsError. A process killed
    before the end leaves a hidden draft next to it, and no ``path``.
    """
    make_folder(path.parent)
    try:
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent))
    except OSError as error:
        raise RunError(f"the folder {path} cannot be made: {error}; choose another") from error
    try:
        yield draft
        draft.chmod(0o777 & ~_umask())
        sync(draft)
        if path.is_dir():
            with contextlib.suppress(OSError):  # not empty: the rename says so
                path.rmdir()
        if path.exists() or path.is_symlink():
            raise FileExistsError(f"{path} exists")
        draft.rename(path)
        sync(path.parent)
    except BaseException:
        _remove_draft(draft)
        raise


def append_line(path: Path, line: str, retry: str, *, synced: bool = False) -> None:
    """Append a whole line or nothing. ``retry`` ends the error message.

    Half a line, which a killed process left, is ended first, so that it cannot swallow this one.
    ``synced`` waits until the line is on disk.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | NO_FOLLOW | NO_WAIT | BINARY
    size = None
    try:
        existed = path.exists()
        file = os.open(path, flags, 0o666)
        try:
            size = regular_size(file, path)
            ended = size == 0 or _last_byte(file, size) == b"\n"
            _write_all(file, (b"" if ended else b"\n") + line.encode() + b"\n")
            if synced:
                os.fsync(file)
        except OSError:
            if size is not None:
                with contextlib.suppress(OSError):  # half a line is worse than none
                    os.ftruncate(file, size)
            raise
        finally:
            os.close(file)
        if synced and not existed:
            sync(path.parent)
    except OSError as error:
        raise RunError(
            f"{path} could not be written: {error}; checkpoints are intact. {FREE_SPACE} and "
            f"{retry}"
        ) from error


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open folders
        return
    handle = os.open(path, os.O_RDONLY | NO_WAIT)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _last_byte(file: int, size: int) -> bytes:
    os.lseek(file, size - 1, os.SEEK_SET)
    return os.read(file, 1)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _remove_draft(draft: Path) -> None:
    """Remove a folder that this process has made."""
    for file in draft.iterdir() if draft.is_dir() else ():
        with contextlib.suppress(OSError):
            file.unlink()
    with contextlib.suppress(OSError):
        draft.rmdir()


# ---------------------------------------------------------------------------- reading


def checksum(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with os.fdopen(open_regular(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
