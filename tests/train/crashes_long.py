"""Training that is killed or loses its power many times, run by ``make test-crashes``.

A run is killed before a file operation, or at any moment; or the power fails before a file
operation, and only what was synced is left on disk. It is resumed, and must end as a run that was
not interrupted: the same log and the same weights, bit for bit. The log of a power cut may lack the
lines after the last checkpoint, which the resumed run writes again.
"""

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
import torch._dynamo
import torch.distributed.checkpoint.state_dict  # imported once, for all children

from helpers.faults import Fault, FaultInjection, PowerCut
from helpers.training import record, resumed, trainer
from surnn.runs.folder import RunFolder

OPTIONS = {"steps": 6, "checkpoint_every": 2, "evaluate_every": 3}


def in_child(work: Callable[[], None], kill_after: float | None = None) -> int:
    """The exit status of ``work`` in a process of its own, which is killed after some seconds."""
    process = os.fork()
    if process == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(2)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(process, signal.SIGKILL)
    return os.waitpid(process, 0)[1]


def train(path: Path) -> None:
    """Start the run, or resume it as far as it came."""
    if not path.exists():
        run = trainer(path, **OPTIONS)
    elif RunFolder.open(path).has_checkpoint():
        run = resumed(path, **OPTIONS)
    else:
        run = trainer(**OPTIONS)
        run.use_folder(RunFolder.open(path))
    run.fit()
    run.close()


def weights(path: Path) -> dict[str, torch.Tensor]:
    return RunFolder.open(path).load("last")[0]


def assert_same_end(path: Path, whole: Path) -> None:
    assert in_child(lambda: train(path)) == 0, f"{path} could not be resumed"
    assert record(path) == record(whole), f"{path} has another log"
    expected = weights(whole)
    for name, value in weights(path).items():
        assert torch.equal(value, expected[name]), f"{path} has other weights {name}"


def kill(path: Path, number: int, duration: float) -> str:
    """Kill a run once or twice; how far it was."""
    for _ in range(1 + number % 3 // 2):
        if number % 2:
            operation = random.randrange(120)

            def work(operation=operation) -> None:
                with FaultInjection(operation, "exit"):
                    train(path)

            in_child(work)
        else:
            in_child(lambda: train(path), kill_after=random.uniform(0, duration))
    return state_of(path)


def cut_power(path: Path) -> str:
    """Cut the power before a random file operation; how far the run was."""
    path.parent.mkdir()
    operation = random.randrange(120)

    def work() -> None:
        with PowerCut(path.parent, operation) as cut, contextlib.suppress(Fault):
            train(path)
        cut.restore()
        if path.exists() and (path / "last").exists():
            _, state = RunFolder.open(path).load("last")
            assert state["step"] >= cut.synced_step, "a checkpoint was lost"
            steps = {line["step"] for line in RunFolder.open(path).metrics()}
            assert steps >= set(range(1, state["step"] + 1)), "lines before a checkpoint were lost"
        else:
            assert cut.synced_step == 0, "the run was lost"

    assert in_child(work) == 0, f"{path} lost something"
    return state_of(path)


def state_of(path: Path) -> str:
    if not path.exists():
        return "no folder"
    folder = RunFolder.open(path)
    return "a checkpoint" if folder.has_checkpoint() else "no checkpoint"


def main() -> None:
    """Kill and cut, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--power-cuts", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(options.seed)
    if not hasattr(os, "fork"):
        sys.exit("this needs fork, which Windows does not have")
    with tempfile.TemporaryDirectory() as name:
        root, left = Path(name), Counter()
        begin = time.monotonic()
        assert in_child(lambda: train(root / "whole")) == 0
        duration = time.monotonic() - begin
        for number in range(options.kills):
            path = root / f"killed-{number}"
            left[f"{kill(path, number, duration)} after a kill"] += 1
            assert_same_end(path, root / "whole")
        for number in range(options.power_cuts):
            path = root / f"cut-{number}" / "run"
            left[f"{cut_power(path)} after a power cut"] += 1
            assert_same_end(path, root / "whole")
    print(f"{options.kills} kills, {options.power_cuts} power cuts: nothing lost. {dict(left)}")


if __name__ == "__main__":
    main()
