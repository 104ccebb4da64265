"""Tasks on files of the user."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.tiny_sets import CPU, article
from surnn.cli.main import main
from surnn.runs.folder import RunFolder
from surnn.tasks.batching import get_data
from surnn.tasks.text_file import TextFile

TEXT = "caf\u00e9  of\nthe \u4e2d wiki\n"


def test_a_text_that_is_too_short_is_refused(tmp_path):
    path = tmp_path / "book.txt"
    path.write_bytes(b"abc")
    task = TextFile(context=900, path=str(path))
    with pytest.raises(ValueError, match=r"3 bytes.*1,000"):
        task.prepare(CPU)
    path.write_text("\U0001f600" * 25)  # letters as long as they come: none of them is cut
    task.prepare(CPU)
    with pytest.raises(ValueError, match=r"92 tokens.*task\.context 900"):
        task.batch("train", 0, 1, 0, CPU)
    path.write_bytes(b"a" * 1000)
    task.prepare(CPU)
    assert task.size("train") == 1


def test_a_run_resumes_with_its_own_text_only(tmp_path, monkeypatch, capsys):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    book, run = tmp_path / "here" / "book.txt", str(tmp_path / "run")
    text = article(60)
    book.write_text(text)
    monkeypatch.chdir(tmp_path / "here")
    options = [
        "--task.context", "16", "--model.width", "16", "--model.block", "feedforward",
        "--train.steps", "2", "--train.batch", "4", "--train.warmup", "1", "--train.device", "cpu",
        "--train.evaluation-batches", "1", "--out", run,
    ]  # fmt: skip
    assert main(["train", "text_file", "--task.path", "book.txt", *options]) == 0
    resume = ["resume", run, "--train.steps"]
    monkeypatch.chdir(tmp_path / "there")  # it was named from the other folder
    assert main(["eval", run]) == 0
    assert main([*resume, "3"]) == 0
    shorter, other = text[:-500], text.replace("e", "a")
    for changed, message in (
        (shorter, f"and has {len(shorter.encode()):,}"),
        (other, "but others"),
    ):
        book.write_text(changed)
        for command in (["eval", run], ["eval", run, "--task.context", "8"], [*resume, "4"]):
            capsys.readouterr()
            assert main(command) == 2
            told = capsys.readouterr().err
            assert "is not the text that" in told
            assert message in told
    (tmp_path / "there" / "other.txt").write_text(other)
    assert main(["eval", run, "--task.path", "other.txt"]) == 0
    assert [each["overrides"] for each in RunFolder(Path(run)).evaluations()] == [
        {},
        {"task.path": str(tmp_path / "there" / "other.txt")},
    ]
    book.write_text(text)
    assert main([*resume, "4"]) == 0
    for checkpoint in ("last", "previous"):
        shutil.rmtree(Path(run, checkpoint))
    book.write_text(other)
    assert main([*resume, "4"]) == 2  # though it would begin again


def test_shares_of_a_file(tmp_path):
    (tmp_path / "text").write_text("0123456789" * 19 + "é" * 5)  # 200 bytes
    task = TextFile(8, path=str(tmp_path / "text"), shares=(0.5, 0.255, 0.245))
    task.prepare(CPU)
    texts = [bytes(get_data(task).texts[s].tolist()) for s in ("train", "valid", "test")]
    assert b"".join(text[1:] for text in texts) == (tmp_path / "text").read_bytes()
    assert [len(text) - 1 for text in texts] == [100, 51, 49]

    whole = replace(task, shares=(0.0, 0.0, 1.0))
    whole.prepare(CPU)
    assert bytes(get_data(whole).texts["test"].tolist())[1:] == (tmp_path / "text").read_bytes()
    with pytest.raises(ValueError, match="no train text"):
        whole.batch("train", 0, 2, 0, CPU)
    with pytest.raises(ValueError, match=r"0\.5 0\.2 0\.2"):
        replace(task, shares=(0.5, 0.2, 0.2))


@pytest.mark.parametrize("tokens", ["bytes", "bpe"])
def test_a_file_for_each_split(tmp_path, monkeypatch, tokens):
    if tokens == "bpe":
        pytest.importorskip("tokenizers")
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path / "cache"))
    texts = {"path": TEXT * 50, "valid_path": "the caf\u00e9", "test_path": "of\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    size = {"vocabulary": 265} if tokens == "bpe" else {}
    task = TextFile(8, tokens=tokens, **size, **{name: name for name in texts})
    task.prepare(CPU, tmp_path)  # all are looked for there
    sizes = get_data(task).token_counts[:, 0]
    for split, text in zip(("train", "valid", "test"), texts.values(), strict=True):
        found = get_data(task).texts[split][1:].long()
        assert sizes[found].sum() == len(text.encode())
        if tokens == "bytes":
            assert bytes(found.tolist()) == text.encode()

    without = replace(task, test_path="")
    without.prepare(CPU, tmp_path)
    assert without.chance > 0
    with pytest.raises(ValueError, match="no test text"):
        without.batch("test", 0, 1, 0, CPU)
    with pytest.raises(ValueError, match="test_path without valid_path"):
        replace(task, valid_path="")
    with pytest.raises(ValueError, match=r"shares .*valid_path"):
        replace(task, shares=(0.8, 0.1, 0.1))
    with pytest.raises(ValueError, match="valid_path 'none'"):
        replace(task, valid_path="none").prepare(CPU, tmp_path)
    with pytest.raises(ValueError, match="which text"):
        replace(task, path="").prepare(CPU, tmp_path)
    (tmp_path / "test_path").write_text("")
    with pytest.raises(ValueError, match="0 bytes"):
        task.prepare(CPU, tmp_path)


def test_a_run_of_three_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, length in (("one", 60), ("two", 4), ("three", 4), ("four", 5)):
        Path(name).write_text(article(length))
    words = [
        "train", "text_file", "--task.path", "one", "--task.valid-path", "two", "--task.test-path",
        "three", "--task.context", "16", "--model.width", "16", "--train.steps", "1",
        "--train.batch", "4", "--train.warmup", "1", "--train.device", "cpu", "--out", "run",
    ]  # fmt: skip
    assert main(words) == 0
    paths = [str(tmp_path / name) for name in ("one", "two", "three")]
    task = RunFolder(Path("run")).config()["task"]
    assert [task[name] for name in ("path", "valid_path", "test_path")] == paths
    evaluate = ["eval", "run", "--split", "test"]
    assert main(evaluate) == 0
    assert main([*evaluate, "--task.test-path", "four"]) == 0
    Path("three").write_text(article(4).upper())
    capsys.readouterr()
    assert main(evaluate) == 2
    assert f"task.test_path {paths[2]!r} is not the text that run" in capsys.readouterr().err


def test_the_record_of_one_text_by_an_earlier_version(tmp_path):
    (tmp_path / "text").write_text(article(60))
    task = TextFile(8, path=str(tmp_path / "text"))
    task.prepare(CPU)
    about = json.loads(task.files()["text.json"])["path"]
    (tmp_path / "text.json").write_text(json.dumps(about))
    task.check_data_unchanged(tmp_path)
    (tmp_path / "text.json").write_text(json.dumps(about | {"bytes": 7}))
    with pytest.raises(ValueError, match="7 bytes"):
        task.check_data_unchanged(tmp_path)
