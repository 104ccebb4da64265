"""What `import surnn` costs, and what a missing optional package says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import surnn
from surnn.errors import EXTRAS, missing_extra

SLOW = ("torch._dynamo", "sympy")
"""Modules of torch that take longer to import than all of the core."""
HEAVY = ("tyro", "rich", "safetensors", "jaxtyping", "matplotlib", "tokenizers", "transformers")
CORE = ("surnn", "surnn.errors", "surnn.lazy", "surnn.library", "surnn.nn", "surnn.scan")
BLOCK = """
import importlib.abc, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def run(code: str, *blocked: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", BLOCK.format(blocked=blocked) + code],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_every_public_name_is_there_and_listed():
    for name in surnn.__all__:
        assert getattr(surnn, name) is not None
    assert set(surnn.__all__) <= set(dir(surnn))


def test_the_list_for_type_checkers_is_the_list_for_python():
    text = Path(surnn.__file__).read_text()
    typed = text.partition("if TYPE_CHECKING:")[2].partition("__version__")[0]
    assert {line.rpartition(" as ")[2] for line in typed.strip().splitlines()} == set(surnn.__all__)


def test_a_layer_needs_torch_and_nothing_else():
    done = run(
        "import surnn, torch\n"
        "surnn.SuGRU(2, 4)(torch.zeros(3, 1, 2))\n"
        "print(*sorted(m for m in sys.modules if m.startswith('surnn')))\n"
        f"assert not set({HEAVY!r}) & set(sys.modules)",
        *HEAVY,
    )
    assert done.returncode == 0, done.stderr
    for module in done.stdout.split():
        assert module in CORE or module.startswith(("surnn.nn.", "surnn.scan.")), module


def test_importing_a_layer_imports_no_compiler():
    done = run(f"import surnn\nsurnn.SuGRU\nassert not set({SLOW!r}) & set(sys.modules)")
    assert done.returncode == 0, done.stderr


def test_the_engine_needs_no_torch():
    done = run("import surnn\nsurnn.Engine, surnn.EngineError, surnn.Stream", "torch")
    assert done.returncode == 0, done.stderr


def test_help_does_not_import_torch():
    done = run("from surnn.cli.main import main\nmain(['--help'])", "torch")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("code", "package"),
    [
        ("import surnn; surnn.load('x')", "safetensors"),
        ("import surnn; surnn.analysis", "jaxtyping"),
        ("import surnn.hf", "transformers"),
        ("import surnn_recipes.run_plan", "safetensors"),
    ],
)
def test_a_missing_extra_names_the_pip_command_in_python(code, package):
    last = run(code, package).stderr.strip().splitlines()[-1]
    assert last.startswith("surnn.errors.MissingExtra: ")
    assert f"pip install 'surnn[{EXTRAS[package]}]'" in last


@pytest.mark.parametrize(
    ("words", "package"),
    [("train copying", "tyro"), ("list tasks", "rich"), ("eval nowhere", "safetensors")],
)
def test_a_missing_extra_is_one_line_of_a_command(words, package):
    done = run(f"from surnn.cli.main import main\nsys.exit(main({words.split()!r}))", package)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert f"pip install 'surnn[{EXTRAS[package]}]'" in done.stderr


def test_a_missing_module_that_is_no_extra_stays_a_bug():
    error = ModuleNotFoundError("No module named 'surnn.taks'", name="surnn.taks")
    assert missing_extra(error, "surnn train") is error
