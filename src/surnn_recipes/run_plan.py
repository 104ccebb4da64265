"""Runs a plan: several recipes on one GPU, within a time, for the rows of RESULTS.md.

    python -m surnn_recipes.run_plan keyword-spotting --seconds 500 --data data --out runs
    python -m surnn_recipes.run_plan plan.txt --at-once 8 --pack records.tgz

The plans in src/surnn_recipes/plans are known by their names; any other is a file. A line is a
recipe, a seed and flags. A line that begins with ! is a further test of the run above it; # begins
a comment. at-once says how many runs share the GPU from there on:

    at-once 8
    copying-2000 0 --train.minutes 3
    ! --task.noise uniform
    + weights                                  # pack its best weights, not only its records
    wide: copying-2000 0 --model.width 1024    # a trial, in a folder of its own
    at-once 1                                  # this one has the GPU for itself
    copying-1000 0 --train.start @wide         # from the best weights of that run, when it is done

Small models leave a GPU idle, and several at once fill it. Start NVIDIA's MPS first, with
nvidia-cuda-mps-control -d; there kill -9 of one run ends all, so stop runs by SIGINT. A model that
fills the GPU gains nothing: psmnist makes 80 steps a second alone on an H200, and 10 with 13 other
runs. Time runs alone, and first without their tests, with --train-only; the same plan without
--train-only then tests them, several at once.

When the time is over, the remaining runs are interrupted as by Ctrl-C. The same plan resumes them,
with its --train. options of that moment, and skips runs that have been tested. A run that fails
ends alone. At the end it prints the result of each run and the command that adds it to the records.
--pack writes all records to one file whenever a run ends, with the weights of runs that are not
finished, as far as --pack-limit allows; unpack it into --out to continue. --smoke trains every line
for two steps on the CPU, to find mistakes.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from surnn.errors import RunError, SurnnError, missing_extra

try:
    from surnn.runs.config_json import config_from_dict
    from surnn.runs.folder import RunFolder
    from surnn.runs.status import run_status
    from surnn.runs.summary import run_details, summary_lines

    from .plan import DONE, DONE_BEFORE, RUNNING, PlanError, Run, plan_file, read_plan
    from .plan_records import pack
    from .results.commands import without
except ModuleNotFoundError as error:
    raise missing_extra(error, "surnn_recipes.run_plan") from error

SURNN = (sys.executable, "-m", "surnn")
PATIENCE = 30.0
"""Seconds that an interrupted run has to save a checkpoint."""
SMOKE = (
    "--train.device cpu --train.steps 2 --train.warmup 1 --train.batch 2 --train.log-every 1 "
    "--train.evaluate-every 2 --train.evaluation-batches 1 --train.evaluation-batch 2 "
    "--train.checkpoint-every 2"
)
"""Flags that make any recipe tiny."""


Busy = tuple[Run, list[list[str]], "subprocess.Popen[bytes]"]
"""A run, its remaining commands, and the process of the current one."""


def commands(run: Run, out: Path, data: list[str], *, train_only: bool = False) -> list[list[str]]:
    """The commands of a run in order: train or resume, test, further tests."""
    path = str(out / run.name)
    test = ["eval", path, "--split", "test", *data]
    flags = run.flags_in(out)
    if train_only:
        flags = [*flags, "--no-test"]
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
    ended: Callable[[], None] = lambda: None,
) -> None:
    """Run the plan, at most ``at_once`` runs at a time where it does not say how many, and call
    ``ended`` whenever one has ended. Ctrl-C interrupts all of them."""
    if at_once < 1:
        raise PlanError(f"--at-once must be at least 1, got {at_once}")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job of a shell
        signal.signal(signal.SIGINT, signal.default_int_handler)  # its children inherit it
    out.mkdir(parents=True, exist_ok=True)
    waiting: list[tuple[Run, list[list[str]]]] = []
    for run in runs:
        run.at_once = run.at_once or at_once
        if todo := commands(run, out, data, train_only=train_only):
            waiting.append((run, todo))
        else:
            run.outcome = DONE_BEFORE
    busy: list[Busy] = []
    end = time.monotonic() + seconds
    why = "an error"
    try:
        while (waiting or busy) and time.monotonic() < end:
            while (entry := next_to_start(waiting, [run for run, *_ in busy], runs)) is not None:
                waiting.remove(entry)
                busy.append(start(*entry, out))
            for run, *_ in busy:
                run.other_runs = max(run.other_runs, len(busy) - 1)
            time.sleep(0.2)
            for run, left, process in [each for each in busy if each[2].poll() is not None]:
                busy.remove((run, left, process))
                if process.returncode == 0 and left:
                    busy.append(start(run, left, out))
                    continue
                run.outcome = (
                    DONE if process.returncode == 0 else f"ended with {process.returncode}"
                )
                print(f"{run.name}: {run.outcome}", flush=True)
                ended()
        why = "the time was over"
    except KeyboardInterrupt:
        why = "Ctrl-C"
    finally:
        stop(busy, why)


def next_to_start(
    waiting: list[tuple[Run, list[list[str]]]], busy: list[Run], runs: list[Run]
) -> tuple[Run, list[list[str]]] | None:
    """The first waiting run whose needs are met, if there is room for it now. Runs that can never
    start are taken out of ``waiting``."""
    outcomes = {run.name: run.outcome for run in runs}
    for entry in [*waiting]:
        run = entry[0]
        before = [outcomes[name] for name in run.needs if outcomes[name] not in (DONE, DONE_BEFORE)]
        if not before:
            room = min(each.at_once or 1 for each in (run, *busy))
            return entry if len(busy) < room else None
        if any(outcome.startswith(("ended", "needs")) for outcome in before):
            run.outcome = outcomes[run.name] = f"needs {', '.join(run.needs)}"
            waiting.remove(entry)
            print(f"{run.name}: {run.outcome}", flush=True)
    return None


def start(run: Run, todo: list[list[str]], out: Path) -> Busy:
    """Start the first command in a session of its own, so that Ctrl-C reaches it only through
    :func:`stop`."""
    with (out / f"{run.name}.log").open("ab") as log:
        process = subprocess.Popen(todo[0], stdout=log, stderr=log, start_new_session=True)
    run.outcome = RUNNING
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


def main() -> None:
    """Parse the arguments; errors end the program with their message."""
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m surnn_recipes.run_plan",
        description=about,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("plan", help="a file, or the name of a plan")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for the runs")
    parser.add_argument("--data", type=Path, help="folder with data sets")
    parser.add_argument(
        "--at-once", type=int, default=1, help="runs at the same time, where the plan does not say"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time for all of them")
    parser.add_argument("--train-only", action="store_true", help="leave tests to a later call")
    parser.add_argument("--pack", type=Path, metavar="FILE.tgz", help="write all records to a file")
    parser.add_argument("--pack-limit", type=float, default=16.0, help="its largest size, in MiB")
    parser.add_argument("--smoke", action="store_true", help="two steps of each, on the CPU")
    arguments = parser.parse_args()
    try:
        run_command(arguments)
    except (SurnnError, OSError) as error:
        sys.exit(str(error))


def run_command(arguments: argparse.Namespace) -> None:
    """Run the plan, print the outcomes, pack the records."""
    runs = read_plan(plan_file(arguments.plan).read_text())
    out = arguments.out
    data = [] if arguments.data is None else ["--data", str(arguments.data)]
    if arguments.smoke:
        for run in runs:
            run.flags += SMOKE.split()

    def ended() -> None:
        if arguments.pack is not None:
            pack(runs, out, arguments.pack, arguments.pack_limit)

    run_plan(
        runs, out, data, arguments.at_once, arguments.seconds,
        train_only=arguments.train_only or arguments.smoke, ended=ended,
    )  # fmt: skip
    print("\n".join(describe(run, out) for run in runs))
    if arguments.pack is not None:
        for name in pack(runs, out, arguments.pack, arguments.pack_limit):
            print(f"{arguments.pack}: too large for {name}")


if __name__ == "__main__":
    main()
