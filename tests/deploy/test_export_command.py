"""The command ``surnn export``: files, checks, messages and refusals."""

import errno
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import surnn
from helpers.training import trainer
from surnn.cli.commands import export as command
from surnn.cli.main import main
from surnn.deploy.export import to_engine
from surnn.deploy.export.check import Agreement


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained model's folder."""
    path = tmp_path_factory.mktemp("export") / "run"
    trainer(path, steps=4, evaluate_every=4, checkpoint_every=100).fit()
    return path


def lines_of(capsys) -> list[str]:
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("to", ["engine", "onnx", "pt2"])
def test_the_command_tells_how_to_use_what_it_wrote(to, run, tmp_path, capsys):
    out = tmp_path / "folder" / command.NAMES[to]
    assert main(["export", str(run), "--to", to, "--out", str(out)]) == 0
    told = lines_of(capsys)
    assert re.fullmatch(rf"wrote {out} \(.* kB\): best weights \(step 4\)", told[0])
    assert re.fullmatch(
        r"checked: 400 random steps, largest difference from Python \d\.\de-?\+?\d\d", told[1]
    )
    frame = torch.ones(1, 9)
    given = {"engine": frame[0].numpy(), "onnx": frame.numpy(), "pt2": frame}[to]
    names = {"frame": given, "torch": torch, "numpy": np, "onnxruntime": onnxruntime}
    names["surnn"] = surnn
    exec("\n".join(told[3:]), names)
    model = surnn.load(run).model
    wanted, _ = model.step(frame, model.init_state(1))
    found = torch.as_tensor(names["prediction"]).detach().reshape(1, -1)
    torch.testing.assert_close(found, wanted.detach(), rtol=1e-5, atol=1e-6)
    assert list(out.parent.iterdir()) == [out]


def test_a_folder_for_browsers(run, tmp_path, capsys):
    out = tmp_path / "page"
    precision = ["--weights", "int8", "--activations", "int8"]
    assert main(["export", str(run), "--to", "web", *precision, "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert f"python -m http.server --directory {out}" in told
    assert "checked: 400 random steps" in told
    about = json.loads((out / "model.json").read_text())
    assert (about["title"], about["sound"]) == ("copying", None)
    assert main(["export", str(run), "--to", "engine", *precision, "--out", f"{out}.8"]) == 0
    assert (out / "model.surnn").read_bytes() == Path(f"{out}.8").read_bytes()


def test_c_is_compiled_if_there_is_a_compiler(run, tmp_path, capsys, monkeypatch):
    out = tmp_path / "c"
    assert main(["export", str(run), "--to", "c", "--out", str(out)]) == 0
    assert (out / "main.c").exists()
    told = capsys.readouterr().out
    assert f"cd {out} && make" in told
    if shutil.which("cc"):
        assert re.search(r"compiled with cc, and checked: 400 random steps, .*e-\d\d\n", told)
        broken = shutil.which("false")
        monkeypatch.setattr(command.shutil, "which", lambda name: broken)
        words = ["export", str(run), "--to", "c", "--out", str(tmp_path / "other")]
        assert main(words) == 2
        assert "do not build here" in capsys.readouterr().err
    monkeypatch.setattr(command.shutil, "which", lambda name: None)
    other = tmp_path / "int8"
    assert main(["export", str(run), "--to", "c", "--weights", "int8", "--out", str(other)]) == 0
    assert "not compiled: no C compiler (cc) found" in capsys.readouterr().out
    assert sorted(tmp_path.iterdir()) == [out, other]


def test_nothing_is_overwritten(run, tmp_path, capsys):
    out = tmp_path / "model.pt2"
    out.write_text("mine")
    assert main(["export", str(run), "--to", "pt2", "--out", str(out)]) == 2
    assert "exists already; remove it, or choose another name with --out" in capsys.readouterr().err
    assert out.read_text() == "mine"


@pytest.mark.parametrize("to", ["engine", "onnx", "pt2"])
def test_a_place_that_cannot_be_written_is_told(to, run, tmp_path, capsys):
    (tmp_path / "file").touch()
    out = tmp_path / "file" / f"model.{to}"
    assert main(["export", str(run), "--to", to, "--out", str(out)]) == 2
    assert "could not be written: [Errno" in (told := capsys.readouterr().err)
    assert told.rstrip().endswith("choose another place with --out")


@pytest.mark.parametrize("to", ["engine", "pt2"])
def test_a_disk_that_fills_up_is_told(to, run, tmp_path, capsys, monkeypatch):
    def full(path, data):
        path.touch()
        raise OSError(wrong, os.strerror(wrong))

    monkeypatch.setattr(Path, "write_bytes", full)
    out = tmp_path / f"model.{to}"
    wrong = errno.ENOSPC
    assert main(["export", str(run), "--to", to, "--out", str(out)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    wrong = errno.EIO  # more room would not fix that
    with pytest.raises(OSError, match="put/output error"):
        main(["export", str(run), "--to", to, "--out", str(out)])
    assert list(tmp_path.iterdir()) == []


def test_the_engines_folder_is_made(tmp_path):
    path = to_engine(surnn.SuGRU(3, 4), tmp_path / "not" / "there" / "layer.surnn")
    assert path.stat().st_size > 0


def test_a_file_that_fails_its_check_is_not_kept(run, tmp_path, capsys, monkeypatch):
    def write(step, weights, path):
        path.write_text("wrong")
        return [("checked", Agreement(0.5, 0, 400))]

    monkeypatch.setitem(command.WRITERS, "pt2", write)
    out = tmp_path / "model.pt2"
    assert main(["export", str(run), "--to", "pt2", "--out", str(out)]) == 2
    assert "largest difference from Python 5.0e-01" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--to", "onnx", "--weights", "int8"], "not with onnx"),
        (["--to", "hf", "--weights", "int8"], "not with hf"),
        (["--to", "engine", "--activations", "int8"], "needs --weights int8"),
        (["--to", "pt2", "--out", "model.bin"], "ends in .pt2"),
        (["--to", "pt2", "--checkpoint", "previous"], "holds no checkpoint 'previous'"),
    ],
)
def test_mistakes_are_told(words, reason, run, capsys):
    assert main(["export", str(run), *words]) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("to", ["onnx", "hf"])
def test_the_extra_is_named(to, run, capsys, monkeypatch):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert main(["export", str(run), "--to", to]) == 2
    assert f"pip install 'surnn[{to}]'" in capsys.readouterr().err


@pytest.mark.parametrize("to", ["engine", "c"])
def test_nothing_beside_the_new_file_is_touched(to, run, tmp_path):
    """Folders and files with any name, that of a draft of earlier versions too, are left alone."""
    out = tmp_path / "model"
    for name in ("new-model", ".model.new", "model.new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").write_text("mine")
    before = sorted(p.name for p in tmp_path.iterdir())
    assert main(["export", str(run), "--to", to, "--out", str(out)]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*before, "model"])
    assert all((tmp_path / name / "precious").read_text() == "mine" for name in before)


def test_a_file_made_meanwhile_is_not_replaced(run, tmp_path, monkeypatch, capsys):
    out = tmp_path / "model.surnn"
    write = command.WRITERS["engine"]

    def slow(step, weights, path):
        out.write_text("mine")
        return write(step, weights, path)

    monkeypatch.setitem(command.WRITERS, "engine", slow)
    assert main(["export", str(run), "--to", "engine", "--out", str(out)]) != 0
    assert "made meanwhile" in capsys.readouterr().err
    assert out.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [out]
