"""The C library under sanitizers: damaged files, and allocations that fail.

``make fuzz`` tries more files, guided by coverage.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import surnn
from helpers.building import build
from helpers.engine_files import build_objects, convolutions, link
from surnn.deploy.export import to_engine
from surnn.tasks import Tokens

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
HERE = Path(__file__).parent
CHECKS = "-fsanitize=address,undefined", "-fno-sanitize-recover=all"
SETTINGS = {**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=1"}


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    return build_objects(tmp_path_factory.mktemp("objects"), "-O0", *CHECKS)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("files")
    layer = surnn.SuGRU(3, 20, 2, heads=2, gate=surnn.Rhythm(horizon=5, frequencies=3))
    options = {"width": 8, "layers": 1, "pool": "mean", "convolution": 3}
    return [
        to_engine(layer, folder / "a.surnn"),
        to_engine(layer, folder / "b.surnn", "int8"),
        to_engine(build(Tokens(5), **options), folder / "c.surnn"),
        to_engine(convolutions(), folder / "d.surnn"),
    ]


def run(*command) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=SETTINGS, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_hostile_files_are_harmless(objects, files, tmp_path):
    """Fields of the header, of operations and of arrays are damaged, with correct checksums."""
    target, defined = HERE / "engine_fuzz.c", "-DSURNN_FUZZ_MAIN"
    program = link(tmp_path / "fuzz", target, objects, "-O1", defined, *CHECKS)
    output = run(program, 3000, 0, *files)
    counts = dict(line.split(": ") for line in output.splitlines())
    assert int(counts["refused"]) > 500
    assert int(counts["ran"]) > 500


def test_allocations_that_fail_are_reported(objects, files, tmp_path):
    """Each allocation of loading, streams, benchmarks and scans fails in turn."""
    wrap = "-Wl,--wrap=malloc,--wrap=calloc"
    program = link(tmp_path / "faults", HERE / "memory_faults.c", objects, "-O0", wrap, *CHECKS)
    lines = run(program, *files).splitlines()
    assert sum("cell" in line for line in lines) == 48  # six cells
    assert all(int(line.split(": ")[1].split()[0]) >= 4 for line in lines)
