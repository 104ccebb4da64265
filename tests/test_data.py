"""Data sets: finding them, downloading them through every mishap, and the command."""

import contextlib
import errno
import hashlib
import http.server
import io
import pickle
import shutil
import socket
import subprocess
import sys
import tarfile
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from surnn.cli import main
from surnn.data import SETS, DataError, download, find, need, registry, sounds, where
from surnn.data.archives import members, npz, reading
from surnn.data.images import _cifar_batch
from surnn.data.registry import DataSet, Layout, Remote
from tiny_sets import add, wav

CONTENT = bytes(range(256)) * 4000  # about 1 MB
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT with ranges; the server's attributes say how it misbehaves."""

    def do_GET(self) -> None:
        server = self.server
        server.requests.append(dict(self.headers))
        if self.path != "/file.bin":
            self.send_error(404)
            return
        body, status, start = server.content, 200, 0
        wanted = self.headers.get("Range")
        fresh = self.headers.get("If-Range") in (None, server.tag)
        if wanted and server.ranges and fresh:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.end_headers()
                return
            status = 206
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) - start))
        if server.tag:
            self.send_header("ETag", server.tag)
        self.end_headers()
        cut = server.cuts.pop(0) if server.cuts else len(body)
        self.wfile.write(body[start : start + cut])

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        found.content, found.tag, found.ranges = CONTENT, '"one"', True
        found.handle_error = lambda *_: None  # clients that hang up are the point
        found.cuts, found.requests = [], []
        found.address = f"http://127.0.0.1:{found.server_port}/file.bin"
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SURNN_DATA", raising=False)


def remote(*addresses: str, checksum: str | None = MD5) -> Remote:
    return Remote("file.bin", addresses, len(CONTENT), checksum)


def fetch(folder: Path, one: Remote) -> Path:
    return download.fetch(one, folder, lambda name, done, total: None)


# ------------------------------------------------------------ downloads


def test_a_download_arrives_whole_and_is_reported(server, tmp_path):
    seen = []
    path = download.fetch(remote(server.address), tmp_path / "a", lambda *r: seen.append(r))
    assert path.read_bytes() == CONTENT
    assert seen[0] == ("file.bin", 0, len(CONTENT))
    assert seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    assert [p.name for p in path.parent.iterdir()] == ["file.bin"]
    fetch(path.parent, remote(server.address))
    assert len(server.requests) == 1  # what is here is not fetched again


def test_a_broken_connection_is_gone_on_from(server, tmp_path):
    server.cuts = [1000, 50_000]
    assert fetch(tmp_path, remote(server.address)).read_bytes() == CONTENT
    ranges = [request.get("Range") for request in server.requests]
    assert ranges == [None, "bytes=1000-", "bytes=51000-"]


def test_without_progress_it_stops_and_keeps_the_part(server, tmp_path):
    server.cuts = [1000, 0]
    with pytest.raises(DataError, match=r"broke off after 1 kB of file.bin.*run the same command"):
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


def test_a_part_from_another_address_is_not_gone_on_from(server, tmp_path):
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
    with pytest.raises(DataError, match=r"wrong md5 .* was removed; run the same command again"):
        fetch(tmp_path, remote(server.address))
    assert list(tmp_path.iterdir()) == []


def test_404_is_said_with_its_address(server, tmp_path):
    with pytest.raises(DataError, match=r"answers 404 \(Not Found\) for http://127.*other"):
        fetch(tmp_path, remote(server.address.replace("file", "other")))
    assert list(tmp_path.iterdir()) == []


def test_the_next_address_is_tried(server, tmp_path):
    path = fetch(tmp_path, remote(server.address.replace("file", "other"), server.address))
    assert path.read_bytes() == CONTENT


def test_no_network(tmp_path):
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with pytest.raises(DataError, match=r"no connection to 127.*refused.*put it into"):
        fetch(tmp_path, remote(f"http://127.0.0.1:{port}/file.bin"))


def test_too_little_room_is_seen_before(server, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5000))
    with pytest.raises(DataError, match=r"needs 1.02 MB more, but only 5 kB are free.*SURNN_CACHE"):
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
        with pytest.raises(DataError, match=r"is full; 524 kB of file.bin are kept.*Make room"):
            fetch(tmp_path, remote(server.address))
    assert fetch(tmp_path, remote(server.address)).read_bytes() == CONTENT
    assert server.requests[-1]["Range"] == "bytes=524288-"


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot make the folder"):
        fetch(tmp_path / "file" / "below", remote(server.address))


# ------------------------------------------------------------ the command


def test_get_list_and_where(server, tmp_path, monkeypatch, capsys):
    entry = DataSet(
        "toy", "a toy", "CC0", "Nobody, 1900", (remote(server.address, checksum=None),),
        (Layout("plain", ("file.bin",)),),
    )  # fmt: skip
    monkeypatch.setitem(registry.SETS, "toy", entry)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["data", "where", "toy"]) == 2
    assert "surnn data get toy" in capsys.readouterr().err
    assert main(["data", "get", "toy"]) == 0
    assert "not verified: file.bin). Licence: CC0. Cite Nobody" in capsys.readouterr().out
    assert main(["data", "get", "toy"]) == 0
    assert "already in" in capsys.readouterr().out
    assert main(["data", "where", "toy"]) == 0
    assert Path(capsys.readouterr().out.strip()) == tmp_path / "cache" / "data" / "toy"
    assert main(["data", "list"]) == 0
    table = capsys.readouterr().out
    assert "toy" in table
    assert table.count("missing") == len(SETS) - 1


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


def test_of_large_archives_only_the_members_in_use_stay(large, tmp_path):
    assert download.get(large, tmp_path) == ["file.bin"]
    assert names_in(tmp_path) == ["kept", "kept/hiss.wav", "kept/hum.wav"]


def test_unpacking_that_is_broken_off_leaves_no_half_a_set(large, tmp_path, monkeypatch):
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
    (tmp_path / "kept.part" / "odd.wav").write_bytes(b"of an older try")
    download.get(large, tmp_path)
    assert names_in(tmp_path) == ["kept", "kept/hiss.wav", "kept/hum.wav"]


def test_an_archive_that_lacks_a_member_is_named(large, tmp_path):
    entry = replace(large, unpack=("noise/hiss.wav", "noise/howl.wav"))
    with pytest.raises(DataError, match=r"file.bin lacks noise/howl.wav; is it the right file"):
        download.get(entry, tmp_path)
    assert names_in(tmp_path) == ["file.bin"]


@pytest.mark.parametrize("name", ["speech_commands_noise", "aan"])
def test_what_is_unpacked_is_found_only_whole(tmp_path, monkeypatch, name):
    entry, folder = SETS[name], where.cache_folder() / name
    folder.mkdir(parents=True)
    with tarfile.open(folder / "all.tar", "w") as archive:
        for member in entry.unpack:
            archive.addfile(tarfile.TarInfo(f"release/{member}"))
    download.unpack(folder / "all.tar", entry.unpack, folder / entry.folders[0])
    assert need(name).folder == folder / entry.folders[0]
    for path in need(name).paths:
        path.rename(tmp_path / "away")
        assert find(name) is None
        (tmp_path / "away").rename(path)


def test_all_noises_are_needed(tmp_path):
    with tarfile.open(tmp_path / "speechcommands_background_noise.tar.xz", "w:xz") as archive:
        add(archive, "_background_noise_/white_noise.wav", wav(np.zeros(9), 16_000))
    with pytest.raises(DataError, match=r"lacks the recordings doing_the_dishes.*surnn data get"):
        sounds.noise(tmp_path)


def test_unknown_names_are_listed(capsys):
    assert main(["data", "get", "mnits"]) == 2
    assert "there is no data set 'mnits'; known are mnist, cifar10" in capsys.readouterr().err


def test_listing_needs_neither_torch_nor_numpy():
    code = "import sys, surnn.data.command as c; c._list(None); print({'torch', 'numpy'} & {*sys.modules})"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")


# ------------------------------------------------------------ finding


def test_places_come_in_order(tmp_path, monkeypatch):
    for name in ("given", "named", "cache/data"):
        (tmp_path / name / "enwik8").mkdir(parents=True)
        (tmp_path / name / "enwik8" / "enwik8").write_bytes(b"")
    for folder in ("given", "named", "cache/data"):
        (tmp_path / folder / "enwik8.zip").write_bytes(b"")
    monkeypatch.setenv("SURNN_DATA", str(tmp_path / "named"))
    assert need("enwik8", tmp_path / "given").folder.is_relative_to(tmp_path / "given")
    assert need("enwik8").folder.is_relative_to(tmp_path / "named")
    monkeypatch.delenv("SURNN_DATA")
    assert need("enwik8").folder.is_relative_to(tmp_path / "cache")


def test_what_is_missing_says_what_to_do(tmp_path):
    with pytest.raises(DataError) as caught:
        need("mnist", tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert "surnn data get mnist" in message
    assert "train-images-idx3-ubyte.gz" in message
    assert "SURNN_DATA=FOLDER" in message
    assert "new_aan_pairs.train.tsv" in where.missing(SETS["aan"], [])


def test_a_wrong_folder_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"--data names .*nowhere, which is not a folder"):
        find("mnist", tmp_path / "nowhere")
    monkeypatch.setenv("SURNN_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"SURNN_DATA names .*gone, which is not a folder"):
        find("mnist")


def test_an_incomplete_set_is_not_found(tmp_path):
    for remote in SETS["mnist"].remotes[:-1]:
        (tmp_path / remote.name).write_bytes(b"")
    (tmp_path / (SETS["mnist"].remotes[-1].name + ".part")).write_bytes(b"")
    assert find("mnist", tmp_path) is None


@pytest.mark.parametrize("name", SETS)
def test_entries_are_sound_and_what_they_download_is_found(tmp_path, name):
    entry = SETS[name]
    for remote in entry.remotes:
        assert remote.size > 0
        assert all(a.startswith(("https://", "http://")) for a in remote.addresses)
        if remote.checksum is not None:
            kind, digest = remote.checksum.split(":")
            assert len(digest) == hashlib.new(kind).digest_size * 2
    names = [r.name for r in entry.remotes] if not entry.unpack else entry.layouts[0].files
    for file in names:
        (tmp_path / file).write_bytes(b"")
    assert need(name, tmp_path).folder == tmp_path


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip", "a.npz.xz"])
def test_damage_names_the_file(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"rubbish")
    read = npz if name.endswith(".xz") else lambda path: list(members(path))
    with pytest.raises(DataError, match=rf"{name} is damaged .*surnn data get"), reading(path):
        read(path)


def test_cifar_pickles_cannot_run_code():
    class Evil:
        def __reduce__(self):
            return print, ("evil",)

    with pytest.raises(DataError, match=r"asks for .*print: not the original file"):
        _cifar_batch(pickle.dumps({b"data": Evil(), b"labels": []}))
    raw = pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2]}, protocol=2)
    images, labels = _cifar_batch(raw)
    assert images.shape == (2, 32, 32, 3)
    assert labels.tolist() == [1, 2]
