"""Tasks outside of surnn: files and entry points, and runs that must not import foreign code."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import surnn
from helpers.paths import ROOT
from surnn.cli.main import main
from surnn.errors import ConfigError, RunError
from surnn.tasks import load_task, outside, task_names

EXAMPLE = (ROOT / "examples" / "own_task.py").read_text()
MARK = "Path(__file__).with_name('imported').touch()"
FLAGS = [
    "--task.length", "6", "--model.width", "16", "--model.layers", "1", "--train.batch", "4",
    "--train.warmup", "1", "--train.device", "cpu", "--train.log-every", "1",
    "--train.checkpoint-every", "2", "--train.evaluate-every", "4",
]  # fmt: skip
KILLER = """
    def batch(self, split, number, size, seed, device):
        if split == "train" and os.environ.get("DIE_AT") == str(number):
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    """A user's own list of trusted tasks, and a process in which nothing was named."""
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(outside, "_allowed", [])


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "my_task.py"
    path.write_text(f"from pathlib import Path\n{MARK}\n{EXAMPLE}")
    return path


@pytest.fixture
def run(tmp_path, file) -> Path:
    """A run of the task in the file, as the next process sees it."""
    command = ["train", f"{file}:SignOfSum", *FLAGS, "--train.steps", "4"]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    forget(file)
    return tmp_path / "run"


def forget(file: Path) -> None:
    """As in a new process."""
    outside._allowed.clear()
    file.with_name("imported").unlink()


def distrust(tmp_path) -> None:
    """As on another machine: the user never trained with the file."""
    (tmp_path / "cache" / outside.TRUSTED).unlink()


def test_an_outside_task_trains_evaluates_resumes_reports_and_exports(run, file, capsys):
    config = json.loads((run / "config.json").read_text())["task"]
    assert config["name"] == "sign_of_sum"
    assert config["length"] == 6
    assert config["source"]["file"] == str(file)
    assert len(config["source"]["sha256"]) == 64
    for command in (
        ["eval", str(run)],
        ["resume", str(run), "--train.steps", "6"],
        ["report", str(run)],
        ["export", str(run), "--to", "c"],
        ["info", str(run)],
    ):
        assert main(command) == 0, command
    assert "sign_of_sum" in capsys.readouterr().out
    assert surnn.load(run).task.steps == 6


def test_its_help_has_its_options(file, capsys):
    with pytest.raises(SystemExit):
        main(["train", f"{file}:SignOfSum", "--help"])
    text = capsys.readouterr().out
    assert "--task.length" in text
    assert "time steps" in text


def test_a_killed_run_resumes_exactly(tmp_path):
    text = EXAMPLE.replace("import torch\n", "import os, signal\nimport torch\n", 1)
    text = text.replace("\n    def batch(self, split, number, size, seed, device):\n", KILLER)
    (tmp_path / "my_task.py").write_text(text)
    spec, runs = f"{tmp_path / 'my_task.py'}:SignOfSum", [tmp_path / "whole", tmp_path / "killed"]
    flags = [*FLAGS, "--train.steps", "8", "--out"]
    assert main(["train", spec, *flags, str(runs[0])]) == 0
    command = [sys.executable, "-m", "surnn", "train", spec, *flags, str(runs[1])]
    process = subprocess.run(command, env={**os.environ, "DIE_AT": "5"}, check=False)
    assert process.returncode == -signal.SIGKILL
    outside._allowed.clear()
    assert main(["resume", str(runs[1])]) == 0
    losses = [
        [
            line["loss"]
            for line in map(json.loads, (r / "metrics.jsonl").read_text().splitlines())
            if "loss" in line
        ]
        for r in runs
    ]
    assert len(losses[0]) == 10  # eight steps and two validations
    assert losses[0] == losses[1]


def test_a_foreign_run_imports_nothing(tmp_path, run, file, capsys):
    distrust(tmp_path)
    for command in (["eval"], ["info"], ["resume"], ["export", "--to", "engine"], ["report"]):
        code = main([command[0], str(run), *command[1:]])
        told = capsys.readouterr()
        assert code == (0 if command == ["report"] else 2)  # the page shows the log alone
        assert f"--task-from {file}:SignOfSum" in told.err + told.out
        assert not file.with_name("imported").exists()
    with pytest.raises(RunError, match="not imported"):
        surnn.load(run)
    assert not file.with_name("imported").exists()
    assert main(["eval", str(run), "--task-from", f"{file}:SignOfSum"]) == 0
    outside._allowed.clear()
    with pytest.raises(RunError, match="not imported"):  # a look is no lasting trust
        surnn.load(run)
    assert surnn.load(run, task_from=f"{file}:SignOfSum").task.name == "sign_of_sum"


def test_a_changed_file_is_refused_until_it_is_named(run, file, capsys):
    file.write_text(file.read_text() + "# a change\n")
    assert main(["eval", str(run)]) == 2
    assert "has changed since" in capsys.readouterr().err
    assert not file.with_name("imported").exists()
    named = ["--task-from", f"{file}:SignOfSum"]
    assert main(["resume", str(run), "--train.steps", "6", *named]) == 0
    changes = json.loads((run / "resumed.jsonl").read_text().splitlines()[-1])["changes"]
    assert "task.source.sha256" in changes
    outside._allowed.clear()
    assert main(["eval", str(run)]) == 0  # the run has the new checksum, and was trained with it


def test_a_file_that_is_gone_can_be_named_at_its_new_place(run, file, tmp_path, capsys):
    file.rename(tmp_path / "moved.py")
    assert main(["eval", str(run)]) == 2
    assert "that file is gone" in capsys.readouterr().err
    assert main(["eval", str(run), "--task-from", f"{tmp_path / 'moved.py'}:SignOfSum"]) == 0


def test_a_module_of_a_package_may_import_its_neighbours(tmp_path, monkeypatch):
    package = tmp_path / "own_package_for_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("ANSWER = 42\n")
    (package / "mine.py").write_text("from .helper import ANSWER\n" + EXAMPLE)
    monkeypatch.chdir(tmp_path)
    command = ["train", "own_package_for_tests.mine:SignOfSum", *FLAGS, "--train.steps", "2"]
    assert main([*command, "--out", "run"]) == 0
    outside._allowed.clear()
    for name in [name for name in sys.modules if name.startswith(package.name)]:
        del sys.modules[name]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["eval", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("(Classification)", ""), "derive the class from"),
        (("@dataclass(frozen=True)\n", ""), "must be a dataclass"),
        (("    def size", "    def sizes"), "lacks size"),
        (('    name: ClassVar[str] = "sign_of_sum"\n', ""), "has no name"),
        (("class SignOfSum", "class Other"), "its tasks are Classification, Other"),
        (("import torch\n", "import no_such_module\n"), "cannot be imported: ModuleNotFound"),
    ],
)
def test_what_is_no_task_is_explained(tmp_path, change, message):
    (tmp_path / "bad.py").write_text(EXAMPLE.replace(*change))
    with pytest.raises(ConfigError, match=message):
        outside.load_outside(f"{tmp_path / 'bad.py'}:SignOfSum")


def test_damaged_sources_are_refused():
    for source in ("x", {"file": 3}, {"file": "/x.py", "class": "X"}):
        with pytest.raises(RunError, match="does not say where its task is"):
            outside.load_source(source)


def test_a_file_that_a_foreign_run_names_is_not_read(tmp_path):
    """It may be of any size: this one is a terabyte of nothing."""
    path = tmp_path / "huge.py"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(RunError, match="which you have not trained with here"):
        outside.load_source({"file": str(path), "class": "X", "sha256": "0"})


def test_tasks_of_entry_points(tmp_path, monkeypatch, capsys):
    (tmp_path / "surnn_task_plugin.py").write_text(EXAMPLE)
    info = tmp_path / "surnn_task_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: surnn_task_plugin\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[surnn.tasks]\nsign_of_sum = surnn_task_plugin:SignOfSum\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    outside.entry_point_tasks.cache_clear()
    try:
        assert "sign_of_sum" in task_names()
        assert load_task("sign_of_sum")().name == "sign_of_sum"
        out = str(tmp_path / "run")
        assert main(["train", "sign_of_sum", *FLAGS, "--train.steps", "2", "--out", out]) == 0
        assert "source" not in json.loads(Path(out, "config.json").read_text())["task"]
        assert main(["eval", out]) == 0
        capsys.readouterr()
        assert main(["list", "tasks", "sign"]) == 0
        assert "sign_of_sum" in capsys.readouterr().out
    finally:
        outside.entry_point_tasks.cache_clear()
