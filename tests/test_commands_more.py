"""What the command line says to a newcomer: where to go on from a mistake, what to expect."""

import pytest

from surnn.cli import main
from training import trainer


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of 4 updates."""
    path = tmp_path_factory.mktemp("runs") / "run"
    made = trainer(path, steps=4, checkpoint_every=4)
    made.fit()
    made.close()
    return path


def refused(capsys, *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 2
    return capsys.readouterr().err


def test_a_finished_run_takes_no_options_without_more_updates(run, capsys):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    told = refused(capsys, "resume", str(run), "--train.lr", "1e-4")
    assert "finished at update 4 (all updates are made)" in told
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
    assert "takes a run's folder, or a file of one that surnn export RUN --to engine wrote" in told
