"""Errors: a user error is one line, a bug shows its traceback."""

import inspect
import json
import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

import surnn
from helpers.commands import SIZES
from helpers.training import finished_run
from surnn.cli.commands import info
from surnn.cli.main import CommandError, main
from surnn.errors import ConfigError, MissingExtra, RunError, SurnnError, option_errors
from surnn.train.distributed import RemoteFailure
from surnn.train.session import Session
from surnn.train.trainer import NotFinite


@pytest.mark.parametrize("kind", [RunError, ConfigError, CommandError, NotFinite, RemoteFailure])
def test_an_error_that_can_be_mended_is_one_line(kind, monkeypatch, capsys):
    def fail():
        raise kind("no such thing; use another")

    monkeypatch.setattr(info, "installation", fail)
    assert main(["info"]) == 2
    assert capsys.readouterr() == ("", "surnn info: error: no such thing; use another\n")


@pytest.mark.parametrize("kind", [ValueError, TypeError, RuntimeError, OSError, KeyError])
def test_a_bug_shows_its_traceback(kind, monkeypatch):
    def fail():
        raise kind("a bug")

    monkeypatch.setattr(info, "installation", fail)
    with pytest.raises(kind, match="a bug"):
        main(["info"])


NEED_OTHER_PACKAGES = (
    "surnn.hf",
    "surnn.deploy.hf",
    "surnn.integrations.sb3",
    "surnn.integrations.torchrl",
)


def test_all_errors_of_surnn_are_one_family():
    """But for those that a module raises and catches itself, whose names begin with _."""
    others = []
    for module in pkgutil.walk_packages(surnn.__path__, "surnn."):
        if module.name in NEED_OTHER_PACKAGES or module.name.endswith((".__main__", ".libsurnn")):
            continue
        for name, kind in inspect.getmembers(import_module(module.name), inspect.isclass):
            own = kind.__module__ == module.name and issubclass(kind, Exception)
            if own and not name.startswith("_") and not issubclass(kind, SurnnError):
                others.append(f"{module.name}.{name}")
    # InputError is torch's kind of error; NoGates is caught where a page is made.
    assert others == ["surnn.errors.InputError", "surnn.report.gates.NoGates"]


@pytest.mark.parametrize(
    ("flags", "fragment"),
    [
        (["--model.heads", "3"], "heads"),  # a layer's ValueError
        (["--gate.rate", "2"], "rate"),  # a gate's
        (["--task.delay", "0"], "delay"),  # a task's
        (["--train.batch", "6", "--train.accumulate", "4"], "multiple of 4"),  # the trainer's
        (["--train.label-smoothing", "0.1"], "label_smoothing"),
    ],
)
def test_options_that_a_run_cannot_have_are_one_line(flags, fragment, tmp_path, capsys):
    out = tmp_path / "run"
    try:
        status = main(["train", "copying", *SIZES, *flags, "--out", str(out)])
    except SystemExit as end:  # tyro prints the errors of a group of options itself
        status = end.code
    assert status == 2
    message = capsys.readouterr().err
    assert fragment in message
    assert "Traceback" not in message
    assert not out.exists()


def test_a_task_that_refuses_its_options_is_one_line(tmp_path, capsys):
    assert main(["train", "text_file", "--out", str(tmp_path / "run")]) == 2
    assert "--task.path" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["info", "eval"])
def test_a_stored_model_that_cannot_be_built_is_one_line(command, tmp_path, capsys):
    path = finished_run(tmp_path / "run")
    config = json.loads((path / "config.json").read_text())
    config["model"]["heads"] = 3
    (path / "config.json").write_text(json.dumps(config))
    assert main([command, str(path)]) == 2
    assert "3 heads" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["train", "copying"], ["reproduce", "copying-100"]])
def test_a_run_that_a_signal_stopped_exits_with_3(words, monkeypatch):
    stopped = Session(Path(), is_main=True, interrupted=True)
    monkeypatch.setattr("surnn.train.session.start_run", lambda *_: stopped)
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 3


def test_option_errors_convert_these_kinds_only():
    with pytest.raises(ConfigError, match="wrong"), option_errors():
        raise ValueError("wrong")
    with pytest.raises(TypeError), option_errors():
        raise TypeError
    with pytest.raises(ConfigError), option_errors(TypeError, ValueError):
        raise TypeError
    with pytest.raises(RunError), option_errors():
        raise RunError


def test_a_missing_extra_names_the_command():
    error = MissingExtra("rich", "a progress bar")
    assert "pip install 'surnn[train]'" in str(error)
    assert isinstance(error, SurnnError)
