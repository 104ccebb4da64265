"""Tests of the C library on sanitized builds, run by ``make test-sanitizers`` (Linux, GCC).

Addresses and undefined behaviour are checked in one build, data races between threads in another:
those of the scan, and of streams of the engine. Allocations fail in turn under the sanitizer of
threads, too. With clang, uninitialised memory is checked in programs without Python.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers.engine_files import build_objects, link, seed_files
from helpers.paths import ROOT

BUILDS = {
    "address,undefined": ("libasan.so", "libubsan.so"),
    "thread": ("libtsan.so",),
}
TESTS = {
    "address,undefined": ["tests/scan/test_native.py"],
    "thread": [
        "tests/scan/test_native.py",
        "tests/deploy/test_engine.py",
        "tests/deploy/test_engine_streams.py",
        "-k",
        "thread",
    ],
}
OPTIONS = {
    # Python and torch never free some of their memory. A report ends the run.
    "ASAN_OPTIONS": "detect_leaks=0",
    "MSAN_OPTIONS": "allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    # Only the library's own code is instrumented: torch's threads synchronise in ways unseen here.
    "TSAN_OPTIONS": "halt_on_error=1:ignore_noninstrumented_modules=1",
}


def build(kind: str, folder: Path) -> Path:
    """The C library with this sanitizer."""
    sources = [str(p) for p in sorted((ROOT / "csrc").glob("*.c")) if p.name != "main.c"]
    library = folder / "libsurnn.so"
    flags = ["-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-DSURNN_SHARED=1"]
    flags += [f"-fsanitize={kind}", "-fno-sanitize-recover=all", "-o", str(library)]
    subprocess.run(["gcc", *flags, *sources, "-lm", "-pthread"], check=True)
    return library


def find_runtime(name: str) -> str:
    """The path of a sanitizer's runtime, which must be loaded before Python."""
    done = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


FAULTS = ROOT / "tests" / "deploy" / "memory_faults.c"
FUZZER = ROOT / "tests" / "deploy" / "engine_fuzz.c"


def run_programs(kind: str, compiler: str, folder: Path) -> None:
    """The programs of the C tests with this sanitizer, on files with every operation."""
    checks = [f"-fsanitize={kind}", "-fno-sanitize-recover=all", "-O1"]
    objects = build_objects(folder / "objects", *checks, compiler=compiler)
    wrap, options = "-Wl,--wrap=malloc,--wrap=calloc", {**os.environ, **OPTIONS}
    faults = link(folder / "faults", FAULTS, objects, *checks, wrap, compiler=compiler)
    fuzzer = link(folder / "fuzz", FUZZER, objects, *checks, "-DSURNN_FUZZ_MAIN", compiler=compiler)
    files = seed_files(folder / "files")
    for command in ([faults, *files], [fuzzer, "20000", "0", *files]):
        print(f"sanitizer {kind}: {command[0].name}", flush=True)
        subprocess.run(command, env=options, check=True, stdout=subprocess.DEVNULL)


def check_programs() -> None:
    """Data races where memory is short, and uninitialised memory."""
    with tempfile.TemporaryDirectory() as folder:
        run_programs("thread", "gcc", Path(folder))
    if shutil.which("clang") is None:
        print("clang is not installed: uninitialised memory is not checked")
        return
    with tempfile.TemporaryDirectory() as folder:
        run_programs("memory", "clang", Path(folder))


def main() -> None:
    check_programs()
    for kind, runtimes in BUILDS.items():
        for simd in ("", "avx2", "generic"):
            with tempfile.TemporaryDirectory() as folder:
                library = build(kind, Path(folder))
                env = {
                    **os.environ,
                    **OPTIONS,
                    "SURNN_TEST_LIBRARY": str(library),
                    "LD_PRELOAD": ":".join(find_runtime(name) for name in runtimes),
                    "PYTHONPATH": "tests",
                    "OMP_NUM_THREADS": "1",
                    **({"SURNN_SIMD": simd} if simd else {}),
                }
                command = [sys.executable, "-m", "pytest", "-q", "-p", "helpers.other_library"]
                print(f"sanitizer {kind}, vectors {simd or 'of this machine'}", flush=True)
                subprocess.run([*command, *TESTS[kind]], env=env, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
