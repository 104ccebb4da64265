"""Commands in the documents and in the help texts exist, with their options and names.

``make docs-examples`` runs the longer ones.
"""

import contextlib
import inspect
import re
import shlex
from importlib import import_module

import pytest

from helpers.paths import ROOT
from surnn.analysis.figures import PLOTS
from surnn.cli.main import COMMANDS, _check_flags, build_parser
from surnn.config import GATE_CONFIGS, RunConfig, TrainConfig
from surnn.tasks import load_task
from surnn.train.flags import override, parse, task_class
from surnn.train.recipe_options import configure
from surnn_recipes import RECIPES

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
MEANT = {
    "TASK": "copying", "ROW": "psmnist", "KIND": "input", "NAME": "gate-raster", "N": "10",
    "FILE.py:MyTask": "copying", "my_task.py:MyTask": "copying", "data.csv": "DATA",
    "my_package.tasks:MyTask": "copying", "examples/own_task.py:SignOfSum": "sign",
}  # fmt: skip
"""An example for each word that stands for others."""
EVALUATED = ("copying", "sequences", "text_file", "mackey_glass")
"""Tasks whose options `surnn eval` shows."""


def commands_of(text: str) -> list[str]:
    """Commands of surnn in a document: in blocks and between backticks."""
    blocks = re.findall(r"```(?!py)\w*\n(.*?)```", text, flags=re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines += re.findall(r"`(surnn [^`]+)`", prose.replace("\n", " "))
    return [part for line in lines for part in line.split(" && ") if part.startswith("surnn ")]


def help_of(module) -> list[str]:
    lines = (line.strip() for line in (inspect.getdoc(module) or "").splitlines())
    return [re.split(r"\s{3,}", line)[0] for line in lines if line.startswith("surnn ")]


CASES = [(p.name, line) for p in PAGES for line in commands_of(p.read_text())] + [
    (name, line) for name, path in COMMANDS.items() for line in help_of(import_module(path))
]


def test_commands_are_found():
    assert len(CASES) > 100
    assert {name for name, _ in CASES} >= {"README.md", "own_data.md", "language_models.md", "eval"}


@pytest.mark.parametrize(("where", "line"), CASES, ids=[f"{w}: {line}" for w, line in CASES])
def test_a_command_and_its_options_exist(where, line):
    words = [word.strip("[]") for word in shlex.split(line, comments=True)[1:]]
    words = [MEANT.get(word, word) for word in words if word not in ("...", "[RUN", "...]")]
    if len(words) == 1 or "--help" in words:  # a name in a sentence
        assert words[0] in COMMANDS
        return
    arguments, rest = build_parser().parse_known_args(words)
    if rest:
        _check_flags(rest, arguments)
    flags = [*rest, *getattr(arguments, "flags", [])]
    match words[0]:
        case "train":
            check_training(arguments.task, flags)
        case "eval":
            assert not flags or any(accepts("task", flags, load_task(t)()) for t in EVALUATED)
        case "advise":
            assert accepts("task", flags, load_task("sequences")())
        case "resume":
            assert accepts("train", flags, TrainConfig())
        case "reproduce":
            configure(RECIPES[arguments.name], flags, True, None, arguments.seeds, False)
        case "plot":
            assert arguments.name in (*PLOTS, "list")


def check_training(task: str, flags: list[str]) -> None:
    if "--gate.kind" in flags and flags[flags.index("--gate.kind") + 1] not in GATE_CONFIGS:
        return  # a gate that own_task.md publishes
    if task != "sign":
        parse(f"surnn train {task}", flags, RunConfig(task_class(task)()))


def accepts(group: str, flags: list[str], default) -> bool:
    with contextlib.suppress(SystemExit):
        override("surnn", group, flags, default)
        return True
    return False
