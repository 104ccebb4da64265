"""What the command line shows: tables, help, progress, pipes."""

import os
import subprocess
import sys
from dataclasses import fields

import pytest

from surnn import cli
from surnn.cli import main
from surnn.commands import lists, show, tables
from surnn.commands.configure import override
from surnn.config import GateConfig, ModelConfig, TrainConfig
from surnn.recipes import RECIPES
from surnn.tasks import TASKS


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
    texts = [row[-1] for row in lists.TABLES[what]()[1]]
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


@pytest.mark.parametrize("kind", [GateConfig, ModelConfig, TrainConfig])
def test_every_field_has_a_flag_with_help(kind, capsys):
    group = kind.__name__.removesuffix("Config").lower()
    with pytest.raises(SystemExit):
        override("surnn", group, ["--help"], kind())
    text = " ".join(capsys.readouterr().out.replace("│", "").split())
    flags = [f"--{group}.{f.name.replace('_', '-')}" for f in fields(kind)]
    for flag, following in zip(flags, [*flags[1:], "╰"], strict=True):
        told = text.split(f"{flag}", 1)[1].split(following, 1)[0].split("(default")[0]
        assert len(told.split()) > 2, f"{flag} has no help: {told!r}"


TALKATIVE = """
import sys, types, surnn.cli as cli
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
        f"sys.path.insert(0, {str(tmp_path)!r}); from surnn.cli import main; "
        "sys.exit(main(['train', 'copying']))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (found.returncode, found.stderr) == (130, b"")


def test_help_does_not_wait_for_torch():
    code = (
        "import sys, surnn.cli; surnn.cli.build_parser(); "
        "sys.exit(bool({'torch', 'tyro', 'rich', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_time_left_heeds_the_budget(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(show.time, "perf_counter", lambda: now[0])
    free = show.Pace(TrainConfig(steps=1000), 0, 0.0)
    hurried = show.Pace(TrainConfig(steps=1000, minutes=10), 0, 300.0)
    now[0] = 10.0
    assert free.told(10) == "1/s, 16 min 30 s left"
    assert hurried.told(10) == "1/s, 4 min 50 s left"


def test_plain_lines_come_now_and_then(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(show.time, "perf_counter", lambda: now[0])
    lines = show.PlainReporter(show.Pace(TrainConfig(steps=100), 0, 0.0), soft=False)
    for step in range(10, 101, 10):
        now[0] += 0.5
        lines.update(step, {"loss": 1.0, "update_rate": [0.1, 0.3], "seconds": 1.0})
    lines.update(100, {"valid accuracy": 0.5})
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "update 10/100  loss 1  updates 20.0%  20/s, 4 s left"
    assert [line.split()[1] for line in told] == [
        "10/100",
        "50/100",
        "90/100",
        "100/100",
        "100/100",
    ]
    assert told[-1] == "update 100/100  valid accuracy 0.5"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (float("inf"), "?")],
)
def test_durations(seconds, text):
    assert show.duration(seconds) == text


def test_a_task_alone_is_enough(monkeypatch):
    """All else has defaults."""
    started = []
    monkeypatch.setattr("surnn.commands.train.start", lambda *given: started.append(given))
    for words in (["train", "copying"], ["reproduce", "copying-1000"]):
        main(words)
    assert [name for name, *_ in started] == ["copying", "copying-1000"]
