"""RESULTS.md, and the tables in the README and in docs/."""

import json
import re
import shutil

import pytest

from helpers.paths import ROOT
from helpers.recorded import finished_run, unfinished_run
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunFolder
from surnn_recipes import RECIPES
from surnn_recipes.results import ResultsError
from surnn_recipes.results.blocks import BLOCKS, documents, fill_blocks
from surnn_recipes.results.claims import fill_in, typed_numbers
from surnn_recipes.results.figures import RACES
from surnn_recipes.results.headlines import headline_table
from surnn_recipes.results.page import page
from surnn_recipes.results.records import add, read_records
from surnn_recipes.results.tables import race, short


def test_rows_that_were_not_run_have_a_reason(rows):
    text = page(rows)
    assert "Not run (too long): copying-5000.\n" in text
    assert "Not run (no GPU time yet): lra-listops (paper 44.93), " in text
    missing = re.findall(r"^Not run \(.*?\): (.*)\.$", text, re.MULTILINE)
    names = [name.partition(" ")[0] for line in missing for name in line.split(", ")]
    assert sorted(names) == sorted(RECIPES)


def test_a_number_that_reaches_the_papers_is_bold(tmp_path, rows):
    for number, shown in (
        (0.85, "| 85.31 | 85.00 (one seed) |"),
        (0.86, "| **86.00 (one seed)** |"),
    ):
        run = finished_run(tmp_path / f"run{number}", 0, number, row="copying-2000")
        add("copying-2000", [run], rows)
        assert shown in page(rows)


def test_parts_of_a_metric_and_other_tests_share_a_table(tmp_path, rows):
    folder = unfinished_run(tmp_path / "run", "mackey-glass-gru")
    folder.log(kind="train", step=1, loss=1.0, seconds=1.0)
    what = {"split": "test", "checkpoint": "best", "step": 1}
    for overrides, error in (({}, 0.5), ({"task.control": "shift"}, 0.25)):
        metrics = {"mse": error, "mse at 10": error / 2, "mse at 20": 3 * error / 2, "nrmse": 9.0}
        folder.log_evaluation(**what, overrides=overrides, metrics=metrics)
    add("mackey-glass-gru", [folder.path], rows)
    text = page(rows)
    assert "| the same weights | tested with | mse | mse at 10 | mse at 20 |" in text
    assert "| mackey-glass-gru |  | 0.5000 (one seed) | 0.2500 | 0.7500 |" in text
    assert "| mackey-glass-gru | task.control shift | 0.2500 (one seed) | 0.1250 | 0.3750 |" in text


def test_commands_are_shown_without_folders_and_seeds():
    command = (
        "surnn reproduce a --seeds 0,1 --data /x --train.steps 6 --out runs/a --train.seed 0 "
        "--no-test"
    )
    assert short(command) == "surnn reproduce a --train.steps 6"


def test_claims_take_their_numbers_from_records():
    records = {
        "a-1": {"metric": "accuracy", "test": [0.5, 0.6], "update_rate": 0.123,
                "update_rate_by_kind": {"data": 0.5}, "steps_per_second": [9.0, 12.0],
                "steps": [900, 1000],
                "other_tests": [{"with": {"task.body": 4096}, "test": [0.3, 0.5]}]},
        "b.2": {"metric": "mse", "test": [0.0123], "update_rate": None, "update_rate_by_kind": {},
                "other_tests": []},
    }  # fmt: skip
    found = fill_in("{a-1} at {a-1:rate}, {a-1:data} of data, {a-1:speed}/s, {b.2}", records)
    assert found == "55.00 % at 12.3 %, 50.0 % of data, 10.5/s, 0.0123"
    assert fill_in("{a-1:task.body 4096}", records) == "40.00 %"
    assert fill_in("{a-1:steps}", records) == "900 to 1,000"
    for text, said in (
        ("{c}", "mentions c,"),
        ("{a-1:size}", "'size' of a-1"),
        ("{a-1:task.body 8}", "'task.body 8' of a-1"),
        ("{b.2:rate}", "'rate' of b.2"),
    ):
        with pytest.raises(ResultsError, match=said):
            fill_in(text, records)


def test_claims_know_seeds_parts_layers_validations_and_the_papers_numbers(tmp_path, rows):
    for seed, accuracy in enumerate((0.5, 0.6)):
        run = finished_run(tmp_path / f"run{seed}", seed, accuracy, row="copying-2000")
        add("copying-2000", [run], rows)
    records = read_records(rows)
    for what, shown in (
        ("each", "50.00, 60.00 %"),
        ("task.delay 7", "25.00 %"),
        ("each task.delay 7", "25.00, 25.00 %"),
        ("spread", "55.00 ± 7.07 %"),
        ("spread task.delay 7", "25.00 ± 0.00 %"),
        ("valid 20", "55.00 %"),
        ("layer 1", "10.0 %"),
        ("layer 2 data", "60.0 %"),
        ("training", "2 seeds, 2 %"),
        ("minutes", "0.3"),
        ("paper", "85.31 %"),
    ):
        assert fill_in(f"{{copying-2000:{what}}}", records, rows) == shown
    for what in ("valid 21", "layer 3", "layer 2 answer", "each task.delay 8"):
        with pytest.raises(ResultsError, match=f"{what!r} of copying-2000"):
            fill_in(f"{{copying-2000:{what}}}", records, rows)
    with pytest.raises(ResultsError, match="spread of copying-2000, which has one seed"):
        fill_in("{copying-2000:spread}", {"copying-2000": {**records["copying-2000"], "test": [1]}})
    records["copying-2000"]["parts"] = {"typed accuracy": 0.25}
    assert fill_in("{copying-2000:typed accuracy}", records) == "25.00 %"
    assert fill_in("{ratio}", records, ratio="0.16") == "0.16"


def test_numbers_that_no_record_has_name_their_source():
    assert fill_in("S4 has {literature=87.26 %}", {}) == "S4 has 87.26 %"
    with pytest.raises(ResultsError, match="from 'memory'; known sources are paper"):
        fill_in("{memory=87.26 %}", {})


def test_no_number_of_the_claims_is_typed():
    text = "{a-1} of 5,000, {paper=86.37 %}, 12.5 bits, 7 % and 8%"
    assert typed_numbers(text) == ["12.5", "7 %", "8%"]
    assert not typed_numbers((ROOT / "results" / "claims.md").read_text())


def test_no_number_of_the_readme_is_typed():
    text = fill_blocks((ROOT / "README.md").read_text(), ROOT / "results")
    prose = re.sub(r"<!-- results: .*?<!-- /results -->|```.*?```", "", text, flags=re.DOTALL)
    versions = {"3.11", "2.0"}  # of Python, of the licence
    assert set(typed_numbers(prose)) == versions


def test_withdrawn_tests_are_named_but_not_shown(tmp_path, rows):
    run = finished_run(tmp_path / "run", 0, 0.9, row="copying-2000")
    (rows / "copying-2000").mkdir()
    test = {"with": {"task.delay": 7}, "before": "9999", "reason": "it was wrong"}
    path = rows / "copying-2000" / "withdrawn.json"
    path.write_text(json.dumps([test]))
    add("copying-2000", [run], rows)
    text = page(rows)
    assert "Withdrawn (it was wrong): copying-2000 with task.delay 7.\n" in text
    assert "25.00" not in text
    path.write_text(json.dumps([{**test, "before": "2000"}]))  # the test was repeated since
    add("copying-2000", [run], rows)
    assert "| copying-2000 | task.delay 7 | 25.00 (one seed) |" in page(rows)


def test_variants_of_a_metric_are_shown_beside_it(tmp_path, rows):
    folder = unfinished_run(tmp_path / "run", "ecg-gru")
    folder.log(kind="train", step=1, loss=1.0, seconds=1.0)
    metrics = {"beat F1": 0.9, "typed beat F1": 0.8, "loss": 1.0}
    folder.log_evaluation(split="test", checkpoint="best", step=1, overrides={}, metrics=metrics)
    add("ecg-gru", [folder.path], rows)
    assert "| ecg-gru |  | 90.00 (one seed) | 80.00 |" in page(rows)


def test_soft_gates_have_no_update_rate(tmp_path, rows):
    run = finished_run(tmp_path / "run", 0, 0.7, row="lra-text-sigmoid")
    add("lra-text-sigmoid", [run], rows)
    lines = page(rows).splitlines()
    (line,) = (line for line in lines if line.startswith("| lra-text-sigmoid | Table 2"))
    assert "| every time step, by 0.20 on average |" in line
    with pytest.raises(ResultsError, match="'rate' of lra-text-sigmoid"):
        fill_in("{lra-text-sigmoid:rate}", read_records(rows))


def test_benchmarks_are_on_the_page(rows):
    text = page(rows)
    times = json.loads((ROOT / "results" / "gpu_bench" / "result.json").read_text())["records"]
    longest = next(r for r in times if r["case"] == "length-4096" and r["mode"] == "graph")
    shown = next(row for row in text.splitlines() if row.startswith("| cuDNN nn.GRU, graph |"))
    assert float(shown.split("|")[-2]) == pytest.approx(longest["fwd_bwd_ms"], rel=0.01)
    parts = json.loads((ROOT / "results" / "engine_bench" / "result.json").read_text())["parts"]
    assert f"| reset | {1e6 * parts['engine, dense']['reset']:,.0f} | " in text


def test_races_show_the_time_to_a_target(rows):
    for name, found in (("psmnist", (0.8, 0.96)), ("psmnist-gru", (0.5, 0.92))):
        seed = RunFolder.create(rows / name / "seed0", config_to_dict(RECIPES[name]()))
        for step, accuracy in zip((10, 20), found, strict=True):
            seed.log(kind="train", step=step, seconds=2.0 * step, loss=1.0)
            seed.log(kind="valid", step=step, accuracy=accuracy)
    records = {
        "psmnist": {"other_runs": 0, "seconds": [45.2]},
        "psmnist-gru": {"other_runs": 0, "seconds": [40.1, 99.0]},
    }
    assert race(rows, records, ("psmnist", "psmnist-gru"), (0.75, 0.9, 0.95)) == [
        "",
        "| seconds to a validation accuracy of | 75.00 | 90.00 | 95.00 |",
        "|---|---|---|---|",
        "| psmnist | 20 | 40 | 40 |",
        "| psmnist-gru | 40 | 40 | not in 40 |",
    ]
    other = rows / "psmnist-gru" / "seed1"
    shutil.copytree(rows / "psmnist-gru" / "seed0", other)
    RunFolder.open(other).log(kind="train", step=30, seconds=50.0, loss=1.0)
    RunFolder.open(other).log(kind="valid", step=30, accuracy=0.96)
    assert race(rows, records, ("psmnist-gru", "psmnist"), (0.9, 0.95, 0.99))[3] == (
        "| psmnist-gru | 40, 40 | 50, – | not in 50 |"
    )
    assert race(rows, records, ("psmnist", "psmnist-lstm"), (0.75,)) == []
    records["psmnist-gru"]["other_runs"] = 3
    assert race(rows, records, ("psmnist", "psmnist-gru"), (0.75,)) == []
    assert {name for names, _ in RACES for name in names} <= set(RECIPES)


def test_headlines_come_from_records(tmp_path):
    made = headline_table(ROOT / "results" / "rows")
    speech = next(line for line in made if line.startswith("| spoken digits"))
    assert speech.count("**") == 2  # of the better one
    assert "| **99.56" in speech
    image = next(line for line in made if line.startswith("| Long Range Arena: Image"))
    assert image.endswith("| 86.37 |")  # the printed number
    assert any(line.startswith("| ... Image, sigmoid") for line in made)
    text = next(line for line in made if line.startswith("| ... Text"))
    assert "**" not in text  # nothing to be better than
    assert text.endswith("|  |  | 64.42 |")  # of clocks alone
    with pytest.raises(ResultsError, match="psmnist-stepwise"):
        headline_table(tmp_path)


def test_tables_of_documents_come_from_records():
    results = ROOT / "results"
    text = "a\n<!-- results: engine -->\nold\n<!-- /results -->\nb\n"
    made = fill_blocks(text, results)
    assert made.startswith("a\n<!-- results: engine -->\n| 2 x 256 GRU")
    assert made.endswith("|\n<!-- /results -->\nb\n")
    assert "old" not in made
    assert fill_blocks(made, results) == made
    with pytest.raises(ResultsError, match="no table 'wrong'"):
        fill_blocks(text.replace("engine", "wrong"), results)
    shown = set()
    for path in documents(ROOT):
        document = path.read_text()
        assert fill_blocks(document, results) == document, "python -m surnn_recipes.results write"
        shown |= set(re.findall("<!-- results: (.*) -->", document))
    assert shown == set(BLOCKS)


def test_the_page_is_up_to_date():
    assert (ROOT / "RESULTS.md").read_text() == page(ROOT / "results" / "rows"), (
        "python -m surnn_recipes.results write"
    )
