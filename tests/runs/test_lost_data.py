"""What a kill, a full disk or a power cut leaves: every write of a run folder fails in turn."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from helpers.faults import Fault, FaultInjection, PowerCut, count_operations
from helpers.training import finished_run, resumed, same, trainer
from surnn.errors import RunError
from surnn.runs import files
from surnn.runs.folder import FolderExists, RunFolder
from surnn.runs.loading import load
from surnn.train.session import other_names

CONFIG = {"train": {"checkpoint_every": 3}, "task": {}, "model": {}, "gate": {}}
STATE = {"step": 1, "evaluated_step": 0}


def life_of_a_folder(path: Path) -> None:
    """Everything that is written to a folder: its files, three checkpoints, logs, its lock."""
    folder = RunFolder.create(path, CONFIG, {"tokenizer.json": "{}\n"})
    folder.lock()
    for step in (1, 2, 3):
        folder.log(kind="train", step=step, loss=0.5)
        folder.save({"w": torch.full((3,), float(step))}, {**STATE, "step": step})
        folder.save_best({"w": torch.full((3,), float(step))}, {**STATE, "step": step})
    folder.log_evaluation(split="test", checkpoint="best", overrides={}, metrics={}, step=3)
    folder.set_config({**CONFIG, "train": {"checkpoint_every": 4}})
    folder.drop_lines_after(3)
    folder.unlock()


def assert_usable(path: Path, reached: int) -> None:
    """A folder after a failure: absent, or complete and readable."""
    if not path.exists():
        assert reached == 0
        return
    folder = RunFolder.open(path)
    assert folder.config()["train"]["checkpoint_every"] in (3, 4)
    assert (path / "tokenizer.json").read_text() == "{}\n"
    assert "time" in folder.environment()
    steps = [line["step"] for line in folder.metrics()]
    assert steps == sorted(set(steps))
    newest = 0
    for name in ("last", "best"):
        if folder.checkpoints.find(name) is not None:
            weights, state = folder.load(name)
            assert (weights["w"] == state["step"]).all()
            newest = max(newest, state["step"])
    assert newest >= reached - 1
    assert len(steps) >= newest  # the log reaches every checkpoint
    folder.lock()
    folder.save({"w": torch.full((3,), 9.0)}, {**STATE, "step": 9})
    folder.log_evaluation(split="valid", checkpoint="last", overrides={}, metrics={}, step=9)
    assert folder.load("last")[1]["step"] == 9
    assert folder.evaluations()[-1]["step"] == 9
    folder.unlock()


def newest_checkpoint(path: Path) -> int:
    """The step of checkpoint ``last`` as far as a process that was not interrupted has come."""
    if not (path / "config.json").exists():
        return 0
    folder = RunFolder(path)
    found = folder.checkpoints.find("last")
    return 0 if found is None else folder.checkpoints.load(found)[1]["step"]


OPERATIONS = count_operations(life_of_a_folder)


def test_the_layer_sees_all_operations():
    assert OPERATIONS > 100


@pytest.mark.parametrize("kind", ["error", "half", "kill"])
def test_every_operation_fails_in_turn(tmp_path, kind):
    """An error of the disk, a write cut in half, or the end of the process at any operation."""
    for number in range(OPERATIONS):
        path = tmp_path / f"{kind}{number}"
        with FaultInjection(number, kind) as fault:
            try:
                life_of_a_folder(path)
            except (RunError, Fault, OSError):
                assert fault.happened
        release_locks()
        assert_usable(path, newest_checkpoint(path))


def test_power_cuts_lose_nothing_that_was_synced(tmp_path):
    """Of what was not synced, nothing is on disk: contents, names, and renames of open folders."""
    for number in range(0, OPERATIONS, max(1, OPERATIONS // 60)):
        path = tmp_path / f"cut{number}" / "run"
        path.parent.mkdir()
        with PowerCut(path.parent, number) as cut:
            with contextlib.suppress(Fault):
                life_of_a_folder(path)
            reached = cut.synced_step
        release_locks()
        cut.restore()
        assert_usable(path, reached)


def release_locks() -> None:
    """As the end of a process would."""
    from surnn.runs import lock  # noqa: PLC0415

    for held in lock._HELD.values():
        held.lock.release()
    lock._HELD.clear()


# ------------------------------------------------------------------ single losses


@pytest.mark.parametrize("name", ["evaluations.jsonl", "resumed.jsonl", "metrics.jsonl"])
def test_half_a_line_does_not_swallow_the_next(tmp_path, name):
    folder = RunFolder.create(tmp_path / "run", CONFIG)
    (folder.path / name).write_text('{"kind": "train", "step": 1}\n{"kind": "tr')
    files.append_line(folder.path / name, json.dumps({"kind": "train", "step": 2}), "again")
    steps = [line["step"] for line in folder._lines(name)]
    assert steps == [1, 2]


def test_a_run_has_its_tokenizer_from_the_start(tmp_path, monkeypatch):
    """The folder gets its name after all its files: a kill between two leaves no run."""
    seen = []
    write = files.write_atomically

    def killed(path, content):
        seen.append(path.name)
        if path.name == "tokenizer.json":
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr("surnn.runs.folder.write_atomically", killed)
    with pytest.raises(KeyboardInterrupt):
        RunFolder.create(tmp_path / "run", CONFIG, {"tokenizer.json": "{}"})
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    RunFolder.create(tmp_path / "run", CONFIG, {"tokenizer.json": "{}"})


def test_two_starts_in_one_second_get_two_folders(tmp_path):
    names = other_names(tmp_path / "2026-01-01-000000")
    first = RunFolder.create(next(names), CONFIG)
    with pytest.raises(FolderExists):
        RunFolder.create(first.path, CONFIG)
    second = RunFolder.create(next(names), CONFIG)
    assert second.path.name == "2026-01-01-000000-2"


def test_of_two_starts_in_one_folder_one_wins(tmp_path, monkeypatch):
    """Both see that the folder does not exist, and make it."""
    path = tmp_path / "run"
    capture = "surnn.runs.folder.capture_environment"

    def meanwhile():
        monkeypatch.undo()
        RunFolder.create(path, {"winner": True})
        return {"time": "now"}

    monkeypatch.setattr(capture, meanwhile)
    with pytest.raises(FolderExists, match="another process meanwhile"):
        RunFolder.create(path, {"winner": False})
    assert RunFolder.open(path).config()["winner"]
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_two_objects_in_one_process_do_not_share_the_lock(tmp_path):
    first = RunFolder.create(tmp_path / "run", CONFIG)
    first.lock()
    first.lock()  # it has it already
    second = RunFolder.open(tmp_path / "run")
    with pytest.raises(RunError, match="this process is training"):
        second.lock()
    second.unlock()  # not its own
    assert first.lock_holder().holds
    first.unlock()
    second.lock()
    del second
    first.lock()  # its owner no longer exists


def test_killed_processes_leave_runs_that_resume_bit_for_bit(tmp_path):
    """Killed before random file operations; resumed, the run equals one that was not killed."""
    whole = trainer(tmp_path / "whole", steps=6, checkpoint_every=2, evaluate_every=3)
    whole.fit()
    whole.close()
    code = (
        "import sys; from pathlib import Path; from helpers.faults import FaultInjection\n"
        "from helpers.training import trainer\n"
        "with FaultInjection(int(sys.argv[2]), 'exit'):\n"
        "    trainer(Path(sys.argv[1]), steps=6, checkpoint_every=2, evaluate_every=3).fit()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    for number in (10, 40, 90):
        path = tmp_path / f"killed{number}"
        subprocess.run(
            [sys.executable, "-c", code, str(path), str(number)], env=environment, check=False
        )
        if not path.exists():
            continue
        run = trainer(steps=6, checkpoint_every=2, evaluate_every=3)
        run.use_folder(RunFolder.open(path))
        if run.folder.has_checkpoint():
            run.resume("last")
        run.fit()
        run.close()
        assert same(whole, run)


# ------------------------------------------------------------------ damaged files


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("runs") / "run", checkpoint_every=2)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("best/state.pt", b"no archive"),
        ("best/state.pt", b""),
        ("best/model.safetensors", b"\xff" * 64),
        ("best/model.safetensors", b""),
        ("best/manifest.json", b"[1, 2]"),
        ("best/manifest.json", b'{"../../secret": "0"}'),
        ("best/manifest.json", b"\xff\xfe"),
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b"[" * 100_000),
    ],
)
@pytest.mark.parametrize("intact_manifest", [False, True])
def test_damaged_files_give_one_line_with_a_way_out(
    finished, tmp_path, name, content, intact_manifest
):
    path = Path(shutil.copytree(finished, tmp_path / "run"))
    (path / name).write_bytes(content)
    if intact_manifest and name.startswith("best/") and "manifest" not in name:
        manifest = path / "best" / "manifest.json"
        sums = json.loads(manifest.read_text())
        sums[Path(name).name] = files.checksum(path / name)
        manifest.write_text(json.dumps(sums))
    with pytest.raises(RunError) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert "--checkpoint last" in message or "copy it back" in message


def test_the_copy_of_the_configuration_restores_a_run(finished, tmp_path):
    path = Path(shutil.copytree(finished, tmp_path / "run"))
    expected = (path / "config.json").read_text()
    (path / "config.json").write_text("{")
    with pytest.raises(RunError, match=r"run_config\.json: copy it back"):
        load(path)
    shutil.copy(path / "best" / "run_config.json", path / "config.json")
    assert (path / "config.json").read_text() == expected
    load(path)


def test_a_changed_copy_of_the_configuration_is_damage(finished, tmp_path):
    path = Path(shutil.copytree(finished, tmp_path / "run"))
    (path / "best" / "run_config.json").write_text("{}")
    with pytest.raises(RunError, match=r"checksum of run_config\.json"):
        load(path)


def test_resuming_is_possible_after_odd_lines_in_the_log(finished, tmp_path):
    path = Path(shutil.copytree(finished, tmp_path / "run"))
    with (path / "metrics.jsonl").open("a") as log:
        log.write('7\n[]\n{"step": "x", "kind": 3}\n{"kind": "train"}\n\xff\n{"step": 1}\n"half')
    (path / "evaluations.jsonl").write_text("null\n{}\n")
    folder = RunFolder.open(path)
    assert all(line["step"] for line in folder.metrics())
    assert folder.test_metrics() is None
    resumed(path)
