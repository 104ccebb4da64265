"""Loggers: what they receive, how they are named, and what is refused."""

import json
import re
import sys

import pytest

from helpers.training import CONFIG, resumed, train_steps, trainer
from surnn.cli.main import main
from surnn.config import TrainConfig
from surnn.train.loggers import Loggers, flatten_scalars
from surnn.train.trainer import Trainer


class Collector:
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.records: list[dict] = []
        self.closed = 0

    def log(self, record: dict) -> None:
        self.records.append(dict(record))
        record["step"] = None  # nobody else sees it

    def close(self) -> None:
        self.closed += 1


MODULE = """
import json

class Lines:
    def __init__(self, run):
        self.file = open(run.folder / "lines.txt", "a")
        print("open", run.step, run.config["task"]["name"], file=self.file)

    def log(self, record):
        print(json.dumps(record), file=self.file)

    def close(self):
        print("close", file=self.file)
        self.file.close()

class Failing(Lines):
    def log(self, record):
        raise OSError("no network")

def function(run):
    raise AssertionError("it is not called")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of the user's own."""
    (tmp_path / "my_loggers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "my_loggers"
    sys.modules.pop("my_loggers", None)


def test_a_logger_receives_the_lines_of_the_log(tmp_path):
    first, second = Collector(), Collector()
    run = trainer(tmp_path / "run", steps=4, log_every=2, evaluate_every=4)
    run = Trainer(run.config, run.folder, loggers=[first, second])
    run.fit()
    assert (first.closed, second.closed) == (0, 0)
    run.close()
    assert (first.closed, second.closed) == (1, 1)
    written = run.folder.metrics()
    assert [line["kind"] for line in written] == ["train", "train", "valid"]
    for logger in (first, second):
        assert logger.records == written
    names = dict(flatten_scalars(written[-1]))
    assert "update_rate/layer1" in names
    assert "step" not in names


def test_a_run_without_a_folder_is_logged():
    logger = Collector()
    run = Trainer(trainer(None, steps=2).config, loggers=[logger])
    run.fit()
    assert {record["kind"] for record in logger.records} == {"train", "valid"}


def test_a_named_class_is_opened_for_each_session(module, tmp_path):
    run = trainer(tmp_path / "run", loggers=(f"{module}:Lines",), steps=4, log_every=1)
    train_steps(run, 2)
    run.save()
    again = resumed(tmp_path / "run", loggers=(f"{module}:Lines",), steps=3, log_every=1)
    again.fit()
    again.close()
    first, *lines, last = (tmp_path / "run" / "lines.txt").read_text().splitlines()
    assert (first, last) == ("open 2 copying", "close")
    assert [json.loads(line) for line in lines] == again.folder.metrics()[-len(lines) :]


def test_a_class_is_closed_before_it_is_opened_again():
    opened = []

    class Counted(Collector):
        def __init__(self, run: str) -> None:
            super().__init__()
            opened.append(self)

    loggers = Loggers(TrainConfig())
    loggers._classes = [Counted]
    loggers.open("first")
    loggers.open("second")
    assert [logger.closed for logger in opened] == [1, 0]
    loggers.close()
    assert [logger.closed for logger in opened] == [1, 1]


def test_an_error_of_a_logger_ends_training_and_closes_it(module, tmp_path):
    run = trainer(tmp_path / "run", loggers=(f"{module}:Failing",), steps=2)
    with pytest.raises(OSError, match="no network"):
        run.fit()
    assert (tmp_path / "run" / "lines.txt").read_text().endswith("close\n")


WRONG = {
    "Lines": "names classes as module:Class, got 'Lines'",
    "no_such_module:Lines": "cannot be imported: No module named .*PYTHONPATH",
    "my_loggers:Other": "cannot be imported: .*no attribute 'Other'",
    "my_loggers:function": "expected a class with the methods log and close",
    "os:system": "expected a class with the methods log and close",
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.usefixtures("module")
def test_a_wrong_name_is_noticed_first(name, tmp_path, capsys):
    out = ["--out", str(tmp_path / "run"), "--train.device", "cpu"]
    assert main(["train", "copying", "--train.loggers", name, *out]) == 2
    assert re.search(WRONG[name], capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


def test_a_run_folder_does_not_name_code_to_import(module, tmp_path, capsys):
    run = trainer(tmp_path / "run", steps=2)
    train_steps(run, 1)
    run.save()
    run.close()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["train"]["loggers"] = [f"{module}:Lines"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert f"to continue: --train.loggers {module}:Lines" in capsys.readouterr().out
    assert module not in sys.modules
    assert not (tmp_path / "run" / "lines.txt").exists()
    assert CONFIG.train.loggers == ()
