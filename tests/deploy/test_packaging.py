"""What is in a wheel and in a source distribution; neither is compiled here."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from fnmatch import fnmatch

import pytest

from helpers.paths import ROOT
from surnn.library import find_library

setuptools = pytest.importorskip("setuptools")
pytestmark = pytest.mark.skipif(
    int(setuptools.__version__.partition(".")[0]) < 77,
    reason=f"pyproject.toml needs setuptools 77 or newer, this is {setuptools.__version__}",
)
PLANS = sorted((ROOT / "src" / "surnn_recipes" / "plans").glob("*.txt"))
LEFT_OUT = shutil.ignore_patterns(
    ".venv", ".git", ".*_cache", "build", "dist", "__pycache__", "*.so", "*.egg-info"
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the sources."""
    folder = tmp_path_factory.mktemp("tree") / "surnn"
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT)
    return folder


def build(tree, *command: str):
    """The one file that setup.py writes, in an environment without a compiler."""
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", *command, "--dist-dir", "made"],
        cwd=tree, check=True, capture_output=True, env={**os.environ, "CC": "no-such-compiler"},
    )  # fmt: skip
    (path,) = (tree / "made").iterdir()
    path = path.rename(tree / path.name)
    return path


def test_a_wheel_without_the_library_is_tagged_for_any_platform(tree):
    wheel = build(tree, "bdist_wheel")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if "libsurnn" in name]
    assert {"surnn/py.typed", "surnn/csrc/surnn.h", "surnn/integrations/sb3.py"} <= set(names)
    assert {f"surnn_recipes/plans/{plan.name}" for plan in PLANS} <= set(names)
    (metadata,) = (name for name in names if name.endswith("METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert "License-Expression: Apache-2.0" in text
    assert "Requires-Dist: torch>=2.11\n" in text  # no upper limit
    assert 'Requires-Dist: filelock>=3.20.1; extra == "train"' in text
    for line in ("Author: ", "Project-URL: Repository", "Classifier: Programming Language :: C"):
        assert line in text


def test_wheels_are_built_for_all_systems_and_tested_where_torch_is():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]

    def selects(name: str, build: str) -> bool:
        return any(fnmatch(build, pattern) for pattern in options[name].split())

    with_torch = ["manylinux_x86_64", "manylinux_aarch64", "macosx_arm64", "win_amd64"]
    others = ["musllinux_x86_64", "musllinux_aarch64", "macosx_x86_64", "win_arm64"]
    for system in (*with_torch, *others):
        assert selects("build", f"cp311-{system}")
        assert not selects("skip", f"cp311-{system}")
        assert selects("test-skip", f"cp311-{system}") == (system in others)
    assert selects("skip", "cp311-win32")  # cibuildwheel adds it to win_amd64
    assert (ROOT / options["test-command"].split("{project}/")[1]).exists()


@pytest.mark.skipif(sys.platform != "linux", reason="reads sections of an ELF file")
def test_the_library_has_no_symbols_to_debug_with():
    library = find_library()
    if library is None:
        pytest.skip("the C library is not built")
    names = library.read_bytes()
    assert b".dynsym" in names  # section names are there to be read
    assert b".symtab" not in names
    assert b".debug" not in names


def test_a_source_distribution_is_complete(tree):
    with tarfile.open(build(tree, "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for folder in ("csrc", "tests", "docs", "examples", "benchmarks", "results", "src"):
        for path in (tree / folder).rglob("*"):
            name = str(path.relative_to(tree))
            if path.is_file() and "egg-info" not in name and "__pycache__" not in name:
                assert name in names
    assert {"CMakeLists.txt", "Makefile", "pyproject.toml", "setup.py", "SECURITY.md"} <= names
    assert {".gitattributes", "MANIFEST.in", "README.md", "RESULTS.md", "mkdocs.yml"} <= names
