"""The command line from end to end, on tiny runs."""

import json
import subprocess
import sys

import pytest

from surnn.cli import main

TINY = [
    *("--task.delay", "5", "--model.width", "16", "--model.heads", "2", "--model.layers", "1"),
    *("--train.steps", "4", "--train.batch", "4", "--train.log-every", "2"),
    *("--train.evaluate-every", "4", "--train.evaluation-batches", "1", "--train.device", "cpu"),
]


def train(path, *more: str) -> int:
    return main(["train", "copying", *TINY, "--out", str(path), *more])


def test_train_eval_resume_info(tmp_path, capsys):
    run = tmp_path / "run"
    assert train(run) == 0
    assert "surnn eval" in capsys.readouterr().out
    assert main(["eval", str(run), "--split", "test", "--batch", "500", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["step"] == 4
    assert 0 <= found["accuracy"] <= 1
    assert main(["resume", str(run), "--steps", "6"]) == 0
    assert "update 6/6" in capsys.readouterr().out
    assert main(["info", str(run)]) == 0
    assert '"delay": 5' in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_a_baseline_trains_in_the_same_way(tmp_path, kind):
    assert train(tmp_path / "run", "--model.kind", kind) == 0


def test_what_fails_before_training_leaves_no_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    monkeypatch.delenv("SURNN_DATA", raising=False)
    out = tmp_path / "run"
    arguments = ["train", "psmnist", "--data", str(tmp_path), "--out", str(out)]
    assert main(arguments) == 2
    assert "surnn data get mnist" in capsys.readouterr().err
    assert not out.exists()


def test_a_longer_run_is_on_record(tmp_path):
    assert train(tmp_path / "run") == 0
    assert main(["resume", str(tmp_path / "run"), "--steps", "6"]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["train"]["steps"] == 6


def test_a_run_is_not_overwritten(tmp_path, capsys):
    assert train(tmp_path / "run") == 0
    assert train(tmp_path / "run") == 2
    assert "surnn resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "copyin"], "did you mean 'copying'?"),
        (["train", "chess"], "see surnn list tasks"),
        (["eval", "nowhere"], "is not a run"),
        (["resume", "nowhere"], "is not a run"),
        (["reproduce", "psmist"], "did you mean 'psmnist'?"),
        (["reproduce", "psmnist", "--budget", "..s"], "is no time"),
        (["train", "copying", "--train.batch", "3", "--train.accumulate", "2"], "a multiple of 2"),
    ],
)
def test_errors_say_how_to_mend(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_unknown_flags_get_a_suggestion(capsys):
    with pytest.raises(SystemExit):
        main(["train", "copying", "--task.delya", "3"])
    assert "--task.delay" in capsys.readouterr().err


def test_values_that_make_no_sense_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["train", "copying", "--train.log-every", "0"])
    assert "log_every must be at least 1" in capsys.readouterr().err


def test_lists(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("copying", "rhythm", "sugru"))


def test_help_does_not_wait_for_torch():
    code = "import sys, surnn.cli; surnn.cli.build_parser(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
