"""Downloads: resuming, verifying, unpacking, and everything that can go wrong."""

import contextlib
import errno
import io
import shutil
import socket
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.file_server import CONTENT, fetch, remote
from surnn.data import DataError, download
from surnn.data.registry import DataSet


def test_a_download_arrives_whole_and_is_reported(server, tmp_path):
    seen = []
    path = download.fetch(remote(server.address), tmp_path / "a", lambda *r: seen.append(r))
    assert path.read_bytes() == CONTENT
    assert seen[0] == ("file.bin", 0, len(CONTENT))
    assert seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    assert [p.name for p in path.parent.iterdir()] == ["file.bin"]
    fetch(path.parent, remote(server.address))
    assert len(server.requests) == 1  # what is here is not fetched again


def test_a_broken_download_is_resumed(server, tmp_path):
    server.cuts = [1000, 50_000]
    assert fetch(tmp_path, remote(server.address)).read_bytes() == CONTENT
    ranges = [request.get("Range") for request in server.requests]
    assert ranges == [None, "bytes=1000-", "bytes=51000-"]


def test_without_progress_it_stops_and_keeps_the_part(server, tmp_path):
    server.cuts = [1000, 0]
    with pytest.raises(DataError, match=r"1 kB of file\.bin"):
        fetch(tmp_path, remote(server.address))
    assert not (tmp_path / "file.bin").exists()
    assert (tmp_path / "file.bin.part").stat().st_size == 1000
    assert fetch(tmp_path, remote(server.address)).read_bytes() == CONTENT
    assert server.requests[-1]["Range"] == "bytes=1000-"
    assert server.requests[-1]["If-Range"] == '"one"'


def test_a_file_that_changed_meanwhile_is_fetched_anew(server, tmp_path):
    server.cuts = [1000, 0]
    with pytest.raises(DataError):
        fetch(tmp_path, remote(server.address, checksum=None))
    server.content, server.tag = CONTENT[::-1], '"two"'
    path = fetch(tmp_path, remote(server.address, checksum=None))
    assert path.read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_part_of_unknown_origin_is_never_trusted(server, tmp_path, ranges):
    server.ranges = ranges
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    assert fetch(tmp_path, remote(server.address, checksum=None)).read_bytes() == CONTENT
    assert "Range" not in server.requests[0]


def test_a_part_from_another_address_is_not_resumed(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    (tmp_path / "file.bin.part.from").write_text('http://elsewhere/file.bin\n"one"\n')
    assert fetch(tmp_path, remote(server.address, checksum=None)).read_bytes() == CONTENT


def test_a_server_without_ranges_starts_over(server, tmp_path):
    server.ranges, server.cuts = False, [1000]
    assert fetch(tmp_path, remote(server.address)).read_bytes() == CONTENT


def test_a_complete_part_is_only_verified(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    (tmp_path / "file.bin.part.from").write_text(f'{server.address}\n"one"\n')
    assert fetch(tmp_path, remote(server.address)).read_bytes() == CONTENT
    assert server.requests[0]["Range"] == f"bytes={len(CONTENT)}-"


def test_a_part_that_is_too_long_starts_over(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT + b"more")
    (tmp_path / "file.bin.part.from").write_text(f'{server.address}\n"one"\n')
    assert fetch(tmp_path, remote(server.address)).read_bytes() == CONTENT


def test_wrong_bytes_are_removed(server, tmp_path):
    server.content = b"no" + CONTENT[2:]
    with pytest.raises(DataError, match="wrong md5"):
        fetch(tmp_path, remote(server.address))
    assert list(tmp_path.iterdir()) == []


def test_404_names_the_address(server, tmp_path):
    with pytest.raises(DataError, match=r"404 .*other"):
        fetch(tmp_path, remote(server.address.replace("file", "other")))
    assert list(tmp_path.iterdir()) == []


def test_the_next_address_is_tried(server, tmp_path):
    path = fetch(tmp_path, remote(server.address.replace("file", "other"), server.address))
    assert path.read_bytes() == CONTENT


def test_no_network(tmp_path):
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(DataError, match=r"no connection to 127.*refused"):
        fetch(tmp_path, remote(f"http://127.0.0.1:{port}/file.bin"))


def test_too_little_room_is_noticed_before_the_download(server, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5000))
    with pytest.raises(DataError, match=r"1\.02 MB .*5 kB .*SURNN_CACHE"):
        fetch(tmp_path, remote(server.address))
    assert not (tmp_path / "file.bin.part").exists()


def test_a_disk_that_fills_up_keeps_the_part(server, tmp_path, monkeypatch):
    class Full(io.FileIO):
        def write(self, block):
            if self.tell() + len(block) > 600_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(block)

    real = Path.open
    with monkeypatch.context() as patched:
        patched.setattr(
            Path, "open", lambda p, mode="r", **k: Full(p, mode.replace("b", "")) if
            p.suffix == ".part" else real(p, mode, **k),
        )  # fmt: skip
        with pytest.raises(DataError, match=r"full; 524 kB of file\.bin"):
            fetch(tmp_path, remote(server.address))
    assert fetch(tmp_path, remote(server.address)).read_bytes() == CONTENT
    assert server.requests[-1]["Range"] == "bytes=524288-"


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot make the folder"):
        fetch(tmp_path / "file" / "below", remote(server.address))


@pytest.fixture
def large(server) -> DataSet:
    """An archive of which two members are wanted."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in ("a/noise/hiss.wav", "a/yes/1.wav", "../../evil.wav", "a/noise/hum.wav"):
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"wave"))
    server.content = packed.getvalue()
    return DataSet(
        "toy", "", "", "", (remote(server.address, checksum=None),), (), ("kept",),
        unpack=("noise/hiss.wav", "noise/hum.wav"),
    )  # fmt: skip


def names_in(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.glob("**/*"))


def test_only_the_used_members_of_a_large_archive_are_unpacked(large, tmp_path):
    assert download.get(large, tmp_path) == ["file.bin"]
    assert names_in(tmp_path) == ["kept", "kept/hiss.wav", "kept/hum.wav"]


def test_interrupted_unpacking_leaves_no_incomplete_set(large, tmp_path, monkeypatch):
    """And the archive is not fetched again."""

    def killed(source, target, size):
        if target.name.endswith("hum.wav"):
            raise KeyboardInterrupt
        target.write(source.read())

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfileobj", killed)
        with pytest.raises(KeyboardInterrupt):
            download.get(large, tmp_path)
    assert not (tmp_path / "kept").exists()
    assert (tmp_path / "file.bin").exists()
    download.get(large, tmp_path)
    assert names_in(tmp_path) == ["kept", "kept/hiss.wav", "kept/hum.wav"]


def test_an_archive_that_lacks_a_member_is_named(large, tmp_path):
    entry = replace(large, unpack=("noise/hiss.wav", "noise/howl.wav"))
    with pytest.raises(DataError, match=r"noise/howl\.wav"):
        download.get(entry, tmp_path)
    assert names_in(tmp_path) == ["file.bin"]
