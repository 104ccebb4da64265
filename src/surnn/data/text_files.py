"""Opens files that may come from somebody else: regular ones, of a sensible size.

A pipe would block for ever, a device may have effects, and a link may lead to any file.
"""

import os
import stat
from pathlib import Path

NO_WAIT = getattr(os, "O_NONBLOCK", 0)
BINARY = getattr(os, "O_BINARY", 0)
MAX_TEXT = 1 << 30
"""Most bytes of a text file that is read whole."""


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """A descriptor of a regular file. Anything else is an OSError; nothing is waited for."""
    file = os.open(path, flags | NO_WAIT | BINARY, mode)
    try:
        regular_size(file, path)
    except OSError:
        os.close(file)
        raise
    return file


def regular_size(file: int, path: Path) -> int:
    """The bytes of an open file; an OSError unless it is a regular one."""
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode):
        raise OSError(f"{path} is not a regular file")
    return about.st_size


def read_text(path: Path, errors: str = "strict") -> str:
    """The content of a text file of sensible size; ``errors`` as in :meth:`bytes.decode`."""
    with os.fdopen(open_regular(path), "rb") as file:
        content = file.read(MAX_TEXT + 1)
    if len(content) > MAX_TEXT:
        raise OSError(f"{path} has more than {MAX_TEXT} bytes")
    return content.decode(errors=errors)


def read_own_text(path: Path, errors: str = "strict") -> str:
    """As :func:`read_text`, of a file that belongs to its folder.

    A link out of the folder is refused: who made the folder could have any file of this machine
    shown on a page.
    """
    if path.is_symlink() and not path.resolve().is_relative_to(path.parent.resolve()):
        raise OSError(
            "it is a link to a file outside of its folder; if you trust the folder, copy it with "
            "the files that its links name (cp -rL)"
        )
    return read_text(path, errors)
