"""A run that is killed, or runs out of disk space, resumes as if nothing had happened."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
import torch

from helpers.paths import TESTS
from helpers.training import record, resumed
from surnn.runs.folder import RunFolder

DRIVER = textwrap.dedent(
    """
    import json, os, resource, signal, sys, traceback
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    import torch
    from helpers.training import *
    import surnn.runs.checkpoints, surnn.train.optimizer_step
    import torch._dynamo, torch.distributed.checkpoint.state_dict  # once, for all children
    from surnn.errors import RunError
    from surnn.runs.checkpoints import Checkpoints

    CASES = {{
        "step": (surnn.train.optimizer_step.OptimizerStep, "__call__", 6),
        "first step": (surnn.train.optimizer_step.OptimizerStep, "__call__", 1),
        "evaluation": (Copying, "score", 3),
        "evaluated, not logged": (RunFolder, "log", 10),
        "logged, not saved": (Checkpoints, "_write", 5),
        "writing weights": (surnn.runs.checkpoints, "save_file", 4),
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
        "Files cannot grow past their size and ``room`` after ``after`` steps."
        original = surnn.train.optimizer_step.OptimizerStep.__call__
        def call(self, progress, batch):
            if progress == after:
                size = (path / "metrics.jsonl").stat().st_size if room else 2000
                resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, resource.RLIM_INFINITY))
            return original(self, progress, batch)
        surnn.train.optimizer_step.OptimizerStep.__call__ = call

    def resume_or_start(path):
        folder = RunFolder.open(path)
        run = resumed(path) if folder.has_checkpoint() else Trainer(CONFIG, folder)
        run.fit()

    root = Path(sys.argv[1])
    """
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A process that forks, trains, kills, starves and resumes; its folder and its output.

    One process for all tests: importing torch takes most of its time.
    """
    root = tmp_path_factory.mktemp("driver")
    script = root / "driver.py"
    script.write_text(DRIVER.format(tests=str(TESTS)) + textwrap.dedent(WORK))
    done = subprocess.run(
        [sys.executable, script, root], capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return root, done.stdout


WORK = """
    assert child(lambda: trainer(root / "whole").fit()) == 0
    for name, case in CASES.items():
        path = root / "killed" / name
        def killed():
            dying(*case)
            trainer(path).fit()
        def killed_again():
            dying(surnn.train.optimizer_step.OptimizerStep, "__call__", 2)
            resume_or_start(path)
        assert os.WTERMSIG(child(killed)) == signal.SIGKILL, name
        assert os.WTERMSIG(child(killed_again)) == signal.SIGKILL, name
        assert child(lambda: resume_or_start(path)) == 0, name

    def first():
        starved(root / "metrics", 7, 20)
        trainer(root / "metrics").fit()
    def second():
        starved(root / "checkpoint", 7, 0)
        trainer(root / "checkpoint", log_every=100, evaluate_every=100).fit()
    for work in (first, second):
        assert os.WEXITSTATUS(child(work)) == 2
"""


def test_a_run_killed_anywhere_and_resumed_equals_the_run_that_was_not_killed(driver):
    root, _ = driver
    whole = RunFolder.open(root / "whole")
    expected, state = whole.load("last")
    cases = list((root / "killed").iterdir())
    assert len(cases) == 9
    for path in cases:
        weights, case_state = RunFolder.open(path).load("last")
        assert all(torch.equal(weights[k], v) for k, v in expected.items()), path.name
        assert case_state["step"] == state["step"] == 12
        assert record(path) == record(root / "whole"), path.name
        best = RunFolder.open(path).load("best")[0]
        assert all(torch.equal(best[k], v) for k, v in whole.load("best")[0].items()), path.name


def test_a_full_disk_is_reported_and_loses_nothing(driver):
    """The system itself refuses to let files grow: metrics first, then a checkpoint."""
    root, output = driver
    lines = output.splitlines()
    assert len(lines) == 2
    for line, name in zip(lines, ("metrics", "checkpoint"), strict=True):
        assert "File too large" in line
        assert f"surnn resume {root / name}" in line
        assert not (root / name / "last.new").exists()
        assert RunFolder.open(root / name).load("last")[1]["step"] == 6
    log = (root / "metrics" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in log][-1] == 7
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the other processes: sums are equal to the last bit
    resumed(root / "metrics").fit()
    torch.set_num_threads(threads)
    assert record(root / "metrics") == record(root / "whole")
