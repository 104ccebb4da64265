"""Data files that were made to do harm: pickles, archives that explode, servers that lie."""

import gzip
import io
import lzma
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from helpers.file_server import CONTENT, fetch, remote
from helpers.tiny_sets import write_cifar
from surnn.data import DataError, archives, download
from surnn.data.images import _cifar_batch, cifar10
from surnn.data.pickles import load_pickle
from surnn.data.series import Columns
from surnn.data.series.read import read_series

# ------------------------------------------------------------------ pickles


class Call:
    """Pickles as a call of ``function``."""

    def __init__(self, function, *arguments) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_pickles_of_numpy_are_read_without_numpy(protocol):
    pictures = np.random.default_rng(0).integers(0, 256, (4, 3072), np.uint8)
    raw = pickle.dumps({b"data": pictures, b"labels": [3, 1, 4, 1]}, protocol=protocol)
    images, labels = _cifar_batch(raw)
    assert np.array_equal(images.transpose(0, 3, 1, 2).reshape(4, -1), pictures)
    assert labels.tolist() == [3, 1, 4, 1]


def crafted_dtype() -> bytes:
    """A dtype whose state claims fields at an offset far outside of the array's bytes."""
    head = b"\x80\x02}(C\x04dataq\x00cnumpy.core.multiarray\n_reconstruct\n"
    array = b"cnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01K\x01\x85"
    kind = b"cnumpy\ndtype\nX\x02\x00\x00\x00V8K\x00K\x01\x87R"
    field = b"cnumpy\ndtype\nX\x02\x00\x00\x00O8K\x00K\x01\x87R"
    state = (
        b"(K\x03X\x01\x00\x00\x00|NX\x01\x00\x00\x00f\x85}X\x01\x00\x00\x00f"
        + field
        + b"J\x41\x41\x41\x41\x86sK\x08K\x01K\x10tb"
    )
    return head + array + kind + state + b"\x89C\x08AAAAAAAAtbC\x06labels]u."


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (pickle.dumps(Call(print, "code ran")), "asks for builtins.print"),
        (pickle.dumps({b"data": Call(eval, "1")}, protocol=2), "asks for"),
        (b"\x80\x02cnumpy\ndtype\n}\x8c\x04kindK\x01sb.", "cannot be read|changes something"),
        (b"\x80\x04\x8c\x05numpy\x8c\x05dtype\x93N}\x86b.", "changes something else"),
        (b"\x80\x02]q\x00K\x01\x85R.", "calls something else|cannot be read"),
        (b"\x80\x02\x82\x01.", "cannot be read"),  # an extension code
        (b"\x80\x02B\xff\xff\xff\x7fx.", "cannot be read"),  # 2 GB that are not there
        (b"\x80\x02Nr\xff\xff\xff\x7f.", None),  # a memo of 2^31 entries: nothing is allocated
        (b"", "cannot be read"),
        (b"\x80\x02(" * 5, "cannot be read"),
    ],
)
def test_other_pickles_are_refused(raw, reason):
    if reason is None:
        assert load_pickle(raw) is None
        return
    with pytest.raises(DataError, match=reason):
        load_pickle(raw)


def test_a_crafted_dtype_cannot_crash_the_process(tmp_path):
    """In a process of its own: without the fix it dies by a signal."""
    path = tmp_path / "batch"
    path.write_bytes(crafted_dtype())
    code = (
        "import sys; from pathlib import Path; from surnn.data import DataError\n"
        "from surnn.data.images import _cifar_batch\n"
        "try: images, labels = _cifar_batch(Path(sys.argv[1]).read_bytes()); repr(images)\n"
        "except DataError as error: print('refused', error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused a CIFAR-10 batch")


def test_a_set_with_a_hostile_batch_names_the_reason(tmp_path):
    write_cifar(tmp_path)
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as archive:
        raw = pickle.dumps(Call(print, "code ran"))
        info = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        info.size = len(raw)
        archive.addfile(info, io.BytesIO(raw))
    with pytest.raises(DataError, match="not the original file"):
        cifar10(tmp_path)


# ------------------------------------------------------------------ sizes


@pytest.fixture
def small_limit(monkeypatch):
    monkeypatch.setattr(archives, "MAX_UNPACKED", 10_000)


@pytest.mark.parametrize("kind", [".gz", ".xz", ".zip", ".tar.gz"])
def test_a_file_that_unpacks_to_too_much_is_refused(kind, tmp_path, small_limit):
    path = tmp_path / f"bomb{kind}"
    bomb = bytes(20_000)
    if kind == ".gz":
        path.write_bytes(gzip.compress(bomb))
    elif kind == ".xz":
        path.write_bytes(lzma.compress(bomb))
    elif kind == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("inside", bomb)
    else:
        with tarfile.open(path, "w:gz") as archive:
            info = tarfile.TarInfo("inside")
            info.size = len(bomb)
            archive.addfile(info, io.BytesIO(bomb))

    def read() -> bytes:
        if kind in (".gz", ".xz"):
            return archives.content_of(path)
        return next(content.read() for _, content in archives.members(path))

    with pytest.raises(DataError, match="unpacks to more than"):
        read()


def test_unpacking_to_disk_has_the_same_limit(tmp_path, small_limit):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside", bytes(20_000))
    with pytest.raises(DataError, match="unpacks to more than"):
        download.unpack(path, ("inside",), tmp_path / "target")
    assert [p.name for p in tmp_path.iterdir()] == ["bomb.zip"]


def test_unpacking_leaves_other_files_alone(tmp_path):
    path, target = tmp_path / "set.zip", tmp_path / "target"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("set/inside", b"new")
    for folder in (target, tmp_path / "target.part"):
        folder.mkdir()
        (folder / "mine").write_text("precious")
    download.unpack(path, ("inside",), target)
    assert (target / "inside").read_bytes() == b"new"
    assert (target / "mine").read_text() == "precious"
    assert (tmp_path / "target.part" / "mine").read_text() == "precious"


def test_an_array_that_claims_more_than_it_holds_is_refused(tmp_path):
    """numpy would allocate what the header claims: 2^40 bytes."""
    path = tmp_path / "arrays.npz"
    np.savez(path, x=np.zeros(8, np.uint8))
    with zipfile.ZipFile(path) as archive:
        raw = archive.read("x.npy")
    claimed = raw.replace(b"(8,), }" + b" " * 12, b"(1099511627776,), }")
    assert claimed != raw
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", claimed)
    with pytest.raises((DataError, ValueError), match="fewer numbers than it claims"):
        archives.npz(path)


@pytest.mark.parametrize(("rate", "bits"), [(1 << 31, 16), (8000, 255)])
def test_a_recording_that_claims_an_absurd_form_is_refused(rate, bits, tmp_path):
    """144 bytes that ask for a spectrum of 2^26 points, and 10 GB."""
    path, size = tmp_path / "a.wav", (bits + 7) // 8
    form = struct.pack("<HHIIHH", 1, 1, rate, min(rate * size, 2**32 - 1), size, bits)
    body = b"WAVEfmt \x10\0\0\0" + form + b"data\x64\0\0\0" + bytes(100)
    path.write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)
    with pytest.raises(DataError, match=r"bits and at most|cannot be read"):
        read_series(path, Columns(bands=8))


def test_a_table_that_unpacks_to_too_much_is_refused(tmp_path, small_limit):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "bomb.parquet"
    parquet.write_table(pyarrow.table({"a": np.zeros(100_000, np.float32)}), path)
    assert path.stat().st_size < 4000
    with pytest.raises(DataError, match="100,000 rows of 1 columns"):
        read_series(path, Columns())


# ------------------------------------------------------------------ servers


@pytest.mark.parametrize("lengths", [True, False])
def test_a_file_much_larger_than_known_is_refused(server, tmp_path, lengths, monkeypatch):
    monkeypatch.setattr(download, "_MARGIN", 0)
    server.lengths = lengths
    one = replace(remote(server.address, checksum=None), size=1000)
    with pytest.raises(DataError, match=r"sends more than 2 kB for file\.bin"):
        fetch(tmp_path, one)
    part = tmp_path / "file.bin.part"
    assert not part.exists() or part.stat().st_size <= 2 * download._BLOCK


def interrupted(server, tmp_path) -> None:
    server.cuts = [1000, 0]
    with pytest.raises(DataError):
        fetch(tmp_path, remote(server.address, checksum=None))


def test_a_part_of_another_version_is_not_continued(server, tmp_path):
    """The server answers the range although If-Range names another version."""
    interrupted(server, tmp_path)
    server.content, server.tag, server.ignores_if_range = CONTENT[::-1], '"two"', True
    path = fetch(tmp_path, remote(server.address, checksum=None))
    assert path.read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("problem", ["shifted", "missing"])
def test_a_partial_answer_must_begin_where_the_part_ends(server, tmp_path, problem):
    interrupted(server, tmp_path)
    if problem == "shifted":
        server.shift = 7
    else:
        server.content_range = False
    path = fetch(tmp_path, remote(server.address, checksum=None))
    assert path.read_bytes() == CONTENT


def test_a_redirection_from_https_to_http_is_refused():
    with pytest.raises(download._Refused, match="not encrypted"):
        download._check_scheme("https://a.example/x", "http://b.example/x")
    download._check_scheme("http://a.example/x", "http://b.example/x")
