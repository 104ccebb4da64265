"""Checkpoints: atomic, verified, and found again after a crash at any moment."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file

from helpers.training import resumed, same, trainer
from surnn.cli.main import main
from surnn.errors import RunError
from surnn.runs.folder import RunFolder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A trainer that has finished its run."""
    run = trainer(tmp_path_factory.mktemp("runs") / "run")
    run.fit()
    run.close()
    return run


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of its folder, to damage."""
    return Path(shutil.copytree(finished.folder.path, tmp_path / "run"))


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt", "manifest.json"])
def test_a_damaged_checkpoint_is_noticed(finished, copy, name):
    damaged = copy / "last" / name
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 128
    damaged.write_bytes(content)
    with pytest.raises(RunError, match=rf"({name}|manifest).*--checkpoint previous"):
        resumed(copy)
    again = trainer()
    again.use_folder(RunFolder.open(copy))
    again.resume("previous")
    again.fit()
    again.close()
    assert same(finished, again)
    shutil.rmtree(copy / "previous")
    damaged.write_bytes(content)
    with pytest.raises(RunError, match=r"--checkpoint best"):
        resumed(copy)
    shutil.rmtree(copy / "best")
    with pytest.raises(RunError, match=r"start again.*surnn train"):
        resumed(copy)


@pytest.mark.parametrize("checkpoint_every", [3, 500])
def test_a_log_is_not_lost_with_its_checkpoints(tmp_path, capsys, checkpoint_every):
    run = trainer(tmp_path / "run", checkpoint_every=checkpoint_every)
    run.fit()
    run.close()
    log = (tmp_path / "run" / "metrics.jsonl").read_text()
    for name in ("last", "previous", "best"):
        shutil.rmtree(tmp_path / "run" / name, ignore_errors=True)
    assert main(["resume", str(tmp_path / "run")]) == 2
    message = capsys.readouterr().err
    assert f"was trained for {run.step} steps and its checkpoints were deleted" in message
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == log


@pytest.mark.parametrize(
    ("steps", "evaluated", "record"), [(3, False, False), (3, True, True), (4, False, True)]
)
def test_a_killed_process_may_have_left_no_checkpoint(tmp_path, steps, evaluated, record):
    run = trainer(tmp_path / "run", checkpoint_every=3)
    assert not run.folder.is_record()  # nothing was made
    run.folder.log(kind="train", step=steps)
    (tmp_path / "run" / "lock").write_text("123\n")  # as it leaves it
    if evaluated:
        run.folder.log_evaluation(split="test")
    assert run.folder.is_record() == record


def test_killed_between_renames(copy):
    shutil.rmtree(copy / "last")  # renamed, and the new one not yet in place
    assert RunFolder.open(copy).load("last")[1]["step"] == 9


@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize("operation", range(8))
def test_a_kill_at_any_file_operation(finished, copy, monkeypatch, best, operation):
    """After a kill at any operation the next process finds a complete checkpoint."""
    folder, name = RunFolder.open(copy), "best" if best else "last"
    weights = finished.model.state_dict()
    save = folder.save_best if best else folder.save
    left = operation

    def dying(original):
        def call(*arguments, **options):
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            return original(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", dying(Path.rename))
        patch.setattr(shutil, "rmtree", dying(shutil.rmtree))
        patch.setattr("surnn.runs.checkpoints.save_file", dying(save_file))
        with contextlib.suppress(KeyboardInterrupt):
            save(weights, {"step": 99})
    again = RunFolder.open(copy)
    assert again.load(name)[1]["step"] in (4, 8, 9, 12, 99)
    (again.save_best if best else again.save)(weights, {"step": 100})
    assert again.load(name)[1]["step"] == 100


def test_a_checkpoint_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Files and folders are synced before the rename, so that a power cut loses none."""
    done: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def noting_sync(handle):
        done.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    def noting_rename(self, to):
        done.append(f"{self.name} -> {to.name}")
        return rename(self, to)

    run = trainer(tmp_path / "run")
    monkeypatch.setattr(os, "fsync", noting_sync)
    monkeypatch.setattr(Path, "rename", noting_rename)
    run.save()
    files = ["manifest.json", "model.safetensors", "run_config.json", "state.pt"]
    assert sorted(done[:4]) == files
    assert done[4:] == ["last.new", "run", "last.new -> last", "run"]
    run.folder.log(kind="train", step=1)
    done.clear()
    run.folder.save({}, {"step": 1})
    log, renamed = done.index("metrics.jsonl"), done.index("last.new -> last")
    assert log < renamed  # the log never lacks lines of a checkpoint
