"""Files inside archives and folders, read alike; damage is reported, not swallowed."""

import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .registry import DataError

_DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    ValueError,
    LookupError,
)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what a damaged file makes its reader raise into an error that names the file."""
    try:
        yield
    except DataError:
        raise
    except (*_DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"cannot read {path}: {error.strerror}") from error
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(
            f"{path} is damaged ({reason}); delete it and fetch it again (surnn data get)"
        ) from error


def members(path: Path, *, deep: bool = False) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and open content of every file in a tar, a zip or a folder (``deep``: and in its own
    folders; they may be other sets)."""
    if path.is_dir():
        for file in sorted(path.glob("**/*" if deep else "*")):
            if file.is_file():
                with file.open("rb") as content:
                    yield file.relative_to(path).as_posix(), content
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    with archive.open(info) as content:
                        yield info.filename, content
    else:
        with tarfile.open(path) as archive:
            for info in archive:
                content = archive.extractfile(info) if info.isfile() else None
                if content is not None:
                    yield info.name, content


def content_of(path: Path) -> bytes:
    """All bytes of a file, unpacked if its name ends in .gz or .xz."""
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "rb") as file:
        return file.read()


def npz(path: Path) -> dict[str, Any]:
    """All arrays of an .npz, or of one packed once more as .npz.xz."""
    import numpy as np  # noqa: PLC0415 (slow to import, and listing sets needs none)

    with np.load(io.BytesIO(content_of(path)), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
