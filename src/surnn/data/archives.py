"""Reads files in archives and folders alike, and reports damaged files."""

import gzip
import io
import lzma
import math
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


PADDING = "pad sequences of different lengths with NaN to one array [N, T, F]"
"""The way out for arrays of arrays."""
MAX_UNPACKED = 4 << 30
"""Most bytes of one unpacked file. The largest that is needed has 100 MB; an archive of some
kilobytes can claim, and unpack to, anything."""


class Limited:
    """A file of an archive that refuses to be longer than :data:`MAX_UNPACKED`.

    Args:
        file: the open file.
        name: its name, for the error.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name, self._read = file, name, 0

    def read(self, size: int = -1) -> bytes:
        """As the file's own."""
        left = MAX_UNPACKED - self._read
        block = self._file.read(left + 1 if size < 0 else min(size, left + 1))
        self._read += len(block)
        if self._read > MAX_UNPACKED:
            raise DataError(
                f"{self._name} unpacks to more than {MAX_UNPACKED / 1e9:.1f} GB: it is not the "
                "file that it should be; delete it and fetch it again (surnn data get)"
            )
        return block


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn exceptions of readers into a DataError that names the damaged file."""
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


def members(path: Path, *, deep: bool = False) -> Iterator[tuple[str, Limited]]:
    """Name and open file of every file in a tar, a zip or a folder; ``deep`` includes sub-folders,
    which may belong to other sets."""
    if path.is_dir():
        for file in sorted(path.glob("**/*" if deep else "*")):
            if file.is_file():
                with file.open("rb") as content:
                    yield (
                        file.relative_to(path).as_posix(),
                        Limited(content, f"{path}: {file.relative_to(path).as_posix()}"),
                    )
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    with archive.open(info) as content:
                        yield info.filename, Limited(content, f"{path}: {info.filename}")
    else:
        with tarfile.open(path) as archive:
            for info in archive:
                content = archive.extractfile(info) if info.isfile() else None
                if content is not None:
                    yield info.name, Limited(content, f"{path}: {info.name}")


def content_of(path: Path) -> bytes:
    """All bytes of a file, unpacked if its name ends in .gz or .xz."""
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "rb") as file:
        return Limited(file, str(path)).read()


def npz(path: Path) -> dict[str, Any]:
    """All arrays of an .npz or .npz.xz file."""
    import numpy as np  # noqa: PLC0415 (slow to import, and listing sets needs none)

    content = content_of(path)
    _check_arrays(content, path)
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _check_arrays(content: bytes, path: Path) -> None:
    """Raise if an array claims more bytes than its file holds: numpy allocates what it claims."""
    from numpy.lib import format as npy  # noqa: PLC0415

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(info.file_size for info in archive.infolist()) > MAX_UNPACKED:
            raise DataError(
                f"{path} unpacks to more than {MAX_UNPACKED / 1e9:.1f} GB: it is not the file that "
                "it should be; delete it and fetch it again (surnn data get)"
            )
        for info in archive.infolist():
            with archive.open(info) as file:
                version = npy.read_magic(file)  # type: ignore[arg-type]
                read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
                shape, _, dtype = read[version](file)  # type: ignore[arg-type]
            if dtype.hasobject:
                raise DataError(
                    f"{path} cannot be read: the array {info.filename.removesuffix('.npy')!r} "
                    f"holds Python objects, not numbers; {PADDING}"
                )
            if math.prod(shape) * dtype.itemsize > info.file_size:
                raise ValueError(f"{info.filename} holds fewer numbers than it claims")
