"""Output of the command line: tables, help, pipes, interrupts."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from surnn.cli import main as cli
from surnn.cli import tables
from surnn.cli.commands import list as list_command
from surnn.cli.main import main
from surnn.config import GATE_CONFIGS, ModelConfig, TrainConfig
from surnn.tasks import TASKS
from surnn.train.flags import override
from surnn.train.session import Session
from surnn_recipes import RECIPES


@pytest.mark.parametrize("what", ["tasks", "recipes", "models", "cells", "gates"])
def test_tables(what, capsys):
    assert main(["list", what]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = {"tasks": TASKS, "recipes": RECIPES}.get(what, ())
    assert all(any(line.strip().startswith(name) for line in lines) for name in names)
    assert len(lines) > 8


@pytest.mark.parametrize("columns", [60, 45, None])
def test_tables_crop_nothing(columns, capsys, monkeypatch):
    """Neither in a narrow terminal nor in a pipe, which has no width."""
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("FORCE_COLOR", "1")
    name, words, long_word = "a-name-of-some-length", "words that say what it is", "Q" * 40
    tables.show(("name", "what", "more"), [("b", "", ""), (name, words, long_word)])
    shown = capsys.readouterr().out
    assert f" {name} " in shown
    assert all(word in shown for word in words.split())
    assert shown.count("Q") == 40
    assert (long_word in shown) == (columns is None)


@pytest.mark.parametrize("what", ["gates", "cells", "models", "tasks"])
def test_every_row_says_something_of_its_own(what):
    texts = [row[-1] for row in list_command.TABLES[what]()[1]]
    assert len(set(texts)) == len(texts)
    assert all(text.count("(") == text.count(")") for text in texts), "a sentence is cut"


def test_all_names(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {word}\n" in out for word in ("copying", "psmnist-stepwise", "rhythm", "sugru"))


def test_recipes_show_the_papers_number(capsys):
    assert main(["list", "recipes", "psmnist-stepwise-table"]) == 0
    row = capsys.readouterr().out.split("\n")[3].split()
    assert row[:4] == ["psmnist-stepwise-table", "psmnist", "sugru", "2x256"]
    assert row[4:] == ["0.1325", "Table", "A1(a)", "su-GRU(learnable", "N*T)"]


@pytest.mark.parametrize("kind", [*GATE_CONFIGS.values(), ModelConfig, TrainConfig])
def test_every_field_has_a_flag_with_help(kind, capsys):
    group = {ModelConfig: "model", TrainConfig: "train"}.get(kind, "gate")
    with pytest.raises(SystemExit):
        override("surnn", group, ["--help"], kind())
    text = " ".join(capsys.readouterr().out.replace("│", "").split())
    flags = [f"--{group}.{f.name.replace('_', '-')}" for f in fields(kind)]
    for flag, following in zip(flags, [*flags[1:], "╰"], strict=True):
        told = text.split(f"{flag}", 1)[1].split(following, 1)[0].split("(default")[0]
        assert len(told.split()) > 2, f"{flag} has no help: {told!r}"


@pytest.mark.parametrize("flags", [[], ["--gate.kind", "every_n"], ["--gate.kind=ssm"]])
def test_help_shows_the_options_of_the_chosen_gate(flags, capsys):
    with pytest.raises(SystemExit):
        main(["train", "copying", *flags, "--help"])
    shown = set(re.findall(r"--gate\.([a-z-]+)", capsys.readouterr().out))
    kind = flags[-1].rpartition("=")[2] if flags else "rhythm"
    own = {f.name.replace("_", "-") for f in fields(GATE_CONFIGS[kind])}
    assert {name for name in shown if not name.startswith("no-")} == own


TALKATIVE = """
import sys, types
from surnn.cli import main as cli
sys.modules["talk"] = talk = types.ModuleType("talk")
talk.HELP, talk.add_arguments, talk.run = "", lambda parser: None, lambda _: print("word")
cli.COMMANDS = {"talk": "talk"}
sys.exit(cli.main(["talk"]))
"""


def test_a_pipe_that_nobody_reads_is_no_error():
    """surnn list | true"""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", TALKATIVE]
    found = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (found.stderr, found.returncode) == (b"", 141)


def test_an_interrupt_is_silent(monkeypatch, capsys):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "build_parser", interrupt)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == ""


SWALLOWS = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)
except KeyboardInterrupt:
    pass
"""


def test_an_interrupt_is_not_lost_while_torch_is_imported(tmp_path):
    """numpy's import swallows an exception in between, and what comes later is half imported."""
    (tmp_path / "torch.py").write_text(SWALLOWS)
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"sys.path.insert(0, {str(tmp_path)!r}); from surnn.cli.main import main; "
        "sys.exit(main(['train', 'copying']))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (found.returncode, found.stderr) == (130, b"")


def test_help_does_not_wait_for_torch():
    code = (
        "import sys, surnn.cli.main; surnn.cli.main.build_parser(); "
        "sys.exit(bool({'torch', 'tyro', 'rich', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_task_alone_is_enough(monkeypatch):
    """All else has defaults."""
    started = []

    def start_run(name, *_):
        started.append(name)
        return Session(Path(), is_main=False, interrupted=False)

    monkeypatch.setattr("surnn.train.session.start_run", start_run)
    for words in (["train", "copying"], ["reproduce", "copying-1000"]):
        main(words)
    assert started == ["copying", "copying-1000"]
