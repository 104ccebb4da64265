"""Time training steps on a GPU against torch's layers (cuDNN), or the C engine on a CPU.

All contestants of a case take turns in one process, so that noise affects them alike; input
projection and gate gradients are included. Results are written to --out after every case.

    surnn bench                                 the whole suite (a few minutes on an H200)
    surnn bench --suite quick --case 'gru-*'    some of it
    surnn bench --plot runs/bench/2026-01-31    draw the figures again
    surnn bench engine                          streams in C: closed units, int8, torch, onnxruntime
"""

import argparse
import shlex
from datetime import datetime
from pathlib import Path

from surnn.bench.cases import SUITES, Case, select

from ..main import CommandError

HELP = "time training steps on a GPU, or the C engine, against torch's layers"
TURNS = {"full": 10, "quick": 5, "smoke": 2, "engine": 25}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``surnn bench``."""
    parser.add_argument("what", nargs="?", choices=("layers", "engine"), default="layers")
    parser.add_argument("--suite", choices=sorted(SUITES), help="default: full; smoke on a cpu")
    parser.add_argument(
        "--case", action="append", metavar="NAME", help="only this case; wildcards; repeatable"
    )
    parser.add_argument("--turns", type=_positive(int), help="timed turns of each contestant")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and inputs (0)")
    parser.add_argument(
        "--budget", type=_positive(float), metavar="SECONDS", help="start no new case after this"
    )
    parser.add_argument(
        "--jobs", type=int, default=8, metavar="N", help="processes that compile kernels (0: none)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="new folder for results (default runs/bench/TIME)"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="DIR", help="only redraw the figures of DIR/result.json"
    )


def run(arguments: argparse.Namespace) -> None:
    """Measure, or with ``--plot`` draw the figures of earlier measurements."""
    if arguments.plot is not None:
        return _redraw(arguments.plot)
    if arguments.what == "engine":
        return _engine(arguments)
    suite = arguments.suite or ("smoke" if arguments.device == "cpu" else "full")
    cases = _chosen_cases(suite, arguments.case)
    _check_device(arguments.device, suite)
    out = _new_folder(arguments.out)
    from surnn.bench.run import Settings, run_suite  # noqa: PLC0415 (torch)

    settings = Settings(
        device=arguments.device,
        turns=arguments.turns or TURNS[suite],
        seed=arguments.seed,
        budget=arguments.budget,
        compilers=max(0, arguments.jobs),
        command=_command_line(arguments, suite),
    )
    return run_suite(cases, settings, out)


def _engine(arguments: argparse.Namespace) -> None:
    from surnn.deploy.engine import library  # noqa: PLC0415

    library()  # raises if the engine cannot run here
    out, turns = _new_folder(arguments.out), arguments.turns or TURNS["engine"]
    from surnn.bench import engine  # noqa: PLC0415 (torch)

    command = f"surnn bench engine --turns {turns} --seed {arguments.seed}"
    engine.run(turns, arguments.seed, out, command)


def _chosen_cases(suite: str, patterns: list[str] | None) -> list[Case]:
    try:
        return select(SUITES[suite](), patterns)
    except LookupError as error:
        raise CommandError(f"{error.args[0]} (suite {suite})") from error


def _check_device(device: str, suite: str) -> None:
    if device == "cpu":
        if suite != "smoke":
            raise CommandError(
                f"suite {suite!r} needs a GPU; on a CPU only the tiny --suite smoke makes sense"
            )
        return
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        raise CommandError(
            "no CUDA device is visible to torch. Run this on a machine with a GPU and a CUDA build "
            "of torch, or try the tiny shapes without one: surnn bench --device cpu"
        )


def _new_folder(given: Path | None) -> Path:
    out = given or Path("runs/bench") / datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CommandError(f"{out} exists and is not an empty folder; name another with --out")
    out.mkdir(parents=True, exist_ok=True)
    return out


def _redraw(folder: Path) -> None:
    if not (folder / "result.json").is_file():
        raise CommandError(f"there is no result.json in {folder}; name a folder of surnn bench")
    from surnn.bench import figures, results  # noqa: PLC0415

    for path in figures.draw(results.read(folder), folder):
        print(f"wrote {path}")


def _command_line(arguments: argparse.Namespace, suite: str) -> str:
    """The command that repeats these numbers, without folders of this machine."""
    words = ["surnn", "bench", "--suite", suite, "--device", arguments.device]
    words += ["--turns", str(arguments.turns or TURNS[suite]), "--seed", str(arguments.seed)]
    for pattern in arguments.case or []:
        words += ["--case", pattern]
    if arguments.budget is not None:
        words += ["--budget", f"{arguments.budget:g}"]
    return shlex.join(words)


def _positive(kind: type):
    def parse(text: str):
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"must be positive, got {text}")
        return value

    parse.__name__ = f"positive {kind.__name__}"  # argparse names it in its errors
    return parse
