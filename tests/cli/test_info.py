"""surnn info RUN: what a run is, how far it has come, what can be done next."""

import json
import shutil

import pytest

from helpers.training import TASK, finished_run, train_steps, trainer
from surnn.cli.main import main
from surnn.config import TrainConfig
from surnn.runs.status import best_validation, format_best, training_end


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = finished_run(tmp_path_factory.mktemp("runs") / "run")
    assert main(["eval", str(path), "--batch", "500", "--task.delay", "6"]) == 0
    return path


def told(path, capsys) -> dict[str, str]:
    """By the first word."""
    capsys.readouterr()
    assert main(["info", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    return {line[:12].strip(): line[13:] for line in lines}


def test_a_finished_run(finished, capsys):
    lines = told(finished, capsys)
    weights = sum(p.numel() for p in trainer().model.parameters())
    assert lines["run"] == str(finished)
    assert lines["status"] == "finished at step 4/4: all steps are done"
    assert lines["task"] == "copying: 30 time steps, delay 10"
    assert lines["model"] == f"sugru 1x16: {weights:,} parameters, heads 4, dropout 0.1"
    assert lines["gate"] == "rhythm, rate 0.3"
    assert lines["training"].startswith("batch 8, warmup 2, evaluate_every 4")
    record = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert lines["loss"].startswith(f"{record[3]['loss']:.4g} (step 4, after ")
    assert lines["validation"] == f"best accuracy {record[4]['accuracy']:.4g} (step 4)"
    rate = record[4]["update_rate"][0]
    assert lines["layer 1"].startswith(f"update rate {rate:.1%}  (data ")
    (found,) = map(json.loads, (finished / "evaluations.jsonl").read_text().splitlines())
    value = found["metrics"]["accuracy"]
    assert lines["valid"] == f"accuracy {value:.4g}, best weights (step 4), task.delay 6"
    assert lines["test"] == f"surnn eval {finished} --split test"
    assert lines["resume"] == f"surnn resume {finished} --train.steps 8"


def test_all_of_it_for_programs(finished, capsys):
    capsys.readouterr()
    assert main(["info", str(finished), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["step"], found["best"]["step"]) == ("finished", 4, 4)
    assert found["config"]["task"]["delay"] == 10
    assert found["evaluations"][0]["overrides"] == {"task.delay": 6}
    assert main(["info", "--json"]) == 0
    assert "torch" in json.loads(capsys.readouterr().out)


def test_a_run_from_its_beginning_to_a_crash(tmp_path, capsys):
    path = tmp_path / "run"
    run = trainer(path)
    lines = told(path, capsys)
    assert lines["status"] == "stopped at step 0/12: stopped on request"
    assert lines["validation"] == "none yet"
    assert lines["resume"] == f"surnn resume {path}"
    run.folder.lock()
    train_steps(run, 5)
    run._log()
    lines = told(path, capsys)
    process = (path / "lock").read_text().strip()
    assert lines["status"] == f"running at step 5/12: process {process} is training it"
    assert lines["stop"] == f"kill {process}, which leaves a checkpoint"
    assert "resume" not in lines
    run.save()
    run.close()
    lines = told(path, capsys)
    assert lines["status"] == "stopped at step 5/12: stopped on request"
    assert lines["layer 1"].startswith("update rate ")
    assert "test it" not in lines
    (path / "lock").write_text("123\n")  # as a killed process leaves it
    status = told(path, capsys)["status"]
    assert status == "crashed at step 5/12: process 123 was killed, or ended with an error"


def test_damage_says_how_to_mend(tmp_path, capsys):
    run = trainer(tmp_path / "run", steps=1)
    run.fit()
    run.close()
    (tmp_path / "run" / "last" / "state.pt").write_bytes(b"")
    assert main(["info", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert "damaged at step 1/1" in told
    assert "state.pt does not match; the weights of best are intact" in told
    assert "validation   best" in told
    assert "surnn resume" not in told
    (tmp_path / "run" / "environment.json").write_text("{")
    assert main(["info", str(tmp_path / "run")]) == 2
    assert "environment.json is damaged" in capsys.readouterr().err


ENDED = {
    "step": 50, "evaluated_step": 50, "seconds": 58.0, "startup_seconds": 3.0,
    "evaluation_seconds": 2.0, "evaluations_since_best": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("train", "state", "wanted"),
    [
        ({}, {}, None),
        ({"steps": 50}, {}, ("all steps are done", "--train.steps 100")),
        ({"steps": 50}, {"evaluated_step": 40}, None),
        ({"minutes": 1}, {}, ("1 minutes are over", "--train.minutes 2")),
        ({"minutes": 1}, {"evaluation_seconds": 1.0}, None),
        ({"patience": 3}, {}, ("no improvement in 3 evaluations", "--train.patience 6")),
        ({"patience": 4}, {}, None),
    ],
    ids=str,
)
def test_why_a_run_is_at_its_end(train, state, wanted):
    assert training_end(TrainConfig(**{"steps": 100, **train}), ENDED | state) == wanted


def test_a_record_without_checkpoints(finished, tmp_path, capsys):
    """As those of this repository's results/rows."""
    path = tmp_path / "record"
    shutil.copytree(finished, path, ignore=shutil.ignore_patterns("best", "last", "previous"))
    steps = json.loads((path / "config.json").read_text())["train"]["steps"]
    lines = told(path, capsys)
    gone = "its checkpoints were deleted, its log is left"
    assert lines["status"] == f"record at step {steps}/{steps}: {gone}"
    assert not {"go on", "test it"} & set(lines)
    assert main(["info", str(tmp_path)]) == 0
    assert f"{steps}/{steps}" in " ".join(capsys.readouterr().out.split())
    (path / "metrics.jsonl").unlink()  # nothing was made
    assert told(path, capsys)["status"] == f"stopped at step 0/{steps}: stopped on request"


def test_the_best_validation():
    lines = [
        {"kind": "valid", "step": 1, "accuracy": 0.9, "sequences": 8, "of": 16},
        {"kind": "valid", "step": 2, "accuracy": float("nan")},
        {"kind": "train", "step": 3},
    ]
    assert (
        format_best(best_validation(lines, TASK), TASK)
        == "best accuracy 0.9 on 8 of 16 sequences (step 1)"
    )
    lines += [{"kind": "valid", "step": step, "accuracy": 0.5} for step in (4, 5)]
    assert format_best(best_validation(lines, TASK), TASK) == "best accuracy 0.5 (step 5)"


def test_a_folder_of_runs(tmp_path, capsys):
    """Newest first; exported models are no runs, and a damaged run hides no other."""
    names = ("old", "new", "broken")
    for day, name in enumerate(names, 1):
        run = trainer(tmp_path / "runs" / "copying" / name, steps=4)
        if name == "old":
            run.fit()
        run.close()
        about = tmp_path / "runs" / "copying" / name / "environment.json"
        made = json.loads(about.read_text()) | {"time": f"2026-01-0{day}T00:00:00"}
        about.write_text(json.dumps(made))
    (tmp_path / "runs" / "copying" / "broken" / "config.json").write_text("{}")
    (tmp_path / "runs" / "exported").mkdir()
    (tmp_path / "runs" / "exported" / "config.json").write_text("{}")
    capsys.readouterr()
    for folder in (tmp_path / "runs", tmp_path / "runs" / "copying", tmp_path):
        assert main(["info", str(folder)]) == 0
        rows = capsys.readouterr().out.splitlines()[-4:]
        rows = [row for row in rows if row.strip()]
        assert [row.split()[0].rpartition("/")[2] for row in rows] == ["broken", "new", "old"]
    assert "damaged: the run's configuration" in rows[0]
    assert "copying sugru 1x16 0/4 none yet stopped" in " ".join(rows[1].split())
    assert main(["info", str(tmp_path / "runs"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[2]
    assert (found["task"], found["steps"], found["status"]) == ("copying", "4/4", "finished")
    assert found["validation"].startswith("best accuracy ")
    assert main(["info", str(tmp_path / "runs" / "exported")]) == 2
