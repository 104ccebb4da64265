"""Downloads that can be broken off at any time: resumed, verified, and only then given their name.

Bytes go to ``NAME.part``; beside it, ``NAME.part.from`` remembers which version at which address
they belong to, so that a file that has changed in the meantime is not glued to its old beginning.
"""

import errno
import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from .archives import members, reading
from .registry import DataError, DataSet, Remote
from .where import size_text

Report = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes that are here, and all of them if known."""

_BLOCK = 1 << 18
_TIMEOUT = 30  # seconds without a byte
_ATTEMPTS = 5  # times that a connection may break off in a row of progress
_HEADERS = {"User-Agent": "Mozilla/5.0 (compatible; surnn)"}  # some hosts refuse Python's own


def get(entry: DataSet, folder: Path, report: Report | None = None) -> list[str]:
    """Fetch all files of a set into ``folder``; the names of those that could not be verified."""
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
    """One file: from its first address that answers, verified, under its name."""
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
    """Write the members whose names end so into the folder ``target``, which is there with all of
    them or not at all."""
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of a try that was broken off
    part.mkdir()
    lost = set(endings)
    with reading(archive):
        for name, content in members(archive):
            if (ending := next((e for e in lost if f"/{name}".endswith(f"/{e}")), None)) is None:
                continue
            with (part / name.rsplit("/", 1)[-1]).open("wb") as out:
                shutil.copyfileobj(content, out, _BLOCK)
            lost.remove(ending)
    if lost:
        shutil.rmtree(part)
        raise DataError(f"{archive} lacks {', '.join(sorted(lost))}; is it the right file?")
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)


class _Refused(Exception):
    """The server answers, but does not give the file."""


class _Unreachable(Exception):
    """There is no connection."""


def _transfer(address: str, part: Path, remote: Remote, report: Report) -> None:
    """All of the file into ``part``, going on after breaks as long as there is progress."""
    for _ in range(_ATTEMPTS):
        before = _size(part)
        if _stream(address, part, remote, report):
            return
        if _size(part) <= before:
            break
    raise DataError(
        f"the connection to {_host(address)} broke off after {size_text(_size(part))} of "
        f"{remote.name}; what is here is kept: run the same command again to go on"
    )


def _stream(address: str, part: Path, remote: Remote, report: Report) -> bool:
    """One connection's worth; whether the file is complete."""
    here = _resumable(address, part)
    request = urllib.request.Request(address, headers=_HEADERS | _range_headers(part, here))
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            if response.status != http.client.PARTIAL_CONTENT:
                here = 0
            length = response.headers.get("Content-Length")
            total = None if length is None else here + int(length)
            _check_space(part.parent, (total or remote.size) - here, remote.name)
            validator = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
            _origin(part).write_text(f"{address}\n{validator}\n", encoding="utf-8")
            done = _copy(response, part, here, lambda n: report(remote.name, n, total))
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE or not here:
            message = f"{_host(address)} answers {error.code} ({error.reason}) for {address}"
            raise _Refused(message) from error
        if error.headers.get("Content-Range", "").endswith(f"/{here}"):
            return True  # nothing is left to fetch
        part.unlink()
        return _stream(address, part, remote, report)
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        _raise_if_local(error, part)
        return _broken(error, address, part, here)
    return total is None or done == total


def _copy(response, part: Path, here: int, report: Callable[[int], None]) -> int:
    """Append what comes; the bytes that are here then."""
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
    """Full disks and forbidden folders are not the network's fault."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        raise DataError(
            f"the disk of {part.parent} is full; {size_text(_size(part))} of "
            f"{part.name.removesuffix('.part')} are kept. Make room and run the same command again "
            "to go on, or name another place with SURNN_CACHE"
        ) from error
    if isinstance(error, OSError) and error.filename is not None:
        raise DataError(f"cannot write {error.filename}: {error.strerror}") from error


def _broken(error: Exception, address: str, part: Path, here: int) -> bool:
    """A connection that never came, or that broke after some bytes (then False: go on)."""
    if _size(part) > here:
        return False
    reason = getattr(error, "reason", None) or error
    raise _Unreachable(f"no connection to {_host(address)} ({reason})") from error


def _resumable(address: str, part: Path) -> int:
    """Bytes of an earlier try that may be gone on from: those of this address."""
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
        headers["If-Range"] = lines[1]  # a changed file comes whole
    return headers


def _check_space(folder: Path, wanted: int, name: str) -> None:
    free = shutil.disk_usage(folder).free
    if free < wanted:
        raise DataError(
            f"{name} needs {size_text(wanted)} more, but only {size_text(free)} are free in "
            f"{folder}; make room, or name another place with SURNN_CACHE"
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
