"""Run folders from somebody else: they are data, whatever they hold."""

import json
import os
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.training import finished_run
from surnn.analysis.inputs import why_not_prepared
from surnn.cli.commands.generate import TextCodec, shown
from surnn.cli.main import main
from surnn.data import DataError, text_files, tokens
from surnn.errors import ConfigError, RunError, SurnnError, printable
from surnn.runs import files, lock, summary
from surnn.runs.folder import RunFolder
from surnn.runs.loading import load
from surnn.runs.status import run_status
from surnn.runs.summary import find_runs, overview_row
from surnn.tasks.text_file import TextFile

posix = pytest.mark.skipif(os.name == "nt", reason="needs links and pipes")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("runs") / "run", checkpoint_every=2)


@pytest.fixture
def foreign(finished, tmp_path):
    """A copy to tamper with."""
    return Path(shutil.copytree(finished, tmp_path / "runs" / "run"))


def change(path: Path, **model) -> None:
    config = json.loads((path / "config.json").read_text())
    config["model"] |= model
    (path / "config.json").write_text(json.dumps(config))


# ------------------------------------------------------------------ links and pipes


@posix
@pytest.mark.parametrize(
    "name", ["lock", "lock.held", "evaluations.jsonl", "resumed.jsonl", "metrics.jsonl"]
)
def test_nothing_is_written_through_a_link(foreign, tmp_path, name):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (foreign / name).unlink(missing_ok=True)
    (foreign / name).symlink_to(victim)
    folder = RunFolder.open(foreign)
    write = {
        "lock": folder.lock,
        "lock.held": folder.lock,
        "evaluations.jsonl": folder.log_evaluation,
        "resumed.jsonl": folder.log_session,
        "metrics.jsonl": folder.log,
    }[name]
    with pytest.raises(RunError):
        write()
    assert victim.read_text() == "precious"


@posix
@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl"])
def test_a_file_that_is_replaced_replaces_the_link(foreign, tmp_path, name):
    victim = tmp_path / "victim"
    shutil.copy(foreign / name, victim)
    before = victim.read_text()
    for link in (foreign / name, foreign / f"{name}.new"):
        link.unlink(missing_ok=True)
        link.symlink_to(victim)
    files.write_atomically(foreign / name, "new")
    assert victim.read_text() == before
    assert (foreign / name).read_text() == "new"
    assert not (foreign / name).is_symlink()


@posix
@pytest.mark.parametrize(
    "name",
    ["metrics.jsonl", "lock", "evaluations.jsonl", "best/model.safetensors", "best/state.pt"],
)
def test_a_pipe_does_not_block(foreign, name):
    (foreign / name).unlink(missing_ok=True)
    os.mkfifo(foreign / name)
    row = overview_row(foreign)
    if not name.startswith("best/"):
        assert "damaged" in row["status"] or name == "evaluations.jsonl"
    folder = RunFolder.open(foreign)
    reads = {
        "metrics.jsonl": folder.metrics,
        "lock": folder.lock_holder,
        "evaluations.jsonl": folder.evaluations,
    }.get(name, lambda: folder.load("best"))
    with pytest.raises(RunError, match=r"not a regular file|cannot be read"):
        reads()


def test_a_lock_file_names_a_process_or_none(tmp_path):
    path = tmp_path / "lock"
    path.write_text("1; rm -rf ~\n")
    assert lock.lock_holder(path).process == ""


@posix
@pytest.mark.parametrize(
    "name",
    ["config.json", "environment.json", "metrics.jsonl", "evaluations.jsonl", "resumed.jsonl"],
)
def test_links_do_not_bring_other_files_into_a_page(foreign, tmp_path, name, capsys):
    """A page is made to be shown: ~/.docker/config.json, say, must not be in it."""
    lines = {"kind": "train", "step": 1, "loss": 1.0, "seconds": 1.0, "secret": "hunter2"}
    content = {**json.loads((foreign / "config.json").read_text()), **lines}
    secret = tmp_path / "secret"
    secret.write_text(json.dumps(content) + "\n")
    (foreign / name).unlink(missing_ok=True)
    (foreign / name).symlink_to(secret)
    assert overview_row(foreign)["status"].startswith("damaged") or name not in (
        "config.json", "environment.json", "metrics.jsonl"
    )  # fmt: skip
    for command in (["info", "--json"], ["report", "--no-gates"]):
        main([*command, str(foreign)])
    page = foreign / "report.html"
    assert not page.exists() or "hunter2" not in page.read_text()
    assert "hunter2" not in capsys.readouterr().out
    (foreign / name).unlink()
    (foreign / "inside").write_text(json.dumps(content) + "\n")
    (foreign / name).symlink_to("inside")
    assert "hunter2" in str(list(RunFolder.open(foreign)._lines(name)))


@posix
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_generating_does_not_wait_for_a_pipe(tmp_path, name):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    assert main(["generate", str(tmp_path)]) != 0
    if name == "tokenizer.json":
        with pytest.raises(SurnnError, match="not a regular file"):
            TextCodec(300, tmp_path / name)
        with pytest.raises(DataError, match="not a regular file"):
            tokens._read(str(tmp_path / name))


# ------------------------------------------------------------------ sizes


def test_a_compressed_state_is_not_unpacked(foreign):
    """torch.save never compresses: 200 kB would become 200 MB, or any size."""
    path, manifest = foreign / "last" / "state.pt", foreign / "last" / "manifest.json"
    torch.save({"step": 4, "zeros": torch.zeros(1 << 18)}, path)
    with zipfile.ZipFile(path) as archive:
        contents = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    assert path.stat().st_size < 1 << 14
    sums = json.loads(manifest.read_text()) | {"state.pt": files.checksum(path)}
    manifest.write_text(json.dumps(sums))
    with pytest.raises(RunError, match="unpacks to more bytes"):
        RunFolder.open(foreign).load("last")


@pytest.mark.parametrize(
    "model", [{"layers": 10**7}, {"width": 10**9}, {"widths": [8] * 10**4}, {"heads": 10**9}]
)
def test_a_configuration_of_absurd_size_is_refused_at_once(foreign, model):
    change(foreign, **model)
    with pytest.raises((RunError, ConfigError)):
        load(foreign)
    assert overview_row(foreign)["status"].startswith("damaged")


@pytest.mark.parametrize("model", [{"layers": 900}, {"width": 100_000}])
def test_a_model_larger_than_its_weights_is_not_built(foreign, model):
    change(foreign, **model)
    with pytest.raises(RunError, match="was it edited"):
        load(foreign)


@pytest.mark.parametrize("value", ["many", [], {}, None, 1.5e300])
def test_options_of_another_type_are_damage(foreign, value):
    change(foreign, layers=value)
    assert overview_row(foreign)["status"].startswith("damaged")


def test_a_text_of_absurd_size_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_TEXT", 100)
    (tmp_path / "text").write_bytes(bytes(101))
    with pytest.raises(OSError, match="more than 100 bytes"):
        text_files.read_text(tmp_path / "text")


# ------------------------------------------------------------------ what others see


def test_escape_sequences_do_not_reach_the_terminal(foreign, capsys):
    environment = json.loads((foreign / "environment.json").read_text())
    environment |= {"time": "\x1b]0;owned\x07", "device": "\x1b[2Jcpu\u202e"}
    (foreign / "environment.json").write_text(json.dumps(environment))
    assert main(["info", str(foreign)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\\x1b[2Jcpu" in shown
    (foreign / "config.json").write_text(json.dumps({"task": {"name": "\x1b[31m"}, "model": {}}))
    assert main(["info", str(foreign)]) != 0
    assert "\x1b" not in capsys.readouterr().err


def test_a_terminal_does_not_obey_generated_text(monkeypatch):
    text = "a\x1b]0;owned\x07\nb"
    assert shown(text) == text  # into a file, as it is
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert shown(text) == "a\\x1b]0;owned\\x07\nb"


def test_names_of_folders_do_not_reach_the_terminal(foreign, capsys):
    odd = foreign.rename(foreign.with_name("run\x1b[2J"))
    for command in (["info", str(odd)], ["report", str(odd), "--no-gates"]):
        assert main(command) == 0
        assert "\x1b" not in capsys.readouterr().out


def test_printable_keeps_text():
    text = "loss 0.5\tβ → é 中\nnext"
    assert printable(text) == text
    assert printable("a\x1b[0m\r\x9b\u2028") == "a\\x1b[0m\\x0d\\x9b\\x2028"


def test_texts_that_a_run_names_are_read_only_if_the_user_names_them(tmp_path):
    secret = tmp_path / "home" / "secret.txt"
    secret.parent.mkdir()
    secret.write_text("s" * 4000)
    task = TextFile(path=str(secret), context=16)
    assert "name its folder with --data" in why_not_prepared(task, None)
    other = tmp_path / "data"
    other.mkdir()
    assert "name its folder with --data" in why_not_prepared(task, other)
    (other / "secret.txt").symlink_to(secret)
    linked = replace(task, path="secret.txt")
    assert "name its folder with --data" in why_not_prepared(linked, other)
    assert why_not_prepared(task, secret.parent) is None


def test_one_bad_run_does_not_hide_the_others(finished, tmp_path, capsys):
    """Whatever is wrong with it: no configuration, odd types, odd lines."""
    root = tmp_path / "runs"
    for name in ("good", "config", "types", "environment", "metrics", "draft"):
        shutil.copytree(finished, root / name)
    (root / "config" / "config.json").write_text('{"task": 3}')
    (root / "types" / "config.json").write_text('{"task": {"name": []}, "model": {}}')
    (root / "environment" / "environment.json").write_text("[]")
    (root / "metrics" / "metrics.jsonl").write_text('{"step": 1, "kind": "valid"}\n')
    (root / "draft").rename(root / ".draft.new")
    assert main(["info", str(root)]) == 0
    shown = capsys.readouterr().out
    assert sorted(p.name for p in find_runs(root)) == [
        "config", "environment", "good", "metrics", "types"
    ]  # fmt: skip
    rows = {p.name: overview_row(p)["status"] for p in find_runs(root)}
    assert rows["good"] == rows["metrics"] == "finished"
    assert all(rows[name].startswith("damaged") for name in ("config", "types", "environment"))
    assert shown.count("damaged") >= 3
    assert "finished" in shown


def test_an_error_that_nobody_foresaw_hides_no_other_run(finished, tmp_path, capsys, monkeypatch):
    root = tmp_path / "runs"
    for name in ("good", "odd"):
        shutil.copytree(finished, root / name)

    def fail_on_one(folder, config):
        if folder.path.name == "odd":
            raise ZeroDivisionError("division by zero")
        return run_status(folder, config)

    monkeypatch.setattr(summary, "run_status", fail_on_one)
    assert main(["info", str(root)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "damaged: ZeroDivisionError" in shown
    assert "finished" in shown


def test_an_environment_without_entries_is_shown(foreign, capsys):
    (foreign / "environment.json").write_text("{}")
    (foreign / "evaluations.jsonl").write_text('{"split": "test"}\n{"metrics": 3}\n')
    assert main(["info", str(foreign)]) == 0
    assert "unknown on unknown" in capsys.readouterr().out
