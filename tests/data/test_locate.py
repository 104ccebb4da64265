"""The registry of data sets, their location on disk, and surnn data."""

import hashlib
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from helpers.file_server import remote
from helpers.tiny_sets import add, wav
from surnn.cli.main import main
from surnn.data import SETS, DataError, download, find, locate, need, registry, sounds
from surnn.data.archives import members, npz, reading
from surnn.data.images import _cifar_batch
from surnn.data.registry import DataSet, Layout


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


@pytest.mark.parametrize("name", ["speech_commands_noise", "aan"])
def test_an_incomplete_unpacked_set_is_not_found(tmp_path, monkeypatch, name):
    entry, folder = SETS[name], locate.cache_folder() / name
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
    with pytest.raises(DataError, match=r"doing_the_dishes.*surnn data get"):
        sounds.noise(tmp_path)


def test_unknown_names_are_listed(capsys):
    assert main(["data", "get", "mnits"]) == 2
    assert "there is no data set 'mnits'; known are mnist, cifar10" in capsys.readouterr().err


def test_listing_needs_neither_torch_nor_numpy():
    code = "import sys, surnn.cli.commands.data as c; c._list(None); print({'torch', 'numpy'} & {*sys.modules})"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")


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


def test_a_missing_set_comes_with_instructions(tmp_path):
    with pytest.raises(DataError) as caught:
        need("mnist", tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert "surnn data get mnist" in message
    assert "train-images-idx3-ubyte.gz" in message
    assert "SURNN_DATA=FOLDER" in message
    assert "new_aan_pairs.train.tsv" in locate.missing(SETS["aan"], [])


def test_a_wrong_folder_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"--data .*nowhere"):
        find("mnist", tmp_path / "nowhere")
    monkeypatch.setenv("SURNN_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"SURNN_DATA .*gone"):
        find("mnist")


def test_an_incomplete_set_is_not_found(tmp_path):
    for part in SETS["mnist"].remotes[:-1]:
        (tmp_path / part.name).write_bytes(b"")
    (tmp_path / (SETS["mnist"].remotes[-1].name + ".part")).write_bytes(b"")
    assert find("mnist", tmp_path) is None


@pytest.mark.parametrize("name", SETS)
def test_entries_are_sound_and_what_they_download_is_found(tmp_path, name):
    entry = SETS[name]
    for file in entry.remotes:
        assert file.size > 0
        assert all(a.startswith(("https://", "http://")) for a in file.addresses)
        if file.checksum is not None:
            kind, digest = file.checksum.split(":")
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

    with pytest.raises(DataError, match="print"):
        _cifar_batch(pickle.dumps({b"data": Evil(), b"labels": []}))
    raw = pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2]}, protocol=2)
    images, labels = _cifar_batch(raw)
    assert images.shape == (2, 32, 32, 3)
    assert labels.tolist() == [1, 2]
