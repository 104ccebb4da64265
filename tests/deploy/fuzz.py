"""Fuzzing of the engine, run by ``make fuzz MINUTES=5``: damaged files, under sanitizers.

With clang it is libFuzzer, guided by coverage; without, a simpler driver and gcc. The mutator knows
the format (``engine_fuzz.c``). The seeds are small models that together contain every operation.
Each kind of vectors gets its share of the time. ``build/fuzz`` keeps files that reached new code,
from where the next run continues, and a file that fails.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from helpers.engine_files import build_objects, link, seed_files
from helpers.paths import ROOT

TARGET = Path(__file__).with_name("engine_fuzz.c")
FOLDER = ROOT / "build" / "fuzz"
KINDS = ("best", "avx2", "generic", "scalar")
SANITIZERS = {
    "address": "address,undefined",
    "memory": "memory",  # uninitialised memory; clang only
}
LARGEST_FILE = 1 << 15
SETTINGS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1",
    "MSAN_OPTIONS": "allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def build_fuzzer(sanitizer: str) -> tuple[Path, bool]:
    """The program, and whether it is libFuzzer's."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    guided = shutil.which("clang") is not None
    if not guided and sanitizer == "memory":
        sys.exit("the sanitizer of uninitialised memory needs clang; install it, or use valgrind")
    compiler = "clang" if guided else "gcc"
    checks = [f"-fsanitize={SANITIZERS[sanitizer]}", "-fno-sanitize-recover=all", "-O1"]
    if guided:  # the mutator knows which numbers matter, so comparisons need not be traced
        checks += ["-fsanitize=fuzzer-no-link", "-fno-sanitize-coverage=trace-cmp"]
    objects = build_objects(FOLDER / f"objects-{sanitizer}-{compiler}", *checks, compiler=compiler)
    kind = "-fsanitize=fuzzer" if guided else "-DSURNN_FUZZ_MAIN"
    program = FOLDER / f"engine-{sanitizer}"
    return link(program, TARGET, objects, *checks, kind, compiler=compiler), guided


def fuzz_guided(program: Path, kind: str, seconds: float, runs: int) -> int:
    """Run libFuzzer; returns the number of executions."""
    corpus, seeds = FOLDER / f"corpus-{kind}", FOLDER / "seeds"
    corpus.mkdir(exist_ok=True)
    limits = [f"-runs={runs}"] if runs else [f"-max_total_time={max(1, int(seconds))}"]
    command = [program, corpus, seeds, *limits, f"-max_len={LARGEST_FILE}", "-timeout=600"]
    command += ["-rss_limit_mb=4096", "-print_final_stats=1", f"-artifact_prefix={FOLDER}/failed-"]
    output = _run([*command, "-verbosity=1"], kind)
    return int(re.findall(r"number_of_executed_units: (\d+)", output)[-1])


def fuzz_blindly(program: Path, kind: str, seconds: float, runs: int) -> int:
    """Run the simple driver until the time is over; returns the number of executions."""
    files, end, done = sorted((FOLDER / "seeds").glob("*.surnn")), time.monotonic() + seconds, 0
    seed = int.from_bytes(os.urandom(3), "little")
    while done < runs if runs else time.monotonic() < end:
        batch = min(runs - done, 5000) if runs else 5000
        _run([program, batch, seed + done, *files], kind)
        done += batch
    return done


def _run(command: list, kind: str) -> str:
    """The program's output. A failure ends this process and shows it."""
    environment = {**SETTINGS, **os.environ, "SURNN_SIMD": kind}
    done = subprocess.run(
        [str(word) for word in command], env=environment, text=True, errors="replace",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{done.stdout[-8000:]}\nfailed with vectors {kind}: {command[0]}")
    return done.stdout


def main() -> None:
    """Fuzz with each kind of vectors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="time for all kinds of vectors")
    parser.add_argument("--runs", type=int, default=0, help="executions of each kind, not a time")
    parser.add_argument("--sanitizer", choices=SANITIZERS, default="address")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of vectors")
    options = parser.parse_args()
    seed_files(FOLDER / "seeds")
    program, guided = build_fuzzer(options.sanitizer)
    fuzz, total = fuzz_guided if guided else fuzz_blindly, 0
    for kind in options.kinds:
        seconds = 60 * options.minutes / len(options.kinds)
        count = fuzz(program, kind, seconds, options.runs)
        total += count
        print(f"vectors {kind}: {count} executions, nothing found", flush=True)
    print(f"{total} executions, {'libFuzzer' if guided else 'without coverage'}: nothing found")


if __name__ == "__main__":
    main()
