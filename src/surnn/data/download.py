"""Downloads that can be interrupted at any time: resumed, verified, and then renamed.

Bytes go to ``NAME.part``. ``NAME.part.from`` holds the address and the version they belong to, so
that a file that has changed on the server is not appended to its old beginning.
"""

import errno
import hashlib
import http.client
import os
import re
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from urllib.parse import urlsplit

from .archives import members, reading
from .locate import size_text
from .registry import DataError, DataSet, Remote

Report = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes so far, and the total if known."""

_BLOCK = 1 << 18
_MARGIN = 16 << 20  # bytes that a file may be larger than twice its known size
_TIMEOUT = 30  # seconds without a byte
_ATTEMPTS = 5  # interruptions of one download
_HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; surnn)"}  # some hosts refuse Python's default


def get(entry: DataSet, folder: Path, report: Report | None = None) -> list[str]:
    """Download all files of a set into ``folder``. Returns the names of files without checksum."""
    report = report or (lambda name, done, total: None)
    unverified = []
    for remote in entry.remotes:
        path = fetch(remote, folder, report)
        if remote.checksum is None:
            unverified.append(remote.name)
        if entry.unpack:
            unpack(path, entry.unpack, folder / entry.folders[0])
            path.unlink()
    return unverified


def fetch(remote: Remote, folder: Path, report: Report) -> Path:
    """Download one file from the first address that answers, and verify it."""
    target = folder / remote.name
    if target.exists():
        return target
    _make_folder(folder)
    part = folder / f"{remote.name}.part"
    refusals = []
    for address in remote.addresses:
        try:
            _transfer(address, part, remote, report)
            break
        except (_Refused, _Unreachable) as error:
            refusals.append(str(error))
    else:
        raise DataError(
            f"cannot fetch {remote.name}: {'; '.join(refusals)}. If this machine has no network, "
            f"fetch {remote.addresses[0]} elsewhere and put it into {folder}"
        )
    _verify(part, remote)
    os.replace(part, target)
    _origin(part).unlink(missing_ok=True)
    return target


def unpack(archive: Path, endings: tuple[str, ...], target: Path) -> None:
    """Write the members whose names end so into the folder ``target``, all of them or none."""
    lost = set(endings)
    with tempfile.TemporaryDirectory(prefix=f"{target.name}.", dir=target.parent) as draft:
        part = Path(draft) / target.name
        part.mkdir()
        with reading(archive):
            for name, content in members(archive):
                ending = next((e for e in lost if f"/{name}".endswith(f"/{e}")), None)
                if ending is None:
                    continue
                with (part / ending.rsplit("/", 1)[-1]).open("wb") as out:
                    shutil.copyfileobj(content, out, _BLOCK)
                lost.remove(ending)
        if lost:
            raise DataError(f"{archive} lacks {', '.join(sorted(lost))}; is it the right file?")
        if not target.exists():
            part.rename(target)
            return
        for file in part.iterdir():  # other files in the folder are left alone
            file.replace(target / file.name)


class _Refused(Exception):
    """The server answers, but refuses the file."""


class _Unreachable(Exception):
    """There is no connection."""


def _transfer(address: str, part: Path, remote: Remote, report: Report) -> None:
    """Download the whole file to ``part``; resumes after interruptions while there is progress."""
    for _ in range(_ATTEMPTS):
        before = _size(part)
        if _stream(address, part, remote, report):
            return
        if _size(part) <= before:
            break
    raise DataError(
        f"the connection to {_host(address)} broke off after {size_text(_size(part))} of "
        f"{remote.name}; run the same command again to resume"
    )


def _stream(address: str, part: Path, remote: Remote, report: Report) -> bool:
    """Download over one connection. Returns whether the file is complete."""
    here = _resumable(address, part)
    request = urllib.request.Request(address, headers=_HEADERS | _range_headers(part, here))
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            _check_scheme(address, response.url)
            validator = _validator(response.headers)
            if response.status != http.client.PARTIAL_CONTENT:
                here = 0
            elif not _continues(response.headers, part, here):
                part.unlink()  # the bytes belong elsewhere, or to another version
                return _stream(address, part, remote, report)
            length = response.headers.get("Content-Length")
            total = None if length is None else here + int(length)
            _check_size(total, remote, address)
            _check_space(part.parent, (total or remote.size) - here, remote.name)
            _origin(part).write_text(f"{address}\n{validator}\n", encoding="utf-8")

            def progress(done: int) -> None:
                _check_size(done, remote, address)
                report(remote.name, done, total)

            done = _copy(response, part, here, progress)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE or not here:
            message = f"{_host(address)} answers {error.code} ({error.reason}) for {address}"
            raise _Refused(message) from error
        if error.headers.get("Content-Range", "").endswith(f"/{here}"):
            return True  # the file is complete already
        part.unlink()
        return _stream(address, part, remote, report)
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        _raise_if_local(error, part)
        return _broken(error, address, part, here)
    return total is None or done == total


def _validator(headers: Message) -> str:
    """The version of a file: its ETag, or when it was changed."""
    return headers.get("ETag") or headers.get("Last-Modified") or ""


def _continues(headers: Message, part: Path, here: int) -> bool:
    """Whether a partial answer begins at byte ``here`` of the version in ``part``."""
    lines = _origin(part).read_text(encoding="utf-8").splitlines()
    stored, sent = (lines[1] if len(lines) > 1 else ""), _validator(headers)
    if stored and sent and stored != sent:
        return False
    start = re.match(r"bytes (\d+)-", headers.get("Content-Range", ""))
    return start is not None and int(start[1]) == here


def _check_size(size: int | None, remote: Remote, address: str) -> None:
    """Raise if a file is much larger than it should be."""
    limit = 2 * remote.size + _MARGIN
    if size is not None and size > limit:
        raise _Refused(
            f"{_host(address)} sends more than {size_text(limit)} for {remote.name}, which has "
            f"about {size_text(remote.size)}"
        )


def _check_scheme(address: str, answered: str) -> None:
    """Raise if a redirection leaves https."""
    if urlsplit(address).scheme == "https" and urlsplit(answered).scheme != "https":
        raise _Refused(f"{_host(address)} redirects to {answered}, which is not encrypted")


def _copy(response, part: Path, here: int, report: Callable[[int], None]) -> int:
    """Append the response to ``part``. Returns the bytes in it."""
    with part.open("r+b" if here else "wb") as out:
        out.seek(here)
        out.truncate()
        report(here)
        while block := response.read(_BLOCK):
            out.write(block)
            here += len(block)
            report(here)
        out.flush()
        os.fsync(out.fileno())
    return here


def _raise_if_local(error: Exception, part: Path) -> None:
    """Turn errors of the disk into a DataError, so that they do not look like network errors."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        raise DataError(
            f"the disk of {part.parent} is full; {size_text(_size(part))} of "
            f"{part.name.removesuffix('.part')} are stored. Make room and run the same command "
            "again to resume, or choose another folder with SURNN_CACHE"
        ) from error
    if isinstance(error, OSError) and error.filename is not None:
        raise DataError(f"cannot write {error.filename}: {error.strerror}") from error


def _broken(error: Exception, address: str, part: Path, here: int) -> bool:
    """Handle a network error: raise if there was no connection, return False to resume."""
    if _size(part) > here:
        return False
    reason = getattr(error, "reason", None) or error
    raise _Unreachable(f"no connection to {_host(address)} ({reason})") from error


def _resumable(address: str, part: Path) -> int:
    """Bytes of an earlier attempt that can be resumed: those from this address."""
    origin = _origin(part)
    if not origin.exists():
        return 0
    lines = origin.read_text(encoding="utf-8").splitlines()
    return _size(part) if lines and lines[0] == address else 0


def _range_headers(part: Path, here: int) -> dict[str, str]:
    if not here:
        return {}
    lines = _origin(part).read_text(encoding="utf-8").splitlines()
    headers = {"Range": f"bytes={here}-"}
    if len(lines) > 1 and lines[1] and not lines[1].startswith("W/"):
        headers["If-Range"] = lines[1]  # the server sends a changed file from its start
    return headers


def _check_space(folder: Path, size: int, name: str) -> None:
    free = shutil.disk_usage(folder).free
    if free < size:
        raise DataError(
            f"{name} needs {size_text(size)} more, but only {size_text(free)} are free in "
            f"{folder}; make room, or choose another folder with SURNN_CACHE"
        )


def _verify(part: Path, remote: Remote) -> None:
    if remote.checksum is None:
        return
    kind, expected = remote.checksum.split(":")
    with part.open("rb") as file:
        actual = hashlib.file_digest(file, kind).hexdigest()
    if actual != expected:
        part.unlink()
        _origin(part).unlink(missing_ok=True)
        raise DataError(
            f"{remote.name} came with the wrong {kind} ({actual} instead of {expected}) and was "
            "removed; run the same command again, and if it repeats, the file at "
            f"{remote.addresses[0]} has changed"
        )


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _origin(part: Path) -> Path:
    return part.with_name(f"{part.name}.from")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot make the folder {folder}: {error.strerror}") from error


def _host(address: str) -> str:
    return urlsplit(address).netloc
