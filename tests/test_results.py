"""RESULTS.md is made from records, and is up to date."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from surnn.commands.reproduce import configure, with_seed
from surnn.recipes import RECIPES
from surnn.runs import RunFolder, config_from_dict, config_to_dict
from surnn.tasks.copying import Copying

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import results  # noqa: E402
from results_figures import FIGURES, RACES  # noqa: E402
from results_page import MARKS, filled, race, records_of, short, with_headlines  # noqa: E402


def begun_run(path, row, seed=0, flags="", **train):
    """A run as ``surnn reproduce`` begins it."""
    config = config_to_dict(RECIPES[row]())
    config["train"] |= {"seed": seed, **train}
    folder = RunFolder.create(path, config)
    how = {"device": "a GPU", "command": f"surnn reproduce {row}{flags}"}
    (path / "environment.json").write_text(json.dumps({**folder.environment(), **how}))
    return folder


def finished_run(path, seed, accuracy, steps=50, row="copying-1000"):
    folder = begun_run(path, row, seed, steps=steps)
    for step, seconds in ((10, 2.0), (20, 3.0), (30, 10.0), (40, 17.0), (50, 18.0)):
        folder.log(kind="train", step=step, loss=1.0, seconds=seconds, peak_memory=step * 10**8)
        if step in (20, 30):
            folder.log(kind="valid", step=step, accuracy=accuracy)
    by_kind = [{"data": 0.8, "delay": 0.1}, {"data": 0.6}]
    metrics = {"accuracy": accuracy, "update_rate": [0.1, 0.3], "update_rate_by_kind": by_kind}
    what = {"split": "test", "checkpoint": "best", "step": 50}
    folder.evaluated(**what, overrides={"task.delay": 7}, metrics={"accuracy": 0.25})
    folder.evaluated(**what, overrides={}, metrics=metrics)
    return path


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "not_run.json").write_text('{"copying-5000": "too long"}')
    return tmp_path / "rows"


def test_a_row_is_mean_and_deviation_over_its_seeds(tmp_path, rows):
    runs = [finished_run(tmp_path / f"run{seed}", seed, 0.9 + seed / 50) for seed in (0, 1)]
    results.add("copying-1000", runs, rows)
    record = json.loads((rows / "copying-1000" / "record.json").read_text())
    assert record["test"] == [0.9, 0.92]
    assert record["update_rate"] == pytest.approx(0.2)
    assert (record["seeds"], record["updates"], record["seconds"]) == ([0, 1], [50] * 2, [18] * 2)
    assert record["updates_per_second"] == [10] * 2  # but for the evaluations
    assert record["peak_memory"] == 5 * 10**9
    kept = rows / "copying-1000" / "seed1" / "metrics.jsonl"
    assert kept.read_text() == (runs[1] / "metrics.jsonl").read_text()
    page = results.page(rows)
    assert (
        "| copying-1000 |  |  | 91.00 ± 1.41 (2 seeds) | 20.0% of steps (data 70.0%, delay 10.0%) |"
        in page
    )
    assert "| 50 of 3,000 updates, 18 s | 10 | 5.0 GB |" in page
    assert "| copying-1000 | task.delay 7 | 25.00 ± 0.00 (2 seeds) |" in page


def test_the_pace_is_that_of_full_size(tmp_path, rows, monkeypatch):
    monkeypatch.setattr(Copying, "easy_batches", 45)
    run = finished_run(tmp_path / "run", 0, 0.5)  # at 10/s, while it is easier
    RunFolder(run).log(kind="train", step=60, loss=1.0, seconds=23.0)
    results.add("copying-1000", [run], rows)
    record = json.loads((rows / "copying-1000" / "record.json").read_text())
    assert record["updates_per_second"] == [2]


def test_a_seed_that_is_run_again_takes_its_place(tmp_path, rows):
    results.add("copying-1000", [finished_run(tmp_path / "before", 0, 0.5)], rows)
    results.add("copying-1000", [finished_run(tmp_path / "after", 0, 0.75)], rows)
    assert "| 75.00 (one seed) |" in results.page(rows)


def test_what_was_not_run_says_so_and_why(rows):
    page = results.page(rows)
    assert "Not run (too long): copying-5000.\n" in page
    assert "Not run (no GPU time yet): lra-listops (paper 44.93), " in page
    missing = re.findall(r"^Not run \(.*?\): (.*)\.$", page, re.MULTILINE)
    names = [name.partition(" ")[0] for line in missing for name in line.split(", ")]
    assert sorted(names) == sorted(RECIPES)


def test_a_number_that_reaches_the_papers_is_bold(tmp_path, rows):
    for number, shown in (
        (0.85, "| 85.31 | 85.00 (one seed) |"),
        (0.86, "| **86.00 (one seed)** |"),
    ):
        run = finished_run(tmp_path / f"run{number}", 0, number, row="copying-2000")
        results.add("copying-2000", [run], rows)
        assert shown in results.page(rows)


def test_parts_of_a_metric_and_other_tests_share_a_table(tmp_path, rows):
    folder = begun_run(tmp_path / "run", "mackey-glass-gru")
    folder.log(kind="train", step=1, loss=1.0, seconds=1.0)
    what = {"split": "test", "checkpoint": "best", "step": 1}
    for overrides, error in (({}, 0.5), ({"task.control": "shift"}, 0.25)):
        metrics = {"mse": error, "mse at 10": error / 2, "mse at 20": 3 * error / 2, "nrmse": 9.0}
        folder.evaluated(**what, overrides=overrides, metrics=metrics)
    results.add("mackey-glass-gru", [folder.path], rows)
    page = results.page(rows)
    assert "| the same weights | tested with | mse | mse at 10 | mse at 20 |" in page
    assert "| mackey-glass-gru |  | 0.5000 (one seed) | 0.2500 | 0.7500 |" in page
    assert "| mackey-glass-gru | task.control shift | 0.2500 (one seed) | 0.1250 | 0.3750 |" in page


def test_commands_are_shown_without_folders_and_seeds():
    command = (
        "surnn reproduce a --seeds 0,1 --data /x --train.steps 6 --out runs/a --train.seed 0 "
        "--no-test"
    )
    assert short(command) == "surnn reproduce a --train.steps 6"


def test_commands_spell_out_what_a_recipe_no_longer_is(tmp_path, monkeypatch):
    name = "copying-variable-input"
    recipe, config = RECIPES[name], RECIPES[name]()
    folder = begun_run(tmp_path / "run", name, 3, " --train.lr 0.004")
    now = replace(config.train, minutes=5.0, anneal=None, cuda_graph=False)
    changed = replace(config, train=now, model=replace(config.model, dropout=0.25))
    monkeypatch.setitem(RECIPES, name, replace(recipe, make=lambda: changed))
    told = results.command(folder.path)
    assert told == (
        f"surnn reproduce {name} --train.lr 0.004 --model.dropout 0.0 --train.anneal 0.5 0.75 "
        "--train.minutes None --train.cuda-graph"
    )
    assert results.replay(shlex.split(told), "a GPU", 3) == with_seed(config, 3)
    short = begun_run(tmp_path / "short", name, 3, " --budget 10min", minutes=9.0)
    assert results.command(short.path) == f"surnn reproduce {name} --budget 10min"
    monkeypatch.setitem(RECIPES, name, RECIPES["psmnist"])
    with pytest.raises(SystemExit, match="is of copying, its recipe of psmnist by now"):
        results.command(folder.path)


def test_a_row_is_of_runs_that_its_recipe_made(tmp_path, rows):
    run = finished_run(tmp_path / "run", 0, 0.5)
    with pytest.raises(
        SystemExit, match="made by 'surnn reproduce copying-1000', not of copying-2"
    ):
        results.add("copying-2000", [run], rows)
    assert not (rows / "copying-2000").exists()


def test_claims_take_their_numbers_from_records():
    records = {
        "a-1": {"metric": "accuracy", "test": [0.5, 0.6], "update_rate": 0.123,
                "update_rate_by_kind": {"data": 0.5}, "updates_per_second": [9.0, 12.0],
                "updates": [900, 1000],
                "elsewhere": [{"with": {"task.body": 4096}, "test": [0.3, 0.5]}]},
        "b.2": {"metric": "mse", "test": [0.0123], "update_rate": None, "update_rate_by_kind": {},
                "elsewhere": []},
    }  # fmt: skip
    found = filled("{a-1} at {a-1:rate}, {a-1:data} of data, {a-1:speed}/s, {b.2}", records)
    assert found == "55.00 % at 12.3 %, 50.0 % of data, 10.5/s, 0.0123"
    assert filled("{a-1:task.body 4096}", records) == "40.00 %"
    assert filled("{a-1:updates}", records) == "900 to 1,000"
    for text, said in (
        ("{c}", "speaks of c, which has not been run"),
        ("{a-1:size}", "asks for 'size' of a-1, which has no such"),
        ("{a-1:task.body 8}", "asks for 'task.body 8' of a-1, which has no such"),
        ("{b.2:rate}", "asks for 'rate' of b.2, which has no such"),
    ):
        with pytest.raises(SystemExit, match=said):
            filled(text, records)


def test_figures_are_of_recipes_and_are_drawn_when_all_have_been_run(tmp_path, rows, capsys):
    assert {row for figure in FIGURES for row in figure.rows} <= set(RECIPES)
    assert "![" not in results.page(rows)
    results.figures(rows, tmp_path)
    assert capsys.readouterr().out.count("not all of its rows have been run") == len(FIGURES)
    shown = results.page(ROOT / "results" / "rows")
    for figure in FIGURES:
        here = (ROOT / "results" / "figures" / figure.file).exists()
        assert here == (f"](results/figures/{figure.file})" in shown), figure.name


def test_a_figure_is_drawn_by_the_command_that_stands_below_it(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    (speech,) = (figure for figure in FIGURES if figure.name == "spoken-digits")
    monkeypatch.setattr(results, "FIGURES", (speech,))
    results.figures(ROOT / "results" / "rows", tmp_path)
    assert (tmp_path / "spoken-digits.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_the_command_below_a_figure_names_its_runs_to_a_shell(tmp_path, figure):
    for row in figure.rows:
        for seed in (0, 1):
            (tmp_path / "results" / "rows" / row / f"seed{seed}").mkdir(parents=True)
    command = figure.shown()[-1].partition("`")[2].partition("`")[0]
    pattern = command.partition(f"surnn plot {figure.plot} ")[2]
    words = ["bash", "-c", f"printf '%s\\n' {pattern}"]
    named = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    runs = figure.runs(tmp_path / "results" / "rows")
    assert named.split() == [str(run.relative_to(tmp_path)) for run in runs]


def test_gates_that_are_sigmoids_are_not_said_to_update_at_some_steps(tmp_path, rows):
    run = finished_run(tmp_path / "run", 0, 0.7, row="lra-text-sigmoid")
    results.add("lra-text-sigmoid", [run], rows)
    page = results.page(rows).splitlines()
    (line,) = (line for line in page if line.startswith("| lra-text-sigmoid | Table 2"))
    assert "| every step, by 0.20 on average |" in line
    with pytest.raises(SystemExit, match="asks for 'rate' of lra-text-sigmoid, which has no such"):
        filled("{lra-text-sigmoid:rate}", records_of(rows))


def test_a_record_tells_who_shared_the_device_but_not_where_data_lay(tmp_path, rows):
    run = finished_run(tmp_path / "run", 0, 0.5)
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**environment, "data": {"mnist": "/a/b"}}))
    (run / "resumed.jsonl").write_text('{"step": 5, "data": {"mnist": "/a/b"}}\n{"step": 9}\n')
    results.add("copying-1000", [run], rows, beside=7)
    kept = json.loads((rows / "copying-1000" / "seed0" / "environment.json").read_text())
    assert kept == {**environment, "data": {"mnist": "b"}, "beside": 7}
    sessions = RunFolder.open(rows / "copying-1000" / "seed0").sessions()
    assert sessions == [{"step": 5, "data": {"mnist": "b"}}, {"step": 9}]
    assert "| 10, beside 7 others | 5.0 GB |" in results.page(rows)
    results.add("copying-1000", [finished_run(tmp_path / "alone", 1, 0.5)], rows)
    results.add("copying-1000", [run], rows, beside=1)
    assert "| 10, beside 1 other | 5.0 GB |" in results.page(rows)
    results.add("copying-1000", [finished_run(tmp_path / "less", 2, 0.5)], rows, beside=9)
    assert "| 10, beside 9 others | 5.0 GB |" in results.page(rows)  # of the one with the most


def test_records_can_be_made_again_but_not_added_to_themselves(tmp_path, rows):
    results.add("copying-1000", [finished_run(tmp_path / "run", 0, 0.5)], rows, beside=2)
    record = rows / "copying-1000" / "record.json"
    before = json.loads(record.read_text())
    record.write_text("{}")
    results.again(rows)
    assert json.loads(record.read_text()) == before
    with pytest.raises(SystemExit, match="is a record already"):
        results.add("copying-1000", [rows / "copying-1000" / "seed0"], rows)
    assert (rows / "copying-1000" / "seed0" / "metrics.jsonl").exists()


def test_benchmarks_are_on_the_page(rows):
    page = results.page(rows)
    times = json.loads((ROOT / "results" / "gpu_bench" / "result.json").read_text())["records"]
    longest = next(r for r in times if r["case"] == "length-4096" and r["mode"] == "graph")
    shown = next(row for row in page.splitlines() if row.startswith("| cuDNN nn.GRU, graph |"))
    assert float(shown.split("|")[-2]) == pytest.approx(longest["fwd_bwd_ms"], rel=0.01)
    parts = json.loads((ROOT / "results" / "engine_bench" / "result.json").read_text())["parts"]
    assert f"| reset | {1e6 * parts['engine, dense']['reset']:,.0f} | " in page


def test_untested_and_unlike_runs_are_refused(tmp_path, rows):
    folder = RunFolder.create(tmp_path / "new", config_to_dict(RECIPES["copying-1000"]()))
    with pytest.raises(SystemExit, match=r"tested: surnn eval .*new --split test .*--untested"):
        results.add("copying-1000", [folder.path], rows)
    with pytest.raises(SystemExit, match="there is no recipe 'copying'"):
        results.add("copying", [folder.path], rows)
    with pytest.raises(SystemExit, match=r"there is no folder .*nowhere"):
        results.add("copying-1000", [tmp_path / "nowhere"], rows)
    runs = [finished_run(tmp_path / f"run{seed}", seed, 0.9, steps=50 + seed) for seed in (0, 1)]
    with pytest.raises(SystemExit, match="not of one configuration"):
        results.add("copying-1000", runs, rows)


def test_a_race_whose_weights_are_gone_is_kept_but_says_that_it_is_not_tested(tmp_path, rows):
    folder = begun_run(tmp_path / "raced", "psmnist", steps=50)
    folder.log(kind="train", step=20, loss=1.0, seconds=3.0)
    folder.log(kind="valid", step=20, accuracy=0.9)
    results.add("psmnist", [folder.path], rows, untested=True)
    assert "| psmnist | Table 5, suGRU | 98.86 | not tested |  |" in results.page(rows)
    records = records_of(rows)
    with pytest.raises(SystemExit, match="speaks of psmnist, which has not been tested"):
        filled("{psmnist}", records)
    run = finished_run(tmp_path / "run1", 1, 0.9, row="psmnist")
    with pytest.raises(SystemExit, match="some of its seeds have been tested, others have not"):
        results.add("psmnist", [run], rows)


def test_seeds_from_before_an_option_was_there_are_of_one_configuration(tmp_path, rows):
    runs = [finished_run(tmp_path / f"run{seed}", seed, 0.9) for seed in (0, 1)]
    config = json.loads((runs[0] / "config.json").read_text())
    del config["train"]["average"]
    (runs[0] / "config.json").write_text(json.dumps(config))
    environment = json.loads((runs[1] / "environment.json").read_text())
    (runs[1] / "environment.json").write_text(json.dumps(environment | {"commit": "later"}))
    results.add("copying-1000", runs, rows)
    record = json.loads((rows / "copying-1000" / "record.json").read_text())
    assert record["seeds"] == [0, 1]
    assert record["commits"][1:] == ["later"]


def test_a_run_that_was_gone_on_with_other_options_says_what_it_began_with(tmp_path, rows):
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
    results.add("copying-1000", [run], rows)
    page = results.page(rows)
    assert "50 of 3,000 updates, 18 s (begun with train.minutes 1) |" in page
    assert "--train.minutes 2.5" in page
    assert "--train.minutes 1" not in page


@pytest.mark.parametrize(
    ("words", "option", "left"),
    [
        ("--train.lr 1 --train.batch 2", "--train.learning-rate", "--train.batch 2"),
        ("--train.lr=1 --train.batch 2", "--train.learning-rate", "--train.batch 2"),
        ("--train.batch 2 --train.no-compile", "--train.compile", "--train.batch 2"),
        ("--train.compile --train.batch 2", "--train.no-compile", "--train.batch 2"),
        ("--train.anneal 0.1 0.2 --train.batch 2", "--train.anneal", "--train.batch 2"),
        (
            "--train.batch_ 1 --train.warm_up 3 --task.x y",
            "--train.warm-up",
            "--train.batch_ 1 --task.x y",
        ),
        ("--a.b 1 --c.d 2 --a.b 3", "--a.b", "--c.d 2"),
        ("--a.b 1 --a.bc 2", "--a.b", "--a.bc 2"),
    ],
)
def test_an_option_is_left_out_however_it_is_spelled(words, option, left):
    name = ["surnn", "reproduce", "copying"]
    same = results.called(option).__eq__
    assert results.without([*name, *words.split()], same) == [*name, *left.split()]


def test_a_run_that_was_tested_again_has_its_last_test(tmp_path, rows):
    run = finished_run(tmp_path / "run", 0, 0.5)
    what = {"split": "test", "checkpoint": "best", "step": 60, "overrides": {}}
    RunFolder.open(run).evaluated(**what, metrics={"accuracy": 0.75})
    RunFolder.open(run).evaluated(**(what | {"checkpoint": "last"}), metrics={"accuracy": 0.25})
    results.add("copying-1000", [run], rows)
    assert "| 75.00 (one seed) |" in results.page(rows)


def test_races_tell_when_a_target_was_first_reached(rows):
    for name, found in (("psmnist", (0.8, 0.96)), ("psmnist-gru", (0.5, 0.92))):
        seed = RunFolder.create(rows / name / "seed0", config_to_dict(RECIPES[name]()))
        for step, accuracy in zip((10, 20), found, strict=True):
            seed.log(kind="train", step=step, seconds=2.0 * step, loss=1.0)
            seed.log(kind="valid", step=step, accuracy=accuracy)
    records = {
        "psmnist": {"beside": 0, "seconds": [45.2]},
        "psmnist-gru": {"beside": 0, "seconds": [40.1, 99.0]},
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
    records["psmnist-gru"]["beside"] = 3
    assert race(rows, records, ("psmnist", "psmnist-gru"), (0.75,)) == []
    assert {name for names, _ in RACES for name in names} <= set(RECIPES)


def test_headlines_are_of_records_and_leave_the_rest_alone(tmp_path):
    readme = (ROOT / "README.md").read_text()
    rows = ROOT / "results" / "rows"
    assert with_headlines(readme, rows) == readme, "python tools/results.py write"
    begin, end = MARKS
    made = with_headlines(f"a\n{begin}\nold\n{end}\nb\n", rows)
    assert made.startswith(f"a\n{begin}\n| test accuracy")
    speech = next(line for line in made.splitlines() if line.startswith("| spoken digits"))
    assert speech.count("**") == 2  # of the better one
    assert "| **99.56" in speech
    text = next(line for line in made.splitlines() if line.startswith("| ... Text"))
    assert "**" not in text  # nothing to be better than
    assert text.endswith("|  |  | 64.42 |")  # of clocks alone
    assert made.endswith(f"\n{end}\nb\n")
    assert "old" not in made
    with pytest.raises(SystemExit, match="must have the lines"):
        with_headlines("a", rows)
    with pytest.raises(SystemExit, match="the README shows psmnist-stepwise, which has not been"):
        with_headlines(readme, tmp_path)


def seeds_that_were_run():
    return sorted((ROOT / "results" / "rows").glob("*/seed*"))


@pytest.mark.parametrize("seed", seeds_that_were_run(), ids=lambda s: f"{s.parent.name}-{s.name}")
def test_commands_on_the_page_still_make_the_runs_that_they_stand_beside(seed):
    folder = RunFolder.open(seed)
    program, command, name, *flags = shlex.split(results.command(seed))
    assert (program, command, name) == ("surnn", "reproduce", seed.parent.name)
    on_cpu = folder.environment()["device"] == "cpu"
    config, _ = configure(RECIPES[name], flags, on_cpu)
    found = config_from_dict(folder.config())
    assert with_seed(config, found.train.seed) == found


def rows_that_were_run():
    return sorted({seed.parent for seed in seeds_that_were_run()})


@pytest.mark.parametrize("row", rows_that_were_run(), ids=lambda row: row.name)
def test_records_are_of_their_runs_and_recipes(row):
    made = results.summary(RECIPES[row.name], sorted(row.glob("seed*")))
    kept = json.loads((row / "record.json").read_text())
    assert json.loads(json.dumps(made)) == kept, "python tools/results.py again"


def test_the_page_is_up_to_date():
    assert (ROOT / "RESULTS.md").read_text() == results.page(ROOT / "results" / "rows"), (
        "python tools/results.py write"
    )
