"""The plans of the package, and how plans share a GPU, wait, fail and are packed."""

import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.two_steps import train_two_steps
from surnn.runs.config_json import config_to_dict
from surnn.runs.folder import RunFolder
from surnn.train.flags import override
from surnn.train.recipe_options import configure
from surnn_recipes import RECIPES
from surnn_recipes import run_plan as plans
from surnn_recipes.plan import PLANS, PlanError, Run, plan_file, read_plan
from surnn_recipes.plan_records import MIB, SLACK, pack

NAMES = sorted(path.stem for path in PLANS.glob("*.txt"))


@pytest.fixture(scope="module")
def packaged() -> list[Run]:
    return [run for name in NAMES for run in read_plan(plan_file(name).read_text())]


def test_plans_of_the_package_are_known_by_name():
    assert {"keyword-spotting", "state-tracking", "state-tracking-rivals", "results"} <= set(NAMES)
    with pytest.raises(PlanError, match="did you mean 'state-tracking'"):
        plan_file("state-trackin")


def test_every_flag_of_the_packaged_plans_exists(packaged, tmp_path):
    kinds = {(run.recipe, *run.flags): run for run in packaged if run.flags or run.tests}
    for run in kinds.values():
        config, _ = configure(RECIPES[run.recipe], run.flags_in(tmp_path), on_cpu=True)
        assert config != RECIPES[run.recipe]() or run.tests
        for flags in run.tests:
            assert override("surnn eval", "task", flags, config.task.as_tested()) != config.task


def test_packaged_plans_start_from_runs_of_the_same_model(packaged):
    recipes = {run.name: run.recipe for run in packaged}
    started = [run for run in packaged if run.needs]
    assert started
    for run in started:
        (needed,) = run.needs
        ours, theirs = RECIPES[run.recipe]().model, RECIPES[recipes[needed]]().model
        saving = {"budget": 0.0, "threshold": 0.1, "pool": "last"}
        assert replace(ours, **saving) == replace(theirs, **saving)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("at-once", "line 1: .*number"),
        ("at-once 0", "line 1: .*number"),
        ("+ weights", "line 1"),
        ("copying-100 0\n+ records", "line 2: .*weights"),
        ("copying-100 0 --train.start @other", "line 1: .*no run other"),
    ],
)
def test_errors_of_a_plan_say_what_is_expected(plan, said):
    with pytest.raises(PlanError, match=said):
        read_plan(plan)


# ------------------------------------------------------------ sharing a GPU

STANDS_IN = """
import pathlib, sys, time
name = sys.argv[sys.argv.index("--out") + 1] if "--out" in sys.argv else sys.argv[2]
begun = pathlib.Path("begun"); begun.mkdir(exist_ok=True)
(begun / pathlib.Path(name).name).touch()
if "--train.fail" in sys.argv: sys.exit(1)
for word in sys.argv:
    if word.startswith("--train.until="):
        while not (begun / word.partition("=")[2]).exists(): time.sleep(0.01)
"""


def outcomes(plan: str, monkeypatch, at_once: int = 1) -> dict[str, tuple[str, int]]:
    """How the runs of a plan end with a stand-in for surnn, and how many others ran meanwhile."""
    monkeypatch.setattr(plans, "SURNN", (sys.executable, "-c", STANDS_IN))
    runs = read_plan(plan)
    plans.run_plan(runs, Path("runs"), [], at_once, float("inf"))
    return {run.name: (run.outcome, run.other_runs) for run in runs}


def test_runs_share_the_gpu_or_have_it_for_themselves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = """
    at-once 2
    a: copying-100 0 --train.until=b
    b: copying-100 1 --train.until=a
    at-once 1
    c: copying-100 2
    at-once 2
    d: copying-100 3 --train.until=e
    e: copying-100 4 --train.until=d
    """
    assert outcomes(plan, monkeypatch) == {
        "a": ("done", 1), "b": ("done", 1), "c": ("done", 0), "d": ("done", 1), "e": ("done", 1)
    }  # fmt: skip


def test_a_run_that_needs_another_waits_for_it_and_lets_others_pass(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = """
    at-once 2
    a: copying-100 0 --train.until=c
    b: copying-100 1 --train.start @a
    c: copying-100 2
    """
    assert outcomes(plan, monkeypatch) == {"a": ("done", 1), "b": ("done", 0), "c": ("done", 1)}
    assert "--train.start runs/a" in shown(plan)[1]


def shown(plan: str) -> list[str]:
    return [" ".join(plans.commands(run, Path("runs"), [])[0]) for run in read_plan(plan)]


def test_a_run_that_fails_takes_only_those_that_need_it_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = """
    a: copying-100 0 --train.fail
    b: copying-100 1 --train.start @a
    c: copying-100 2 --train.start @b
    d: copying-100 3
    """
    ends = {name: outcome for name, (outcome, _) in outcomes(plan, monkeypatch).items()}
    assert ends == {"a": "ended with 1", "b": "needs a", "c": "needs b", "d": "done"}
    assert {path.name for path in Path("begun").iterdir()} == {"a", "d"}


# ------------------------------------------------------------ packing


def trained(out: Path, name: str, *, tested: bool) -> None:
    """A run folder with records, and checkpoints of 100 kB of random bytes."""
    folder = RunFolder.create(out / name, config_to_dict(RECIPES["copying-100"]()))
    folder.log(kind="train", step=1)
    for checkpoint in ("last", "previous", "best"):
        (out / name / checkpoint).mkdir()
        noise = torch.randint(256, (100_000,), dtype=torch.uint8)
        (out / name / checkpoint / "model.safetensors").write_bytes(noise.numpy().tobytes())
    if tested:
        folder.log_evaluation(split="test", checkpoint="best", overrides={}, metrics={"a": 1.0})


def test_records_are_packed_and_weights_only_where_they_are_needed(tmp_path):
    runs = read_plan("a: copying-100 0\nb: copying-100 1\n+ weights\nc: copying-100 2")
    for run, tested in zip(runs, (True, True, False), strict=True):
        trained(tmp_path, run.name, tested=tested)
    file = tmp_path / "all.tgz"
    assert pack(runs, tmp_path, file, 1.0) == []
    assert checkpoints(file) == {"b/best", "c/last", "c/best"}
    runs[2].outcome = "running"  # its checkpoints may change while they are read
    pack(runs, tmp_path, file, 1.0)
    assert checkpoints(file) == {"b/best"}


def checkpoints(file: Path) -> set[str]:
    with tarfile.open(file) as packed:
        names = packed.getnames()
    assert {f"{run}/{log}" for run in "abc" for log in ("config.json", "metrics.jsonl")} <= {*names}
    return {name.rpartition("/")[0] for name in names if name.endswith(".safetensors")}


def test_weights_that_do_not_fit_are_left_out_and_named(tmp_path):
    runs = read_plan("a: copying-100 0\nb: copying-100 1\nc: copying-100 2")
    for run in runs:
        trained(tmp_path, run.name, tested=False)
    limit = (350_000 + SLACK) / MIB
    left_out = pack(runs, tmp_path, tmp_path / "all.tgz", limit)
    assert (tmp_path / "all.tgz").stat().st_size <= limit * MIB
    assert left_out == ["b/best", "c/last", "c/best"]
    assert checkpoints(tmp_path / "all.tgz") == {"a/last", "a/best", "b/last"}


def test_a_packed_run_continues_elsewhere(tmp_path, monkeypatch):
    """Trained in one folder, packed, unpacked in another, tested there."""
    monkeypatch.chdir(tmp_path)
    tiny = "--task.delay 2 --model.width 32"
    Path("plan.txt").write_text(f"copying-100 0 {tiny}\nfails: copying-100 1 --train.batch 0")
    words = ["run_plan", "plan.txt", "--smoke", "--pack", "all.tgz", "--at-once", "2"]
    monkeypatch.setattr(sys, "argv", words)
    plans.main()
    with tarfile.open("all.tgz") as packed:
        packed.extractall("elsewhere", filter="data")
    run, _ = read_plan(Path("plan.txt").read_text())
    (test,) = plans.commands(run, Path("elsewhere"), [])
    assert test[3:] == ["eval", "elsewhere/copying-100-seed0", "--split", "test"]
    plans.run_plan([run], Path("elsewhere"), [], 1, float("inf"))
    assert run.outcome == "done"
    assert RunFolder.open(Path("elsewhere/copying-100-seed0")).test_metrics() is not None


# ------------------------------------------------------------ the packaged plans, tiny


TINY = {
    "ecg": "--task.window 500",  # tiny records are shorter than the recipe's window
    "state-tracking-s3-65536": "--task.length 2048",
    "wikitext2": "--task.context 16 --task.vocabulary 11",
    "article-pairs": "--task.length 40",
}
"""Flags for recipes whose names begin so."""


@pytest.mark.parametrize(
    "name", ["keyword-spotting", "state-tracking", "wikitext2", "article-pairs"]
)
def test_every_row_of_a_packaged_plan_trains(name, data, tmp_path):
    """Two steps of every different line, at full size but in batches of two, on tiny data."""
    first: dict[tuple[str, ...], Run] = {}
    for run in read_plan(plan_file(name).read_text()):
        first.setdefault((run.recipe, *(word for word in run.flags if word[0] != "@")), run)
    for run in first.values():
        tiny = " ".join(TINY[start] for start in TINY if run.recipe.startswith(start))
        flags = [*run.flags_in(tmp_path), *tiny.split()]
        train_two_steps(run.recipe, flags, tmp_path / run.name, data)


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        *(
            (f"copying-{row}", "--task.delay 50")
            for row in ("2000-lstm", "2000-chrono", "5000-rnn-lr-0.0005", "5000-rnn-lr-3e-05")
        ),
        *(
            (f"race-listops{kind}", "--task.train 8 --task.valid 4 --task.test 4")
            for kind in ("", "-gru", "-s4d")
        ),
        *(
            (f"lra-retrieval-{kind}", "--task.max-length 12")
            for kind in ("mingru", "s4d-equal", "transformer-equal")
        ),
        ("lra-pathfinder-linear", "--task.images 40"),
    ],
)
def test_rows_of_longer_plans_train(name, flags, data, tmp_path):
    train_two_steps(name, flags.split(), tmp_path / "run", data)


@pytest.mark.parametrize("name", ["spoken-digits-new-george", "spoken-digits-gru-new-george"])
def test_rows_with_a_new_speaker_train(name, data, tmp_path):
    for clip in [*(data / "recordings").iterdir()]:
        shutil.copy(clip, clip.with_name(clip.name.replace("ann", "george")))
    train_two_steps(name, ["--task.seconds", "0.5"], tmp_path / "run", data)
