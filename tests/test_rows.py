"""Plans of several runs: what they are, how they are run together, and what is told of them."""

import signal
import sys
import tarfile
from pathlib import Path

import pytest

from surnn.recipes import RECIPES
from surnn.runs import RunFolder, config_to_dict

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import rows  # noqa: E402

SMALL = (
    "--train.device cpu --model.width 32 --train.batch 50 --train.log-every 2 "
    "--train.evaluate-every 2 --train.evaluation-batches 1"
)
PLAN = f"""
copying-100 0 --train.steps 4 {SMALL}  # soon done
! --task.noise uniform
# and this takes too long
long: copying-100 1 --train.steps 100000 {SMALL}
"""


def test_a_plan_is_recipes_seeds_and_flags():
    first, second = rows.read_plan(PLAN)
    assert (first.name, first.recipe, first.seed) == ("copying-100-seed0", "copying-100", "0")
    assert first.flags[:2] == ["--train.steps", "4"]
    assert first.tests == [["--task.noise", "uniform"]]
    assert (second.name, second.seed, second.tests) == ("long", "1", [])


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("! --task.noise uniform", "line 1: a test of which run"),
        ("\ncopying 0", "line 2: expected a recipe and a seed, got 'copying 0'"),
        ("copying-100 --train.steps 4", "line 1: expected a recipe and a seed"),
        ("x: copying-100", "line 1: expected a recipe and a seed"),
        ("copying-100 0\ncopying-100 0 --train.steps 4", "two lines would make copying-100-seed0"),
    ],
)
def test_a_plan_that_is_none_says_where(plan, said):
    with pytest.raises(SystemExit, match=said):
        rows.read_plan(plan)


def test_a_run_is_trained_tested_and_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("plan").write_text("\n".join(PLAN.splitlines()[:3]))
    monkeypatch.setattr(sys, "argv", ["rows.py", "plan", "--pack", "all.tgz"])
    rows.main()
    told = capsys.readouterr().out
    assert "copying-100-seed0: done\n" in told
    folder = RunFolder.open(Path("runs/copying-100-seed0"))
    plain, noisy = folder.evaluations()
    assert noisy["overrides"] == {"task.noise": "uniform"}
    shown = [
        f"  test         accuracy {line['metrics']['accuracy']:.4g}" for line in (plain, noisy)
    ]
    assert f"{shown[0]}, best weights" in told
    assert f"{shown[1]}, best weights (update {noisy['step']}), task.noise uniform\n" in told
    assert "  tools/results.py add copying-100 runs/copying-100-seed0 --beside 0\n" in told
    with tarfile.open("all.tgz") as packed:
        assert set(packed.getnames()) == {
            "copying-100-seed0.log",
            *(f"copying-100-seed0/{name}.json" for name in ("config", "environment")),
            *(f"copying-100-seed0/{name}.jsonl" for name in ("metrics", "evaluations")),
        }
    assert rows.commands(rows.read_plan(PLAN)[0], Path("runs"), []) == []  # it has been tested


STANDS_IN = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(3))
print(*sys.argv[1:], flush=True)
while "runs/long" in sys.argv:
    time.sleep(0.05)
"""


def test_runs_at_once_end_with_the_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rows, "SURNN", (sys.executable, "-c", STANDS_IN))
    short, long = rows.read_plan(PLAN)
    rows.work([short, long], Path("runs"), ["--data", "d"], at_once=2, seconds=6)
    assert (short.ended, short.beside) == ("done", 1)
    assert (long.ended, long.beside) == ("stopped: the time was over", 1)
    first, second = Path("runs/copying-100-seed0.log").read_text().splitlines()
    assert first.startswith("reproduce copying-100 --train.seed 0 --out runs/copying-100-seed0 ")
    assert second.startswith("eval runs/copying-100-seed0 --split test --data d --task.noise")
    alone, never = rows.read_plan(
        PLAN.replace("copying-100 0", "long: copying-100 0").replace(
            "long: copying-100 1", "other: copying-100 1"
        )
    )
    rows.work([alone, never], Path("runs"), [], at_once=1, seconds=2)
    assert (alone.ended, alone.beside) == ("stopped: the time was over", 0)
    assert never.ended == "not begun"


def test_runs_of_a_plan_in_the_background_stop_too(tmp_path, monkeypatch):
    """A shell's background ignores SIGINT, and so would all that is started there."""
    monkeypatch.chdir(tmp_path)
    asks = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    monkeypatch.setattr(rows, "SURNN", (sys.executable, "-c", asks))
    short, _ = rows.read_plan(PLAN)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        rows.work([short], Path("runs"), [], at_once=1, seconds=60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert set(Path("runs/copying-100-seed0.log").read_text().split()) == {"False"}


def test_ctrl_c_is_passed_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rows, "SURNN", (sys.executable, "-c", STANDS_IN))
    _, long = rows.read_plan(PLAN)
    sleep = rows.time.sleep

    def interrupt(seconds):
        sleep(seconds)
        if Path("runs/long.log").read_text():  # it has begun
            monkeypatch.setattr(rows.time, "sleep", sleep)
            raise KeyboardInterrupt

    monkeypatch.setattr(rows.time, "sleep", interrupt)
    rows.work([long], Path("runs"), [], at_once=1, seconds=600)
    assert long.ended == "stopped: Ctrl-C"


def test_a_plan_that_is_not_there(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["rows.py", "nowhere.txt"])
    with pytest.raises(SystemExit, match=r"cannot be read: .*nowhere\.txt"):
        rows.main()


def test_nothing_at_once_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="--at-once 0 would run nothing"):
        rows.work([], tmp_path, [], at_once=0, seconds=1)


def test_what_lies_there_and_is_no_run(tmp_path):
    (tmp_path / "long").mkdir()
    with pytest.raises(SystemExit, match="name the run otherwise"):
        rows.commands(rows.read_plan(PLAN)[1], tmp_path, [])


def test_a_plan_goes_on_with_what_it_began(tmp_path):
    config = config_to_dict(RECIPES["copying-100"]())
    RunFolder.create(tmp_path / "long", config)
    _, long = rows.read_plan(PLAN)
    resume, test = (words[3:] for words in rows.commands(long, tmp_path, ["--data", "d"]))
    trained = [word for word in long.flags if word not in ("--model.width", "32")]
    assert trained[:2] == ["--train.steps", "100000"]
    assert resume == ["resume", f"{tmp_path}/long", "--data", "d", *trained]
    assert test == ["eval", f"{tmp_path}/long", "--split", "test", "--data", "d"]


def test_only_options_of_training_are_given_again():
    flags = "--train.no-compile --model.width 32 --train.start runs/a --train.anneal 0.1 0.2"
    kept = ["--train.no-compile", "--train.anneal", "0.1", "0.2"]
    assert rows.without([*flags.split(), "--gate.rate", "-1"], rows.is_settled) == kept
    spelled = ["--train.start=runs/a", "--train.lr=1e-3"]
    assert rows.without(spelled, rows.is_settled) == ["--train.lr=1e-3"]


def test_a_finished_run_is_only_tested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (run,) = rows.read_plan(f"copying-100 0 --train.steps 4 {SMALL}")
    rows.work([run], tmp_path, [], 1, 300.0)
    assert rows.commands(run, tmp_path, []) == []
    (tmp_path / run.name / "evaluations.jsonl").unlink()
    run.flags[1] = "8"
    ((*_, command, path, _split, split),) = rows.commands(run, tmp_path, [])
    assert (command, path, split) == ("eval", str(tmp_path / run.name), "test")


def test_a_run_that_fails_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("plan").write_text("copying-100 0 --train.no-such-flag 4")
    monkeypatch.setattr(sys, "argv", ["rows.py", "plan"])
    rows.main()
    told = capsys.readouterr().out
    assert "copying-100-seed0: ended with 2, see runs/copying-100-seed0.log" in told
    assert "no-such-flag" in Path("runs/copying-100-seed0.log").read_text()


def test_runs_are_trained_alone_and_tested_later(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("plan").write_text("\n".join(PLAN.splitlines()[:3]))
    monkeypatch.setattr(sys, "argv", ["rows.py", "plan", "--train-only"])
    rows.main()
    assert "copying-100-seed0: done\n" in capsys.readouterr().out
    folder = RunFolder.open(Path("runs/copying-100-seed0"))
    assert (folder.tested(), folder.evaluations()) == (None, [])
    monkeypatch.setattr(rows, "begin", None)  # it has been trained, and nothing else is wanted
    rows.main()
    assert "copying-100-seed0: done before\n" in capsys.readouterr().out
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["rows.py", "plan"])
    rows.main()
    assert [line["overrides"] for line in folder.evaluations()] == [{}, {"task.noise": "uniform"}]


def test_what_was_stopped_goes_on_without_its_test(tmp_path):
    RunFolder.create(tmp_path / "long", config_to_dict(RECIPES["copying-100"]()))
    _, long = rows.read_plan(PLAN)
    ((*_, first), *more) = ([*words[3:4]] for words in rows.commands(long, tmp_path, []))
    assert (first, more) == ("resume", [["eval"]])
    ((*_, only),) = ([*words[3:4]] for words in rows.commands(long, tmp_path, [], train_only=True))
    assert only == "resume"
