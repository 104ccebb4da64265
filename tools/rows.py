"""Runs of several rows on one GPU: what RESULTS.md is made from.

    python tools/rows.py plan.txt --at-once 8 --seconds 500 --data data --out runs

A line of a plan is a recipe, a seed and flags; one that begins with ! is a further test of the run
above it; # begins a comment:

    copying-2000 0 --train.minutes 3
    ! --task.noise uniform
    wide: copying-2000 0 --model.width 1024    # a trial, in a folder of its own

Small models leave a GPU idle, and several at once fill it (start NVIDIA's MPS before, with
nvidia-cuda-mps-control -d; kill -9 of one run is the end of all there, so stop it by SIGINT). Those
that fill it by themselves gain nothing: psmnist makes 80 updates a second alone on an H200, and 10
beside 13 others. Runs
that are to be timed go alone, with --at-once 1, and first without their tests, with --train-only:
the same plan without that tests them, several at once. When the time is over those that are left
are asked to stop, as by Ctrl-C; the same plan goes on with them, with its --train. options as they
are by then, and leaves alone what has been tested. At the end it tells what came of each and how to
keep it; --pack keeps their records in one file, without weights.
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

from results import KEPT, without

from surnn.commands.info import about, summary
from surnn.commands.standing import standing
from surnn.recipes import RECIPES
from surnn.runs import RunError, RunFolder, config_from_dict

SURNN = (sys.executable, "-m", "surnn")
PATIENCE = 30.0
"""Seconds in which a run that is asked to stop leaves a checkpoint."""


@dataclass
class Run:
    """A line of the plan, and what became of it."""

    name: str
    recipe: str
    seed: str
    flags: list[str]
    tests: list[list[str]] = field(default_factory=list)
    beside: int = 0
    """How many others ran at the same time, at most."""
    ended: str = "not begun"


Busy = tuple[Run, list[list[str]], "subprocess.Popen[bytes]"]
"""A run, what is left to do for it, and what is being done."""


def read_plan(text: str) -> list[Run]:
    """The runs of a plan."""
    runs: list[Run] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "!":
            if not runs:
                raise SystemExit(f"line {number}: a test of which run? There is none above it")
            runs[-1].tests.append(words[1:])
            continue
        name = words.pop(0)[:-1] if words[0].endswith(":") else None
        if len(words) < 2 or words[0] not in RECIPES or not words[1].isdigit():
            raise SystemExit(f"line {number}: expected a recipe and a seed, got {line.strip()!r}")
        recipe, seed, *flags = words
        runs.append(Run(name or f"{recipe}-seed{seed}", recipe, seed, flags))
    names = [run.name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise SystemExit(
                f"two lines would make {name}: begin one with another name and a colon"
            )
    return runs


def commands(run: Run, out: Path, data: list[str], *, train_only: bool = False) -> list[list[str]]:
    """What is to be done for it, one after another: train (or go on) and test; further tests."""
    path = str(out / run.name)
    test = ["eval", path, "--split", "test", *data]
    flags = [*run.flags, "--no-test"] if train_only else run.flags
    todo = [["reproduce", run.recipe, "--train.seed", run.seed, "--out", path, *data, *flags]]
    if Path(path).exists():
        try:
            folder = RunFolder.open(Path(path))
            tested, config = folder.tested(), config_from_dict(folder.config())
            done = folder.has_checkpoint() and standing(folder, config).status == "finished"
        except RunError as error:
            raise SystemExit(f"{error}; name the run otherwise, or move that away") from error
        if tested is not None:
            return []
        go_on = ["resume", path, *data, *without(run.flags, is_settled)]
        todo = [test] if done else [go_on, test]
    todo += [[*test, *more] for more in run.tests]
    return [[*SURNN, *words] for words in todo if not (train_only and words[0] == "eval")]


def is_settled(option: str) -> bool:
    """Whether it cannot be another when a run is gone on with: all but how it is trained."""
    return not option.startswith("--train.") or option == "--train.start"


def work(
    runs: list[Run],
    out: Path,
    data: list[str],
    at_once: int,
    seconds: float,
    *,
    train_only: bool = False,
) -> None:
    """Run them, so many at once. Ctrl-C asks all of them to stop."""
    if at_once < 1:
        raise SystemExit(f"--at-once {at_once} would run nothing: at least 1")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a shell's background, as all would
        signal.signal(signal.SIGINT, signal.default_int_handler)  # that is started there
    out.mkdir(parents=True, exist_ok=True)
    waiting: list[tuple[Run, list[list[str]]]] = []
    for run in runs:
        if todo := commands(run, out, data, train_only=train_only):
            waiting.append((run, todo))
        else:
            run.ended = "done before"
    busy: list[Busy] = []
    end = time.monotonic() + seconds
    why = "the time was over"
    try:
        while (waiting or busy) and time.monotonic() < end:
            while waiting and len(busy) < at_once:
                run, todo = waiting.pop(0)
                busy.append(begin(run, todo, out))
            for run, *_ in busy:
                run.beside = max(run.beside, len(busy) - 1)
            time.sleep(0.2)
            for entry in [entry for entry in busy if entry[2].poll() is not None]:
                busy.remove(entry)
                run, left, process = entry
                if process.returncode == 0 and left:
                    busy.append(begin(run, left, out))
                    continue
                done = process.returncode == 0
                run.ended = "done" if done else f"ended with {process.returncode}"
                print(f"{run.name}: {run.ended}", flush=True)
    except KeyboardInterrupt:
        why = "Ctrl-C"
    stop(busy, why)


def begin(run: Run, todo: list[list[str]], out: Path) -> Busy:
    """Start the first of these commands, in a session of its own: Ctrl-C is for us to pass on."""
    with (out / f"{run.name}.log").open("ab") as log:
        process = subprocess.Popen(todo[0], stdout=log, stderr=log, start_new_session=True)
    return run, todo[1:], process


def stop(busy: list[Busy], why: str) -> None:
    """Ask them to, and wait a while."""
    for _, _, process in busy:
        process.send_signal(signal.SIGINT)
    late = time.monotonic() + PATIENCE
    for run, _, process in busy:
        try:
            process.wait(max(0.0, late - time.monotonic()))
            run.ended = f"stopped: {why}"
        except subprocess.TimeoutExpired:
            process.kill()
            run.ended = f"killed: {why}"
        print(f"{run.name}: {run.ended}", flush=True)


def tell(run: Run, out: Path) -> str:
    """What came of it, as surnn info tells it, and how it is kept."""
    try:
        folder = RunFolder.open(out / run.name)
    except RunError:
        return f"{run.name}: {run.ended}, see {out / run.name}.log"
    config = config_from_dict(folder.config())
    told = summary(folder.path, config, about(folder, config))
    lines = [f"{run.name}: {run.ended}", *(f"  {name:12} {text}" for name, text in told)]
    if folder.tested() is not None:
        lines.append(f"  tools/results.py add {run.recipe} {folder.path} --beside {run.beside}")
    return "\n".join(lines)


def pack(runs: list[Run], out: Path, file: Path) -> None:
    """Records and output of all runs in a file."""
    with tarfile.open(file, "w:gz") as packed:
        for run in runs:
            kept = (f"{run.name}/{name}" for name in ("environment.json", *KEPT))
            for name in (f"{run.name}.log", *kept):
                if (out / name).exists():
                    packed.add(out / name, name)


def main() -> None:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("plan", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for the runs")
    parser.add_argument("--data", type=Path, help="folder with data sets")
    parser.add_argument("--at-once", type=int, default=1, help="runs at the same time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time for all of them")
    parser.add_argument("--train-only", action="store_true", help="leave tests to the next call")
    parser.add_argument("--pack", type=Path, metavar="FILE.tgz", help="keep all records in a file")
    arguments = parser.parse_args()
    try:
        runs = read_plan(arguments.plan.read_text())
    except OSError as error:
        raise SystemExit(f"the plan cannot be read: {error}") from error
    data = [] if arguments.data is None else ["--data", str(arguments.data)]
    work(runs, arguments.out, data, arguments.at_once, arguments.seconds,
         train_only=arguments.train_only)  # fmt: skip
    print("\n".join(tell(run, arguments.out) for run in runs))
    if arguments.pack is not None:
        pack(runs, arguments.out, arguments.pack)


if __name__ == "__main__":
    main()
