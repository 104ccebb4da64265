"""Texts as windows and streams; bytes, tokens, words."""

import json
import math
import shutil
import tarfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from surnn.cli import main
from surnn.config import GateConfig, ModelConfig, RunConfig, TrainConfig
from surnn.data.registry import DataError
from surnn.models import SequenceModel
from surnn.recipes import RECIPES
from surnn.runs import RunFolder
from surnn.tasks.enwik8 import Enwik8
from surnn.tasks.language import IGNORED, Corpus
from surnn.tasks.stored import kept
from surnn.tasks.text_file import TextFile
from surnn.tasks.wikitext import WikiText2, WikiText103
from surnn.train import Trainer
from tiny_sets import CPU, add, article

TEXT = "caf\u00e9  of\nthe \u4e2d wiki\n"


def corpus(text: bytes = bytes(range(100)) * 3, **options) -> Enwik8:
    """A task on any text: its first byte is given."""
    task = Enwik8(**options)
    split = torch.tensor(list(text), dtype=torch.uint8)
    table = torch.zeros(256, 5, dtype=torch.int64)
    table[:, 0] = 1
    object.__setattr__(
        task, "_kept", Corpus(dict.fromkeys(("train", "valid", "test"), split), table)
    )
    return task


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize(("streams", "overlap"), [(True, 0), (False, 0), (False, 3), (False, 7)])
@pytest.mark.parametrize("size", [1, 4, 7])
def test_every_token_is_predicted_once(size, streams, overlap):
    text = np.random.default_rng(0).integers(0, 256, 101, dtype=np.uint8)
    task = corpus(text.tobytes(), context=8, streams=streams, overlap=overlap)
    predicted = []
    for number in range(-(-task.size("valid") // size)):
        batch = task.batch("valid", number, size, 0, CPU)
        counted = batch.target != IGNORED
        predicted += batch.target[counted].tolist()
        if batch.lengths is not None:
            past = torch.arange(8) >= batch.lengths[:, None]
            assert not counted[past].any()
            assert (batch.x[past] == 0).all()
        assert (batch.fresh is not None and batch.fresh.item() == (number == 0)) == streams
    assert sorted(predicted) == sorted(text[1:].tolist())


def test_overlapping_windows_read_what_they_do_not_count():
    task = corpus(bytes(range(41)), context=8, overlap=5)
    batch = task.batch("valid", 0, task.size("valid"), 0, CPU)
    for x, target in zip(batch.x, batch.target, strict=True):
        counted = target[target != IGNORED]
        assert len(counted) == 3 or x[0] == 0 or 40 in counted
        assert torch.equal(x[target != IGNORED], counted - 1)
        if x[0] > 0:
            assert counted[0] == x[0] + 6  # five before it, and its own input
    assert (task.batch("train", 0, 4, 0, CPU).target != IGNORED).all()  # of evaluations alone


def test_every_epoch_cuts_windows_at_other_places():
    task = corpus(bytes(range(100)), context=8)
    epochs = []
    for epoch in range(5):
        batches = [task.batch("train", 4 * epoch + n, 3, 1, CPU) for n in range(4)]
        assert all(torch.equal(b.x + 1, b.target) and b.lengths is None for b in batches)
        epochs.append(torch.cat([b.x[:, 0] for b in batches]).sort().values)
    assert torch.equal(epochs[0], torch.arange(0, 96, 8))
    shifts = [int(starts[0]) for starts in epochs]
    assert len(set(shifts)) > 2
    assert max(shifts) < 8
    for shift, starts in zip(shifts, epochs, strict=True):  # the last ends with the text
        assert torch.equal(starts, torch.arange(shift, shift + 96, 8).clamp(max=91))
    again = corpus(bytes(range(100)), context=8).batch("train", 9, 3, 1, CPU)
    assert torch.equal(again.x, task.batch("train", 9, 3, 1, CPU).x)
    others = [task.batch("train", number, 12, 2, CPU).x.min().item() for number in range(5)]
    assert others[0] == 0
    assert others != shifts


def test_streams_go_on_where_they_were():
    task = corpus(bytes(range(100)), context=8, streams=True)
    batches = [task.batch("train", number, 3, 0, CPU) for number in range(9)]
    assert [b.fresh.item() for b in batches] == [n % 4 == 0 for n in range(9)]  # four an epoch
    for one, next_one in pairwise(batches[:4]):
        assert torch.equal(next_one.x[:, 0], one.target[:, -1])
    assert torch.equal(batches[0].x[:, 0], torch.tensor([0, 33, 66]))
    assert torch.equal(batches[4].x, batches[0].x)
    assert all(b.lengths is None for b in batches)
    with pytest.raises(ValueError, match="smaller batch or context"):
        task.batch("train", 0, 50, 0, CPU)


@pytest.mark.parametrize(
    "options", [{"context": 0}, {"overlap": -1}, {"context": 4, "overlap": 4},
                {"streams": True, "overlap": 1}],
)  # fmt: skip
def test_wrong_options_are_refused(options):
    with pytest.raises(ValueError, match="expected"):
        Enwik8(**options)


# ---------------------------------------------------------------- bytes, tokens, words


def measured(task, split="test") -> dict[str, float]:
    """Of a model that finds all tokens alike."""
    sums = {}
    for number in range(-(-task.size(split) // 4)):
        batch = task.batch(split, number, 4, 0, CPU)
        alike = torch.zeros(*batch.target.shape, task.output.size)
        for name, score in task.measures(alike, batch).items():
            sums[name] = sums[name] + score if name in sums else score
    return {name: score.value for name, score in sums.items()}


@pytest.mark.parametrize("tokens", ["bytes", "bpe"])
@pytest.mark.parametrize("context", [3, 8])
def test_measures_count_bytes_tokens_and_words(tmp_path, monkeypatch, tokens, context):
    if tokens == "bpe":
        pytest.importorskip("tokenizers")
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "book.txt").write_text(TEXT * 200)
    size = {"vocabulary": 270} if tokens == "bpe" else {}
    task = TextFile(context, path=str(tmp_path / "book.txt"), tokens=tokens, **size)
    task.prepare(CPU)
    text = (tmp_path / "book.txt").read_bytes()[int(0.95 * len(TEXT.encode()) * 200) :].decode()
    count = len(kept(task).texts["test"]) - 1
    nats = count * math.log(task.output.size)
    words = len(text.split()) + text.count("\n")
    found = measured(task)
    assert found["perplexity"] == pytest.approx(task.output.size)
    assert found["bits per byte"] == pytest.approx(nats / math.log(2) / len(text.encode()))
    assert found["word perplexity"] == pytest.approx(math.exp(nats / words), rel=1e-4)
    assert task.chance == pytest.approx(found["bits per byte"], rel=1e-4)
    assert count < len(text.encode()) or tokens == "bytes"


def test_a_tokenizer_is_learned_once_and_spells_the_text(tmp_path, monkeypatch, caplog):
    pytest.importorskip("tokenizers")
    from surnn.data import tokens  # noqa: PLC0415 (an extra)

    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    texts = {"train": (TEXT * 9).encode(), "valid": TEXT.encode(), "test": "\u00df new".encode()}
    written, arrays = tokens.encoded(texts, 265)
    assert len(list(tmp_path.glob("tokens-*.npz"))) == 1
    coder = tokens.load(written, 265)
    assert coder.get_vocab_size() == 265
    spelled = tokens.spelling_of(coder)
    for split, text in texts.items():
        first, *rest = arrays[split].tolist()
        assert coder.id_to_token(first) == tokens.END
        assert b"".join(spelled[token] for token in rest) == text
    monkeypatch.setattr(tokens, "learned", None)  # nobody asks for it again
    again, same_arrays = tokens.encoded(texts, 265)
    assert again == written
    assert all((same_arrays[s] == arrays[s]).all() for s in texts)
    (tmp_path / "tokenizer.json").write_text(written)
    given, _ = tokens.encoded({**texts, "test": b"another"}, 265, str(tmp_path / "tokenizer.json"))
    assert given == written
    with pytest.raises(DataError, match=r"--task\.vocabulary 265"):
        tokens.encoded(texts, 260, str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match="cannot be read"):
        tokens.encoded(texts, 260, str(tmp_path / "none.json"))
    with pytest.raises(DataError, match=r"not UTF-8 .byte 1.; use --task\.tokens bytes"):
        tokens.decoded("train", b"a\xff")
    other = json.loads(written)
    other["pre_tokenizer"] = None  # not byte-level any more
    with pytest.raises(DataError, match="expected a byte-level encoding"):
        tokens.load(json.dumps(other), 265)


@pytest.mark.parametrize("kind", [WikiText103, WikiText2])
def test_wikitext_from_files_to_numbers(kind, data, monkeypatch):
    """All of it at once: an encoding is learned, a model trained, tested in all three measures."""
    pytest.importorskip("tokenizers")
    task = kind(context=16, vocabulary=280)
    config = RunConfig(
        task, ModelConfig(layers=1, width=16, heads=2, block="feedforward", tied_embedding=True),
        GateConfig(rate=0.5),
        TrainConfig(steps=2, batch=4, warmup=1, evaluate_every=2, device="cpu"),
    )  # fmt: skip
    run = trainer_with(config, data)
    found = run.fit()
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]), rel=1e-4)
    text = article(4).encode()
    nats = found["loss"] * (len(kept(task).texts["valid"]) - 1)
    assert found["bits per byte"] == pytest.approx(nats / math.log(2) / len(text), rel=1e-4)
    assert found["word perplexity"] == pytest.approx(
        math.exp(nats / (len(text.split()) + 4)), rel=1e-4
    )
    assert json.loads(task.files()["tokenizer.json"])["model"]["type"] == "BPE"


def trainer_with(config: RunConfig, data: Path):
    return Trainer(config, data=data)


def test_texts_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match="which text"):
        TextFile().prepare(CPU)
    with pytest.raises(ValueError, match="cannot be read"):
        TextFile(path="none.txt").prepare(CPU)
    folder = tmp_path / "wikitext2"
    folder.mkdir()
    with tarfile.open(folder / "wikitext2_valid_test_only.tar.xz", "w:xz") as archive:
        for split in ("valid", "test"):
            add(archive, f"wikitext-2-raw/wiki.{split}.raw", b" = a = ")
    with pytest.raises(DataError, match=r"without its train text.*text_file"):
        WikiText2().prepare(CPU, tmp_path)


def test_a_text_that_is_too_short_is_told_so(tmp_path):
    path = tmp_path / "book.txt"
    path.write_bytes(b"abc")
    task = TextFile(context=900, path=str(path))
    with pytest.raises(ValueError, match=r"has 3 bytes; expected at least 100 .* about 1,000 to"):
        task.prepare(CPU)
    path.write_text("\U0001f600" * 25)  # letters as long as they come: none of them is cut
    task.prepare(CPU)
    with pytest.raises(ValueError, match=r"92 tokens, less than one window of task\.context 900"):
        task.batch("train", 0, 1, 0, CPU)
    path.write_bytes(b"a" * 1000)
    task.prepare(CPU)
    assert task.size("train") == 1


def test_a_run_goes_on_with_the_text_that_it_began_with(tmp_path, monkeypatch, capsys):
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
    texts = [bytes(kept(task).texts[s].tolist()) for s in ("train", "valid", "test")]
    assert b"".join(text[1:] for text in texts) == (tmp_path / "text").read_bytes()
    assert [len(text) - 1 for text in texts] == [100, 51, 49]

    whole = replace(task, shares=(0.0, 0.0, 1.0))
    whole.prepare(CPU)
    assert bytes(kept(whole).texts["test"].tolist())[1:] == (tmp_path / "text").read_bytes()
    with pytest.raises(ValueError, match=r"no train text: the task's options leave none"):
        whole.batch("train", 0, 2, 0, CPU)
    with pytest.raises(ValueError, match=r"shares are 0.5 0.2 0.2; expected three that add up"):
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
    spelled = kept(task).spelling[:, 0]
    for split, text in zip(("train", "valid", "test"), texts.values(), strict=True):
        found = kept(task).texts[split][1:].long()
        assert spelled[found].sum() == len(text.encode())
        if tokens == "bytes":
            assert bytes(found.tolist()) == text.encode()

    without = replace(task, test_path="")
    without.prepare(CPU, tmp_path)
    assert without.chance > 0
    with pytest.raises(ValueError, match="there is no test text"):
        without.batch("test", 0, 1, 0, CPU)
    with pytest.raises(ValueError, match=r"test_path without valid_path .* name both"):
        replace(task, valid_path="")
    with pytest.raises(ValueError, match="shares divide one file, and valid_path names another"):
        replace(task, shares=(0.8, 0.1, 0.1))
    with pytest.raises(ValueError, match=r"task.valid_path 'none' cannot be read"):
        replace(task, valid_path="none").prepare(CPU, tmp_path)
    with pytest.raises(ValueError, match="which text"):
        replace(task, path="").prepare(CPU, tmp_path)
    (tmp_path / "test_path").write_text("")
    with pytest.raises(ValueError, match="the test text has 0 bytes; expected at least 2"):
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
    task.check_same(tmp_path)
    (tmp_path / "text.json").write_text(json.dumps(about | {"bytes": 7}))
    with pytest.raises(ValueError, match="it had 7 bytes and has"):
        task.check_same(tmp_path)


def test_bytes_have_no_vocabulary_to_choose():
    with pytest.raises(ValueError, match="bytes are 256 tokens, and vocabulary is 512"):
        TextFile(vocabulary=512)


def test_a_vocabulary_that_a_text_does_not_fill_is_refused(tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "text").write_text("one and the same word " * 20)
    task = TextFile(8, path=str(tmp_path / "text"), tokens="bpe", vocabulary=1000)
    with pytest.raises(DataError, match=r"has \d+ tokens and task.vocabulary is 1,000; use --task"):
        task.prepare(CPU, tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"no": "tokenizer"}')
    task = replace(task, tokenizer=str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match=r"no tokenizer: .*tokenizer.json"):
        task.prepare(CPU, tmp_path)


# ---------------------------------------------------------------- recipes


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("enwik8-sugru", 44_299_024),
        ("enwik8-sugru-input", 44_329_744),
        ("enwik8-hybrid", 44_295_616),
        ("enwik8-transformer", 44_250_624),
        ("enwik8-gru", 44_251_648),
        ("wikitext103-sugru", 44_583_300),
        ("wikitext103-sugru-slope-5", 44_583_300),
        ("wikitext103-sugru-large", 85_632_512),
        ("wikitext103-hybrid", 47_477_700),
        ("wikitext103-transformer", 44_574_724),
        ("wikitext103-gru", 43_964_100),
    ],
)
def test_recipes_have_as_many_parameters_as_they_say(name, count):
    config = RECIPES[name]()
    task = config.task
    with torch.device("meta"):
        model = SequenceModel(config.model, config.gate, task.input, task.output, task.steps)
    assert sum(p.numel() for p in model.parameters()) == count
    if name.startswith("enwik8"):
        assert (config.train.batch, task.context, config.train.precision) == (64, 1024, "bfloat16")
    else:
        said = [
            word for word in RECIPES[name].about.split() if word[0].isdigit() and word[-1] == "M"
        ]
        assert not said or said[0] == f"{count / 1e6:.1f}M"
