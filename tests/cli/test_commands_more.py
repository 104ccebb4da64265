"""What the command line says to a newcomer: where to go on from a mistake, what to expect."""

import gc
import json

import pytest

from helpers.training import finished_run
from surnn.cli.commands import info
from surnn.cli.commands import list as list_command
from surnn.cli.main import main
from surnn.deploy import engine_library


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of 4 steps."""
    return finished_run(tmp_path_factory.mktemp("runs") / "run")


def refused(capsys, *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


def test_a_finished_run_takes_no_options_without_more_updates(run, capsys):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    told = refused(capsys, "resume", str(run), "--train.lr", "1e-4")
    assert "finished at step 4 (all steps are done)" in told
    assert "add --train.steps 8" in told
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("flag", ["--model.width=64", "--gate.rate=0.1", "--task.delay=5"])
def test_resume_does_not_change_what_was_learned(run, capsys, flag):
    told = refused(capsys, "resume", str(run), flag)
    assert f"{flag.split('=')[0]}: the model, gate and task of a run cannot change" in told
    assert "start a new run: surnn train" in told


def test_generate_says_what_it_takes(tmp_path, capsys):
    (tmp_path / "README.md").write_text("# no model " * 99)
    told = refused(capsys, "generate", str(tmp_path / "README.md"))
    assert "takes a run's folder, or a file that surnn export RUN --to engine wrote" in told


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ([], "train a model on a task"),
        (["data"], "download and verify"),
        (["data", "get"], "a folder to search first"),
        (["plot"], "surnn plot gate-raster runs/"),
    ],
    ids=str,
)
def test_a_command_without_its_arguments_shows_its_help(command, told, capsys):
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert "error: the following arguments are required" in shown.splitlines()[-1]


def test_tables_are_for_people():
    for table in ("tasks", "cells", "gates"):
        for name, *_, sentence in list_command.TABLES[table]()[1]:
            assert ":class:" not in sentence, name
    about = {name: sentence for name, _, sentence in list_command.cells()[1]}
    assert all("integrate-and-fire neuron" in about[name] for name in ("lif", "alif"))


def test_info_tells_of_the_engine_and_what_is_optional(capsys, monkeypatch, tmp_path):
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"onnxruntime", "tokenizers", "transformers"} < set(found)
    assert found["C engine"] == "yes"
    gc.collect()  # engines that other tests left free themselves by the library
    engine_library.library.cache_clear()
    monkeypatch.setattr(engine_library, "LIBRARY", tmp_path / "libsurnn.so")
    assert info.c_engine().startswith("no: the engine was not built")
    (tmp_path / "libsurnn.so").write_bytes(b"of another machine")
    assert info.c_engine().startswith("no: ")


def first_lines(capsys, width: str, *more: str) -> str:
    """What ``surnn train`` says before its first update."""
    sizes = ["--task.delay", "5", "--model.layers", "1", "--model.width", width]
    brief = ["--train.steps", "2", "--train.batch", "2", "--train.evaluation-batches", "1"]
    capsys.readouterr()
    assert main(["train", "copying", *sizes, *brief, *more]) == 0
    return capsys.readouterr().out.partition("update 2/2")[0]


def test_train_says_what_may_surprise(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    told = first_lines(capsys, "33", "--out", "odd")
    assert "chance level: accuracy 0.125" in told
    assert "a state of 33 units is one dense head, because it is not a multiple of 16" in told
    assert "rises over 100 steps, and the run ends after 2" in told
    usual = ["--model.heads", "1", "--train.warmup", "2", "--out"]
    for width, more in (("33", usual), ("32", usual[2:]), ("16", usual[2:]), ("5", usual[2:])):
        told = first_lines(capsys, width, *more, f"{width}-{len(more)}")
        assert "dense head" not in told
        assert "rises over" not in told
