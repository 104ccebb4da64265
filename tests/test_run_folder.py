"""What a run's folder tells about where it was made, and that it is of one process at a time."""

import json
import subprocess

from surnn.cli import main
from surnn.runs import environment
from surnn.versions import commit


def git(path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, *words], cwd=path, check=True, capture_output=True)


def test_nothing_needs_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment()["commit"] is None


def test_a_commit_is_of_this_source_and_not_of_a_repository_around_it(tmp_path):
    git(tmp_path, "init")
    (tmp_path / "other.py").write_text("")
    git(tmp_path, "add", "other.py")
    git(tmp_path, "commit", "-m", "someone else's")
    inside = tmp_path / "site-packages" / "surnn"
    inside.mkdir(parents=True)
    (inside / "__init__.py").write_text("")
    assert commit(inside) is None
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "now it is ours")
    found = commit(inside)
    assert found is not None
    assert not found.endswith("+")
    (inside / "__init__.py").write_text("changed")
    assert commit(inside) == found + "+"


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
