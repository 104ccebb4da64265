"""Runs a plan: several recipes on one GPU, for the rows of RESULTS.md.

    python -m surnn_recipes.run_plan plan.txt --at-once 8 --seconds 500 --data data --out runs

A line of a plan is a recipe, a seed and flags. A line that begins with ! is a further test of the
run above it; # begins a comment:

    copying-2000 0 --train.minutes 3
    ! --task.noise uniform
    wide: copying-2000 0 --model.width 1024    # a trial, in a folder of its own

Small models leave a GPU idle, and several at once fill it. Start NVIDIA's MPS first, with
nvidia-cuda-mps-control -d; there kill -9 of one run ends all, so stop runs by SIGINT. A model that
fills the GPU gains nothing: psmnist makes 80 steps a second alone on an H200, and 10 with 13 other
runs. Time runs alone, with --at-once 1, and first without their tests, with --train-only; the same
plan without --train-only then tests them, several at once.

When the time is over, the remaining runs are interrupted as by Ctrl-C. The same plan resumes them,
with its --train. options of that moment, and skips runs that have been tested. At the end it prints
the result of each run and the command that adds it to the records; --pack writes all records to one
file, without weights.
"""

import argparse
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from surnn.errors import RunError, SurnnError
from surnn.runs.config_json import config_from_dict
from surnn.runs.folder import RunFolder
from surnn.runs.status import run_status
from surnn.runs.summary import run_details, summary_lines
from surnn_recipes import RECIPES

from .results.commands import without
from .results.records import FILES

SURNN = (sys.executable, "-m", "surnn")
PATIENCE = 30.0
"""Seconds that an interrupted run has to save a checkpoint."""


class PlanError(SurnnError):
    """A plan that cannot be run; the message says why."""


@dataclass
class Run:
    """A line of the plan, and its outcome."""

    name: str
    recipe: str
    seed: str
    flags: list[str]
    tests: list[list[str]] = field(default_factory=list)
    other_runs: int = 0
    """The largest number of runs at the same time, without this one."""
    outcome: str = "not started"


Busy = tuple[Run, list[list[str]], "subprocess.Popen[bytes]"]
"""A run, its remaining commands, and the process of the current one."""


def read_plan(text: str) -> list[Run]:
    """The runs of a plan."""
    runs: list[Run] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "!":
            if not runs:
                raise PlanError(f"line {number}: a test needs a run above it")
            runs[-1].tests.append(words[1:])
            continue
        name = words.pop(0)[:-1] if words[0].endswith(":") else None
        if len(words) < 2 or words[0] not in RECIPES or not words[1].isdigit():
            raise PlanError(f"line {number}: expected a recipe and a seed, got {line.strip()!r}")
        recipe, seed, *flags = words
        runs.append(Run(name or f"{recipe}-seed{seed}", recipe, seed, flags))
    names = [run.name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise PlanError(
                f"two lines have the name {name}: begin one with another name and a colon"
            )
    return runs


def commands(run: Run, out: Path, data: list[str], *, train_only: bool = False) -> list[list[str]]:
    """The commands of a run in order: train or resume, test, further tests."""
    path = str(out / run.name)
    test = ["eval", path, "--split", "test", *data]
    flags = [*run.flags, "--no-test"] if train_only else run.flags
    todo = [["reproduce", run.recipe, "--train.seed", run.seed, "--out", path, *data, *flags]]
    if Path(path).exists():
        try:
            folder = RunFolder.open(Path(path))
            tested, config = folder.test_metrics(), config_from_dict(folder.config())
            done = folder.has_checkpoint() and run_status(folder, config).status == "finished"
        except RunError as error:
            raise PlanError(f"{error}; give the run another name, or move that folder") from error
        if tested is not None:
            return []
        resume = ["resume", path, *data, *without(run.flags, is_fixed)]
        todo = [test] if done else [resume, test]
    todo += [[*test, *more] for more in run.tests]
    return [[*SURNN, *words] for words in todo if not (train_only and words[0] == "eval")]


def is_fixed(option: str) -> bool:
    """Whether an option cannot change when a run is resumed: all but the options of training."""
    return not option.startswith("--train.") or option == "--train.start"


def run_plan(
    runs: list[Run],
    out: Path,
    data: list[str],
    at_once: int,
    seconds: float,
    *,
    train_only: bool = False,
) -> None:
    """Run the plan, ``at_once`` runs at a time. Ctrl-C interrupts all of them."""
    if at_once < 1:
        raise PlanError(f"--at-once must be at least 1, got {at_once}")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)  # its children inherit it
    out.mkdir(parents=True, exist_ok=True)
    waiting: list[tuple[Run, list[list[str]]]] = []
    for run in runs:
        if todo := commands(run, out, data, train_only=train_only):
            waiting.append((run, todo))
        else:
            run.outcome = "already done"
    busy: list[Busy] = []
    end = time.monotonic() + seconds
    why = "the time was over"
    try:
        while (waiting or busy) and time.monotonic() < end:
            while waiting and len(busy) < at_once:
                run, todo = waiting.pop(0)
                busy.append(start(run, todo, out))
            for run, *_ in busy:
                run.other_runs = max(run.other_runs, len(busy) - 1)
            time.sleep(0.2)
            for entry in [entry for entry in busy if entry[2].poll() is not None]:
                busy.remove(entry)
                run, left, process = entry
                if process.returncode == 0 and left:
                    busy.append(start(run, left, out))
                    continue
                done = process.returncode == 0
                run.outcome = "done" if done else f"ended with {process.returncode}"
                print(f"{run.name}: {run.outcome}", flush=True)
    except KeyboardInterrupt:
        why = "Ctrl-C"
    stop(busy, why)


def start(run: Run, todo: list[list[str]], out: Path) -> Busy:
    """Start the first command in a session of its own, so that Ctrl-C reaches it only through
    :func:`stop`."""
    with (out / f"{run.name}.log").open("ab") as log:
        process = subprocess.Popen(todo[0], stdout=log, stderr=log, start_new_session=True)
    return run, todo[1:], process


def stop(busy: list[Busy], why: str) -> None:
    """Interrupt all runs and wait for them."""
    for _, _, process in busy:
        process.send_signal(signal.SIGINT)
    late = time.monotonic() + PATIENCE
    for run, _, process in busy:
        try:
            process.wait(max(0.0, late - time.monotonic()))
            run.outcome = f"stopped: {why}"
        except subprocess.TimeoutExpired:
            process.kill()
            run.outcome = f"killed: {why}"
        print(f"{run.name}: {run.outcome}", flush=True)


def describe(run: Run, out: Path) -> str:
    """A run's outcome, the summary of surnn info, and the command that adds it to the records."""
    try:
        folder = RunFolder.open(out / run.name)
    except RunError:
        return f"{run.name}: {run.outcome}, see {out / run.name}.log"
    config = config_from_dict(folder.config())
    facts = summary_lines(folder.path, config, run_details(folder, config))
    lines = [f"{run.name}: {run.outcome}", *(f"  {name:12} {text}" for name, text in facts)]
    if folder.test_metrics() is not None:
        lines.append(
            f"  python -m surnn_recipes.results add {run.recipe} {folder.path} "
            f"--other-runs {run.other_runs}"
        )
    return "\n".join(lines)


def pack(runs: list[Run], out: Path, file: Path) -> None:
    """Write the records and logs of all runs to one file."""
    with tarfile.open(file, "w:gz") as packed:
        for run in runs:
            files = (f"{run.name}/{name}" for name in ("environment.json", *FILES))
            for name in (f"{run.name}.log", *files):
                if (out / name).exists():
                    packed.add(out / name, name)


def main() -> None:
    """Parse the arguments; errors end the program with their message."""
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m surnn_recipes.run_plan",
        description=about,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("plan", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for the runs")
    parser.add_argument("--data", type=Path, help="folder with data sets")
    parser.add_argument("--at-once", type=int, default=1, help="runs at the same time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time for all of them")
    parser.add_argument("--train-only", action="store_true", help="leave tests to a later call")
    parser.add_argument("--pack", type=Path, metavar="FILE.tgz", help="write all records to a file")
    arguments = parser.parse_args()
    try:
        run_command(arguments)
    except (SurnnError, OSError) as error:
        sys.exit(str(error))


def run_command(arguments: argparse.Namespace) -> None:
    """Run the plan, print the outcomes, pack the records."""
    runs = read_plan(arguments.plan.read_text())
    data = [] if arguments.data is None else ["--data", str(arguments.data)]
    run_plan(
        runs, arguments.out, data, arguments.at_once, arguments.seconds,
        train_only=arguments.train_only,
    )  # fmt: skip
    print("\n".join(describe(run, arguments.out) for run in runs))
    if arguments.pack is not None:
        pack(runs, arguments.out, arguments.pack)


if __name__ == "__main__":
    main()
