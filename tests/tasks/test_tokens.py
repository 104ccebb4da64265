"""Texts as bytes and tokens; perplexities per token and word."""

import json
import math
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.tiny_sets import CPU, add, article, write_wikitext2_tokens
from surnn.config import ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.data import texts
from surnn.data.registry import DataError
from surnn.models.model import SequenceModel
from surnn.tasks.batching import get_data
from surnn.tasks.text_file import TextFile
from surnn.tasks.wikitext import WikiText2, WikiText2Words, WikiText103
from surnn.train.evaluate import evaluate
from surnn.train.trainer import Trainer

TEXT = "caf\u00e9  of\nthe \u4e2d wiki\n"


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
    count = len(get_data(task).texts["test"]) - 1
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
    written, arrays = tokens.encode_texts(texts, 265)
    assert len(list(tmp_path.glob("tokens-*.npz"))) == 1
    coder = tokens.load(written, 265)
    assert coder.get_vocab_size() == 265
    each = tokens.token_bytes(coder)
    for split, text in texts.items():
        first, *rest = arrays[split].tolist()
        assert coder.id_to_token(first) == tokens.END
        assert b"".join(each[token] for token in rest) == text
    monkeypatch.setattr(tokens, "train_tokenizer", None)  # not called again
    again, same_arrays = tokens.encode_texts(texts, 265)
    assert again == written
    assert all((same_arrays[s] == arrays[s]).all() for s in texts)
    (tmp_path / "tokenizer.json").write_text(written)
    given, _ = tokens.encode_texts(
        {**texts, "test": b"another"}, 265, str(tmp_path / "tokenizer.json")
    )
    assert given == written
    with pytest.raises(DataError, match=r"--task\.vocabulary 265"):
        tokens.encode_texts(texts, 260, str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match="cannot be read"):
        tokens.encode_texts(texts, 260, str(tmp_path / "none.json"))
    with pytest.raises(DataError, match=r"--task\.tokens bytes"):
        tokens.decode_utf8("train", b"a\xff")
    other = json.loads(written)
    other["pre_tokenizer"] = None  # not byte-level any more
    with pytest.raises(DataError, match="byte-level"):
        tokens.load(json.dumps(other), 265)


@pytest.mark.parametrize("kind", [WikiText103, WikiText2])
def test_wikitext_from_files_to_numbers(kind, data, monkeypatch):
    """All of it at once: an encoding is learned, a model trained, tested in all three measures."""
    pytest.importorskip("tokenizers")
    task = kind(context=16, vocabulary=280)
    config = RunConfig(
        task, ModelConfig(layers=1, width=16, heads=2, block="feedforward", tied_embedding=True),
        RhythmConfig(rate=0.5),
        TrainConfig(steps=2, batch=4, warmup=1, evaluate_every=2, device="cpu"),
    )  # fmt: skip
    run = trainer_with(config, data)
    found = run.fit()
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]), rel=1e-4)
    text = article(4).encode()
    nats = found["loss"] * (len(get_data(task).texts["valid"]) - 1)
    assert found["bits per byte"] == pytest.approx(nats / math.log(2) / len(text), rel=1e-4)
    assert found["word perplexity"] == pytest.approx(
        math.exp(nats / (len(text.split()) + 4)), rel=1e-4
    )
    assert json.loads(task.files()["tokenizer.json"])["model"]["type"] == "BPE"


WORDS = {
    "train": " = One = \n \n the cat , the <unk> \n",
    "valid": " the end \n",
    "test": " the cat \n \n the end \n",
}


@pytest.mark.parametrize("batch", [1, 3])
def test_perplexity_per_word_is_that_of_a_unigram_model(tmp_path, monkeypatch, batch):
    """By hand: types = One <eos> the cat , <unk> end. In the test text <eos> is three of seven
    tokens, the two, cat one, end one; the first word is predicted too, and so is each <eos>."""
    write_wikitext2_tokens(tmp_path, monkeypatch, WORDS)
    task = WikiText2Words(context=2, vocabulary=8)
    task.prepare(CPU, tmp_path)
    shares = {"<eos>": 1 / 4, "=": 1 / 8, "One": 1 / 8, "the": 1 / 4, "cat": 1 / 16, ",": 1 / 16,
              "<unk>": 1 / 16, "end": 1 / 16}  # fmt: skip
    assert sum(shares.values()) == 1
    model = SequenceModel(
        ModelConfig(kind="gru", layers=1, width=4), RhythmConfig(), task.input, task.output, 2
    )
    torch.nn.init.zeros_(model.head.weight)
    model.head.bias.data = torch.tensor(list(shares.values())).log()
    found = evaluate(model, task, "test", batch, CPU)
    bits = 3 * 2 + 2 * 2 + 4 + 4
    assert found["perplexity"] == pytest.approx(2 ** (bits / 7))
    assert task.batch("test", 0, 1, 0, CPU).target.tolist() == [[3, 4]]  # the cat


def test_words_and_lines_are_those_of_the_files(tmp_path, monkeypatch):
    write_wikitext2_tokens(tmp_path, monkeypatch, WORDS)
    task = WikiText2Words(context=2, vocabulary=8, documents="\n = [^=]")
    task.prepare(CPU, tmp_path)
    sizes = get_data(task).token_counts[:, 0]
    for split, text in WORDS.items():
        assert sizes[get_data(task).texts[split][1:].long()].sum() == len(text)
    assert get_data(task).starts["train"].nonzero().tolist() == [[0]]
    with pytest.raises(ValueError, match="8 types; expected 33,278"):
        WikiText2Words().prepare(CPU, tmp_path)


def test_words_of_other_files_are_refused(tmp_path, monkeypatch):
    write_wikitext2_tokens(tmp_path, monkeypatch, WORDS)
    monkeypatch.setitem(texts.WIKITEXT2_TOKENS, "valid", "0" * 64)
    with pytest.raises(DataError, match=r"wiki\.valid\.tokens is not WikiText-2's.*000"):
        texts.wikitext2_tokens(tmp_path)


def trainer_with(config: RunConfig, data: Path):
    return Trainer(config, data=data)


def test_missing_texts(tmp_path, monkeypatch):
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


def test_bytes_have_no_vocabulary_to_choose():
    with pytest.raises(ValueError, match="512"):
        TextFile(vocabulary=512)


def test_a_vocabulary_that_a_text_does_not_fill_is_refused(tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "text").write_text("one and the same word " * 20)
    task = TextFile(8, path=str(tmp_path / "text"), tokens="bpe", vocabulary=1000)
    with pytest.raises(DataError, match=r"1,000; use --task"):
        task.prepare(CPU, tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"no": "tokenizer"}')
    task = replace(task, tokenizer=str(tmp_path / "tokenizer.json"))
    with pytest.raises(DataError, match=r"no tokenizer: .*tokenizer.json"):
        task.prepare(CPU, tmp_path)
