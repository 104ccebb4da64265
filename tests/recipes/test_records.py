"""Records of runs in results/rows."""

import json

import pytest

from helpers.recorded import finished_run, recorded_seeds, unfinished_run
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunError, RunFolder
from surnn.tasks.copying import Copying
from surnn_recipes import RECIPES
from surnn_recipes.results import ResultsError
from surnn_recipes.results.claims import fill_in
from surnn_recipes.results.page import page
from surnn_recipes.results.records import add, read_record, read_records, rebuild, summary


def test_a_row_is_mean_and_deviation_over_its_seeds(tmp_path, rows):
    runs = [finished_run(tmp_path / f"run{seed}", seed, 0.9 + seed / 50) for seed in (0, 1)]
    add("copying-1000", runs, rows)
    record = json.loads((rows / "copying-1000" / "record.json").read_text())
    assert record["test"] == [0.9, 0.92]
    assert record["update_rate"] == pytest.approx(0.2)
    assert (record["seeds"], record["steps"], record["seconds"]) == ([0, 1], [50] * 2, [18] * 2)
    assert record["steps_per_second"] == [10] * 2  # but for the evaluations
    assert record["peak_memory"] == 5 * 10**9
    kept = rows / "copying-1000" / "seed1" / "metrics.jsonl"
    assert kept.read_text() == (runs[1] / "metrics.jsonl").read_text()
    text = page(rows)
    assert (
        "| copying-1000 |  |  | 91.00 ± 1.41 (2 seeds) | 20.0% (data 70.0%, delay 10.0%) |" in text
    )
    assert "| 50 of 3,000 steps, 18 s | 10 | 5.0 GB |" in text
    assert "| copying-1000 | task.delay 7 | 25.00 ± 0.00 (2 seeds) |" in text


def test_speed_is_measured_at_full_size(tmp_path, rows, monkeypatch):
    monkeypatch.setattr(Copying, "easy_batches", 45)
    run = finished_run(tmp_path / "run", 0, 0.5)  # at 10/s, while it is easier
    RunFolder(run).log(kind="train", step=60, loss=1.0, seconds=23.0)
    add("copying-1000", [run], rows)
    record = json.loads((rows / "copying-1000" / "record.json").read_text())
    assert record["steps_per_second"] == [2]


def test_a_seed_that_is_run_again_replaces_its_record(tmp_path, rows):
    add("copying-1000", [finished_run(tmp_path / "before", 0, 0.5)], rows)
    add("copying-1000", [finished_run(tmp_path / "after", 0, 0.75)], rows)
    assert "| 75.00 (one seed) |" in page(rows)


def test_a_row_takes_runs_of_its_own_recipe_only(tmp_path, rows):
    run = finished_run(tmp_path / "run", 0, 0.5)
    with pytest.raises(ResultsError, match=r"copying-1000.*copying-2000"):
        add("copying-2000", [run], rows)
    assert not (rows / "copying-2000").exists()


def test_a_record_holds_the_number_of_other_runs_but_no_paths(tmp_path, rows):
    run = finished_run(tmp_path / "run", 0, 0.5)
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**environment, "data": {"mnist": "/a/b"}}))
    (run / "resumed.jsonl").write_text('{"step": 5, "data": {"mnist": "/a/b"}}\n{"step": 9}\n')
    add("copying-1000", [run], rows, other_runs=7)
    kept = json.loads((rows / "copying-1000" / "seed0" / "environment.json").read_text())
    assert kept == {**environment, "data": {"mnist": "b"}, "other_runs": 7}
    sessions = RunFolder.open(rows / "copying-1000" / "seed0").sessions()
    assert sessions == [{"step": 5, "data": {"mnist": "b"}}, {"step": 9}]
    assert "| 10, with 7 other runs | 5.0 GB |" in page(rows)
    add("copying-1000", [finished_run(tmp_path / "alone", 1, 0.5)], rows)
    add("copying-1000", [run], rows, other_runs=1)
    assert "| 10, with 1 other run | 5.0 GB |" in page(rows)
    add("copying-1000", [finished_run(tmp_path / "less", 2, 0.5)], rows, other_runs=9)
    assert "| 10, with 9 other runs | 5.0 GB |" in page(rows)  # of the one with the most


def test_records_can_be_rebuilt_but_not_added_to_themselves(tmp_path, rows):
    add("copying-1000", [finished_run(tmp_path / "run", 0, 0.5)], rows, other_runs=2)
    record = rows / "copying-1000" / "record.json"
    before = json.loads(record.read_text())
    record.write_text("{}")
    rebuild(rows)
    assert json.loads(record.read_text()) == before
    with pytest.raises(ResultsError, match="again"):
        add("copying-1000", [rows / "copying-1000" / "seed0"], rows)
    assert (rows / "copying-1000" / "seed0" / "metrics.jsonl").exists()


def test_untested_and_differing_runs_are_refused(tmp_path, rows):
    folder = RunFolder.create(tmp_path / "new", config_to_dict(RECIPES["copying-1000"]()))
    with pytest.raises(ResultsError, match=r"surnn eval .*--untested"):
        add("copying-1000", [folder.path], rows)
    with pytest.raises(ResultsError, match="'copying'"):
        add("copying", [folder.path], rows)
    with pytest.raises(RunError, match="nowhere"):
        add("copying-1000", [tmp_path / "nowhere"], rows)
    runs = [finished_run(tmp_path / f"run{seed}", seed, 0.9, steps=50 + seed) for seed in (0, 1)]
    with pytest.raises(ResultsError, match="configuration"):
        add("copying-1000", runs, rows)


def test_a_seed_may_start_with_weights_of_a_run_of_the_same_seed(tmp_path, rows):
    def run(seed, start):
        path = finished_run(tmp_path / f"{seed}-{start}", seed, 0.9)
        config = json.loads((path / "config.json").read_text())
        config["train"]["batch"] = 7
        config["train"]["start"] = f"/a/runs/{start}"
        (path / "config.json").write_text(json.dumps(config))
        environment = json.loads((path / "environment.json").read_text())
        environment["command"] += f" --train.start runs/{start} --train.batch 7"
        (path / "environment.json").write_text(json.dumps(environment))
        return path

    runs = [run(seed, f"copying-2000-seed{seed}") for seed in (0, 1)]
    add("copying-1000", runs, rows)
    record = json.loads((rows / "copying-1000" / "record.json").read_text())
    assert record["command"].split().count("--train.start") == 1
    assert "--train.start copying-2000-seed0 " in record["command"]
    files = [path for path in rows.rglob("*") if path.is_file()]
    assert not [path for path in files if "runs/" in path.read_text()]
    with pytest.raises(ResultsError, match="configuration"):
        add("copying-1000", [run(2, "copying-2000-seed1")], rows)


def test_an_untested_race_is_recorded_as_not_tested(tmp_path, rows):
    folder = unfinished_run(tmp_path / "raced", "psmnist", steps=50)
    folder.log(kind="train", step=20, loss=1.0, seconds=3.0)
    folder.log(kind="valid", step=20, accuracy=0.9)
    add("psmnist", [folder.path], rows, untested=True)
    assert "| psmnist | Table 5, suGRU | 98.86 | not tested |  |" in page(rows)
    records = read_records(rows)
    with pytest.raises(ResultsError, match="psmnist, which has not been tested"):
        fill_in("{psmnist}", records)
    run = finished_run(tmp_path / "run1", 1, 0.9, row="psmnist")
    with pytest.raises(ResultsError, match="some of its seeds"):
        add("psmnist", [run], rows)


def test_seeds_recorded_before_an_option_existed_have_one_configuration(tmp_path, rows):
    runs = [finished_run(tmp_path / f"run{seed}", seed, 0.9) for seed in (0, 1)]
    config = json.loads((runs[0] / "config.json").read_text())
    del config["train"]["weight_ema"]
    (runs[0] / "config.json").write_text(json.dumps(config))
    environment = json.loads((runs[1] / "environment.json").read_text())
    (runs[1] / "environment.json").write_text(json.dumps(environment | {"commit": "later"}))
    add("copying-1000", runs, rows)
    record = json.loads((rows / "copying-1000" / "record.json").read_text())
    assert record["seeds"] == [0, 1]
    assert record["commits"][1:] == ["later"]


def test_a_run_resumed_with_other_options_shows_its_first_ones(tmp_path, rows):
    run = finished_run(tmp_path / "run", 0, 0.9)
    environment = json.loads((run / "environment.json").read_text())
    environment["command"] += " --train.minutes 1 --train.evaluate-every 100"
    (run / "environment.json").write_text(json.dumps(environment))
    for before, after in ((1, 2), (2, 2.5)):
        folder = RunFolder.open(run)
        config = json.loads((run / "config.json").read_text())
        config["train"] |= {"minutes": after, "evaluate_every": 100}
        (run / "config.json").write_text(json.dumps(config))
        with (folder.path / "resumed.jsonl").open("a") as lines:
            lines.write(json.dumps({"changes": {"train.minutes": [before, after]}}) + "\n")
    add("copying-1000", [run], rows)
    text = page(rows)
    assert "50 of 3,000 steps, 18 s (first with train.minutes 1) |" in text
    assert "--train.minutes 2.5" in text
    assert "--train.minutes 1" not in text


def test_the_last_test_counts(tmp_path, rows):
    run = finished_run(tmp_path / "run", 0, 0.5)
    what = {"split": "test", "checkpoint": "best", "step": 60, "overrides": {}}
    RunFolder.open(run).log_evaluation(**what, metrics={"accuracy": 0.75})
    RunFolder.open(run).log_evaluation(
        **(what | {"checkpoint": "last"}), metrics={"accuracy": 0.25}
    )
    add("copying-1000", [run], rows)
    assert "| 75.00 (one seed) |" in page(rows)


def recorded_rows():
    return sorted({seed.parent for seed in recorded_seeds()})


@pytest.mark.parametrize("row", recorded_rows(), ids=lambda row: row.name)
def test_records_equal_the_summaries_of_their_runs(row):
    made = summary(RECIPES[row.name], sorted(row.glob("seed*")))
    kept = read_record(row / "record.json")
    assert json.loads(json.dumps(made)) == kept, "python -m surnn_recipes.results again"
