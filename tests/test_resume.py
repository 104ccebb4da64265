"""A run can be stopped, killed, damaged and starved of disk, and goes on as if nothing had been."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from surnn.cli import main
from surnn.config import GateConfig
from surnn.runs import RunError, RunFolder
from surnn.tasks.copying import Copying
from training import CONFIG, fit_until, record, resumed, same, trainer, updates


@pytest.fixture(autouse=True)
def _interruptible():
    """Also where Ctrl-C is ignored, as in the background of a shell script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("gone_at", [4, 8])
@pytest.mark.parametrize("mode", ["hard", "sampled"])
def test_resumed_run_is_the_run_that_was_not_stopped(tmp_path, gone_at, mode):
    """Weights, and the record: a line of the log is of updates before and after the checkpoint."""
    config = replace(CONFIG, gate=GateConfig(rate=0.3, mode=mode))
    config = replace(config, train=replace(config.train, log_every=5))
    whole = trainer(tmp_path / "whole", config)
    whole.fit()
    broken = trainer(tmp_path / "broken", config)
    fit_until(broken, gone_at)
    again = resumed(tmp_path / "broken", config)
    assert again.step == gone_at // 3 * 3
    again.fit()
    assert same(whole, again)
    assert record(tmp_path / "broken") == record(tmp_path / "whole")


def test_a_run_stopped_before_its_first_update(tmp_path):
    whole = trainer(tmp_path / "whole")
    whole.fit()
    trainer(tmp_path / "run").save()
    again = resumed(tmp_path / "run")
    again.fit()
    assert same(whole, again)
    assert record(tmp_path / "run") == record(tmp_path / "whole")


# ---------------------------------------------------------------- kill -9

DRIVER = textwrap.dedent(
    """
    import json, os, resource, signal, sys, traceback
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    import torch
    from training import *
    import surnn.runs, surnn.update
    import torch._dynamo, torch.distributed.checkpoint.state_dict  # once, for all children
    from surnn.runs import RunError

    CASES = {{
        "update": (surnn.update.Updater, "__call__", 6),
        "first update": (surnn.update.Updater, "__call__", 1),
        "evaluation": (Copying, "score", 3),
        "evaluated, not logged": (RunFolder, "log", 10),
        "logged, not saved": (RunFolder, "_write", 5),
        "writing weights": (surnn.runs, "save_file", 4),
        "writing state": (torch, "save", 4),
        "first rename": (Path, "rename", 4),
        "second rename": (Path, "rename", 5),
    }}

    def child(work):
        pid = os.fork()
        if pid == 0:
            try:
                work()
                os._exit(0)
            except RunError as error:
                print(f"RunError: {{error}}", flush=True)
                os._exit(2)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        return os.waitpid(pid, 0)[1]

    def dying(owner, name, calls):
        original, left = getattr(owner, name), calls
        def call(*arguments, **options):
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)
        setattr(owner, name, call)

    def starved(path, after, room):
        "Files cannot grow past their size and ``room`` once ``after`` updates are made."
        original = surnn.update.Updater.__call__
        def call(self, at, batch):
            if at == after:
                size = (path / "metrics.jsonl").stat().st_size if room else 2000
                resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, resource.RLIM_INFINITY))
            return original(self, at, batch)
        surnn.update.Updater.__call__ = call

    def going_on(path):
        folder = RunFolder.open(path)
        run = resumed(path) if folder.has_checkpoint() else Trainer(CONFIG, folder)
        run.fit()

    root = Path(sys.argv[1])
    """
)


def drive(tmp_path: Path, work: str) -> str:
    """A process that forks, runs, kills and resumes; what it printed."""
    script = tmp_path / "driver.py"
    script.write_text(DRIVER.format(tests=str(Path(__file__).parent)) + textwrap.dedent(work))
    done = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kill_9_anywhere_and_resume_is_the_run_that_was_not_killed(tmp_path):
    drive(
        tmp_path,
        """
        assert child(lambda: trainer(root / "whole").fit()) == 0
        for name, case in CASES.items():
            path = root / name
            def killed():
                dying(*case)
                trainer(path).fit()
            def killed_again():
                dying(surnn.update.Updater, "__call__", 2)
                going_on(path)
            assert os.WTERMSIG(child(killed)) == signal.SIGKILL, name
            assert os.WTERMSIG(child(killed_again)) == signal.SIGKILL, name
            assert child(lambda: going_on(path)) == 0, name
        """,
    )
    whole = RunFolder.open(tmp_path / "whole")
    expected, state = whole.load("last")
    cases = [p for p in tmp_path.iterdir() if p.is_dir() and p.name != "whole"]
    assert len(cases) == 9
    for path in cases:
        found, of_case = RunFolder.open(path).load("last")
        assert all(torch.equal(found[k], v) for k, v in expected.items()), path.name
        assert of_case["step"] == state["step"] == 12
        assert record(path) == record(tmp_path / "whole"), path.name
        best = RunFolder.open(path).load("best")[0]
        assert all(torch.equal(best[k], v) for k, v in whole.load("best")[0].items()), path.name


# ---------------------------------------------------------------- a full disk


def test_a_full_disk_says_so_and_loses_nothing(tmp_path):
    """The system itself refuses to let files grow: metrics first, then a checkpoint."""
    said = drive(
        tmp_path,
        """
        assert child(lambda: trainer(root / "whole").fit()) == 0
        def first():
            starved(root / "metrics", 7, 20)
            trainer(root / "metrics").fit()
        def second():
            starved(root / "checkpoint", 7, 0)
            trainer(root / "checkpoint", log_every=100, evaluate_every=100).fit()
        for work in (first, second):
            assert os.WEXITSTATUS(child(work)) == 2
        """,
    ).splitlines()
    assert len(said) == 2
    for line, name in zip(said, ("metrics", "checkpoint"), strict=True):
        assert "File too large" in line
        assert f"surnn resume {tmp_path / name}" in line
        assert not (tmp_path / name / "last.new").exists()
        assert RunFolder.open(tmp_path / name).load("last")[1]["step"] == 6
    whole = (tmp_path / "metrics" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in whole][-1] == 7
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the processes before: sums are to be the same to the last bit
    resumed(tmp_path / "metrics").fit()
    torch.set_num_threads(threads)
    assert record(tmp_path / "metrics") == record(tmp_path / "whole")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be made"):
        RunFolder.create(tmp_path / "file" / "run", {})


# ---------------------------------------------------------------- damage


@pytest.mark.parametrize("name", ["model.safetensors", "state.pt", "manifest.json"])
def test_a_damaged_checkpoint_is_noticed(tmp_path, name):
    whole = trainer(tmp_path / "run")
    whole.fit()
    damaged = tmp_path / "run" / "last" / name
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 128
    damaged.write_bytes(content)
    with pytest.raises(RunError, match=rf"({name}|manifest).* the same: --checkpoint previous"):
        resumed(tmp_path / "run")
    again = trainer()
    again.keep(RunFolder.open(tmp_path / "run"))
    again.resume("previous")
    again.fit()
    assert same(whole, again)
    shutil.rmtree(tmp_path / "run" / "previous")
    damaged.write_bytes(content)
    with pytest.raises(RunError, match=r"weights of best are there still: --checkpoint best"):
        resumed(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "best")
    with pytest.raises(RunError, match="begin again"):
        resumed(tmp_path / "run")


@pytest.mark.parametrize("checkpoint_every", [3, 500])
def test_a_log_is_not_lost_with_its_checkpoints(tmp_path, capsys, checkpoint_every):
    run = trainer(tmp_path / "run", checkpoint_every=checkpoint_every)
    run.fit()
    run.close()
    log = (tmp_path / "run" / "metrics.jsonl").read_text()
    for name in ("last", "previous", "best"):
        shutil.rmtree(tmp_path / "run" / name, ignore_errors=True)
    assert main(["resume", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert f"was trained for {run.step} updates and its checkpoints are gone" in told
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
        run.folder.evaluated(split="test")
    assert run.folder.is_record() == record


def test_the_best_weights_are_not_enough_to_go_on(tmp_path):
    trainer(tmp_path / "run").fit()
    run = trainer()
    run.keep(RunFolder.open(tmp_path / "run"))
    with pytest.raises(RunError, match=r"no .*optimizer.*use last or previous"):
        run.resume("best")


def test_killed_between_renames(tmp_path):
    trainer(tmp_path / "run").fit()
    shutil.rmtree(tmp_path / "run" / "last")  # renamed away, and the new one not yet in place
    assert RunFolder.open(tmp_path / "run").load("last")[1]["step"] == 9


def test_not_a_run(tmp_path):
    with pytest.raises(RunError, match=r"holds no config\.json"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize("operation", range(8))
def test_a_kill_at_any_file_operation(tmp_path, monkeypatch, best, operation):
    """Whatever is the last thing that a process did, the next one finds a whole checkpoint."""
    run = trainer(tmp_path / "run")
    run.fit()
    folder, name = run.folder, "best" if best else "last"
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
        patch.setattr("surnn.runs.save_file", dying(save_file))
        with contextlib.suppress(KeyboardInterrupt):
            save(run.model.state_dict(), {"step": 99})
    again = RunFolder.open(tmp_path / "run")
    assert again.load(name)[1]["step"] in (4, 8, 9, 12, 99)
    (again.save_best if best else again.save)(run.model.state_dict(), {"step": 100})
    assert again.load(name)[1]["step"] == 100


def test_a_checkpoint_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Files and folders are synced, in an order that a power cut cannot get between."""
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
    assert sorted(done[:3]) == ["manifest.json", "model.safetensors", "state.pt"]
    assert done[3:] == ["last.new", "last.new -> last", "run"]


# ---------------------------------------------------------------- signals

SCRIPT = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from training import *
    t = trainer(Path(sys.argv[1]), steps=100_000, checkpoint_every=2, evaluate_every=100_000)
    t.fit()
    sys.exit(3 if t.interrupted else 0)
    """
)


def test_sigterm_checkpoints_and_exits(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(tests=str(Path(__file__).parent)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, script, tmp_path / "run"], env=environment)
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / "previous").exists():
        assert process.poll() is None, "the trainer ended by itself"
        assert time.monotonic() < deadline, "no checkpoint came"
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 3
    folder = RunFolder.open(tmp_path / "run")
    assert folder.load("last")[1]["step"] == folder.metrics()[-1]["step"]


def interrupting(original, times: int):
    def score(*arguments):
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        return original(*arguments)

    return score


def test_a_signal_in_an_evaluation_puts_it_off(tmp_path, monkeypatch):
    whole = trainer(tmp_path / "whole")
    whole.fit()
    run = trainer(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Copying, "score", interrupting(Copying.score, 1))
        run.fit()
    assert run.interrupted
    assert (run.step, run.evaluated) == (4, 0)
    fit_until(resumed(tmp_path / "run"), 4)  # evaluated and on record, but not in a checkpoint
    again = resumed(tmp_path / "run")
    again.fit()
    assert same(whole, again)
    assert record(tmp_path / "run") == record(tmp_path / "whole")


def test_a_second_signal_ends_at_once(tmp_path, monkeypatch):
    run = trainer(tmp_path / "run")
    monkeypatch.setattr("surnn.signals.ECHO", -1.0)
    monkeypatch.setattr(Copying, "score", interrupting(Copying.score, 2))
    with pytest.raises(KeyboardInterrupt):
        run.fit()
    assert run.folder.load("last")[1]["step"] == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_comes_twice_at_once_is_one(monkeypatch):
    run = trainer()
    monkeypatch.setattr(Copying, "score", interrupting(Copying.score, 2))
    run.fit()
    assert run.interrupted


# ---------------------------------------------------------------- going on otherwise


def test_what_is_changed_on_resuming_counts_and_is_on_record(tmp_path):
    run = trainer(tmp_path / "run", hold=1.0)
    updates(run, 6)
    run.save()
    again = resumed(tmp_path / "run", learning_rate=1e-4, weight_decay=0.5, hold=1.0)
    again.fit()
    path = tmp_path / "run"
    assert {m["learning_rate"] for m in record(path) if m["kind"] == "train"} == {1e-4}
    groups = again.updater.optimizer.param_groups
    assert {g["weight_decay"] for g in groups} == {0.5, 0.0}
    assert {round(g["lr"].item(), 9) for g in groups} == {1e-4}
    assert json.loads((path / "config.json").read_text())["train"]["learning_rate"] == 1e-4
    lines = [json.loads(line) for line in (path / "resumed.jsonl").read_text().splitlines()]
    assert (lines[0]["step"], lines[0]["processes"]) == (6, 1)
    assert lines[0]["torch"] == torch.__version__
    assert lines[1]["changes"] == {
        "train.learning_rate": [2e-3, 1e-4], "train.weight_decay": [0.0, 0.5],
    }  # fmt: skip


def test_other_processes_draw_anew_and_say_so(tmp_path):
    run = trainer(tmp_path / "run")
    updates(run, 3)
    run.save()
    weights, state = run.folder.load("last")
    run.folder.save(weights, {**state, "random": state["random"] * 2})  # as by two processes
    again = resumed(tmp_path / "run")
    said: list[str] = []
    again.reporter.message = said.append  # type: ignore[method-assign]
    again.fit()
    assert "saved by 2 process(es), goes on with 1" in said[0]
    assert "draw anew" in (tmp_path / "run" / "resumed.jsonl").read_text()
