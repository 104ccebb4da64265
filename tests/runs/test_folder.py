"""What a run's folder tells about where it was made, and that it is of one process at a time."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from helpers.paths import ROOT
from helpers.training import resumed, trainer
from surnn.cli.main import main
from surnn.errors import RunError
from surnn.runs import environment as source
from surnn.runs.environment import capture_environment, commit
from surnn.runs.folder import RunFolder


def git(path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, *words], cwd=path, check=True, capture_output=True)


def test_nothing_needs_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(source, "ARCHIVED", "$Format:%H$")
    assert capture_environment()["commit"] is None


def test_a_commit_is_of_this_source_and_not_of_a_repository_around_it(tmp_path, monkeypatch):
    git(tmp_path, "init")
    (tmp_path / "other.py").write_text("")
    git(tmp_path, "add", "other.py")
    git(tmp_path, "commit", "-m", "someone else's")
    inside = tmp_path / "site-packages" / "surnn"
    inside.mkdir(parents=True)
    (inside / "__init__.py").write_text("")
    monkeypatch.setattr(source, "ARCHIVED", "$Format:%H$")
    assert commit(inside) is None
    monkeypatch.setattr(source, "ARCHIVED", "abc")  # as git writes it into an archive
    assert commit(inside) == "abc"
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "now it is ours")
    found = commit(inside)
    assert found is not None
    assert not found.endswith("+")
    (inside / "__init__.py").write_text("changed")
    assert commit(inside) == found + "+"


def test_an_archive_knows_its_commit(tmp_path):
    for name in ("src/surnn/runs/environment.py", ".gitattributes"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    copy = tmp_path / "src/surnn/runs/environment.py"
    copy.write_text(copy.read_text().replace(source.ARCHIVED, "$Format:%H$"))  # an archive itself?
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "all")
    made = subprocess.run(["git", "archive", "HEAD"], cwd=tmp_path, check=True, capture_output=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert f'ARCHIVED = "{head.stdout.strip()}"'.encode() in made.stdout


def test_the_record_says_what_the_run_ran_on(tmp_path, data):
    out = tmp_path / "run"
    sizes = ["--model.width", "16", "--model.layers", "1", "--train.steps", "1", "--train.batch"]
    more = ["2", "--train.evaluation-batches", "1", "--train.device", "cpu"]
    assert main(["train", "psmnist", *sizes, *more, "--data", str(data), "--out", str(out)]) == 0
    found = json.loads((out / "environment.json").read_text())
    assert found["processes"] == 1
    assert found["numpy"].count(".") == 2
    assert "triton" in found
    assert list(found["data"]) == ["mnist"]
    assert found["data"]["mnist"].startswith(str(data.resolve()))


# ---------------------------------------------------------------- one process at a time

HOLDER = """
import filelock, os, pathlib, sys
lock = filelock.FileLock(sys.argv[1] + ".held", timeout=float(sys.argv[2]))
lock.acquire()
pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()}\\n")
print("held", flush=True)
sys.stdin.read()
"""


def test_two_processes_do_not_train_in_one_folder(tmp_path):
    run = trainer(tmp_path / "run", steps=2)
    run.fit()
    run.close()
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run" / "lock"), "-1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match=f"process {other.pid} is training .*kill {other.pid}"):
            resumed(tmp_path / "run", steps=4)
        with pytest.raises(RunError, match=f"process {other.pid}"):
            run.fit()
        assert (tmp_path / "run" / "metrics.jsonl").read_text() == before
        assert run.folder.lock_holder() == (True, str(other.pid))
        other.kill()  # without a word, and the folder is free
    assert run.folder.lock_holder() == (False, str(other.pid))
    again = resumed(tmp_path / "run", steps=4)
    assert run.folder.lock_holder() == (True, str(os.getpid()))
    command[-1] = "0"  # it does not wait
    tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert tried.returncode != 0
    again.fit()
    assert run.folder.lock_holder() == (False, "")  # in good order
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)


WITHOUT_FCNTL = """
import os, pathlib, sys, warnings
sys.modules["fcntl"] = None
warnings.simplefilter("ignore")  # filelock says that it takes another kind of lock
from surnn.runs import lock
path, owner = pathlib.Path(sys.argv[1]), lambda: None
print(lock.acquire(path, owner), flush=True)
sys.stdin.read()
lock.release(path, owner)
"""


def test_locks_do_not_depend_on_unix(tmp_path):
    """Without fcntl, as on Windows."""
    command = [sys.executable, "-c", WITHOUT_FCNTL, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout.readline() == b"None\n"
        second = subprocess.run(command, input=b"", capture_output=True, check=True)
        assert second.stdout.decode() == f"Holder(holds=True, process='{first.pid}')\n"
        first.communicate(b"")
    third = subprocess.run(command, input=b"", capture_output=True, check=True)
    assert third.stdout == b"None\n"


def test_a_run_without_a_checkpoint_that_another_process_trains(tmp_path, capsys):
    run = trainer(tmp_path / "run", steps=2).folder
    command = [sys.executable, "-c", HOLDER, str(run.path / "lock"), "-1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        assert main(["resume", str(run.path)]) == 2
        told = capsys.readouterr()
        assert f"process {other.pid} is training in" in told.err
        assert "begins again" not in told.out + told.err
        other.kill()


# ---------------------------------------------------------------- who may read it


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_checkpoints_follow_the_umask(tmp_path, umask, mode):
    run = trainer(tmp_path / "run", steps=1)
    before = os.umask(umask)
    try:
        run.fit()
    finally:
        os.umask(before)
    files = [path for name in ("best", "last") for path in (tmp_path / "run" / name).iterdir()]
    assert {path.stat().st_mode & 0o777 for path in files} == {mode}
    assert len(files) == 8


# ---------------------------------------------------------------- damage


def test_damaged_best_weights(tmp_path):
    run = trainer(tmp_path / "run")
    run.fit()
    (tmp_path / "run" / "best" / "manifest.json").write_text("{")
    for name in ("last", "previous"):
        with pytest.raises(RunError, match=f"weights of {name} are .* --checkpoint {name}"):
            run.folder.load("best")
        (tmp_path / "run" / name / "state.pt").write_bytes(b"")  # not to be recommended
    with pytest.raises(RunError, match="no other checkpoint is intact; start again"):
        run.folder.load("best")


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file is a file; choose a folder with --out"):
        RunFolder.create(tmp_path / "file", {})


def test_a_line_that_cannot_be_written_says_what_to_do(tmp_path):
    folder = RunFolder.create(tmp_path / "run", {})
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        (folder.path / name).mkdir()
    with pytest.raises(RunError, match=r"metrics.jsonl could not .* resume: surnn resume .*run$"):
        folder.log(kind="train", step=1)
    with pytest.raises(RunError, match=r"evaluations.jsonl could not .* and evaluate it again$"):
        folder.log_evaluation(split="test")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be made"):
        RunFolder.create(tmp_path / "file" / "run", {})


def test_not_a_run(tmp_path):
    with pytest.raises(RunError, match=r"holds no config\.json"):
        RunFolder.open(tmp_path)
