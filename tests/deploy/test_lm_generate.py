"""Text from language models: step by step, by whole forward passes, and from the C engine."""

import json
import os
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import surnn
from helpers.tiny_sets import article
from surnn.cli.commands.generate import TextCodec, before_stop
from surnn.cli.main import main
from surnn.config import InputGateConfig, ModelConfig, RhythmConfig
from surnn.deploy.engine import LIBRARY
from surnn.deploy.export import to_engine
from surnn.deploy.generation import choose
from surnn.models.model import SequenceModel
from surnn.tasks import Output, Tokens

MODELS = {
    "clock": {},
    "input": {},
    "convolved": {"convolution": 4},
    "hybrid": {"attention_every": 2, "attention_heads": 2},
    "window": {"attention_every": 1, "attention_heads": 2, "window": 4},
    "transformer": {"kind": "transformer"},
    "gru": {"kind": "gru"},
}
ENGINE = ("clock", "input", "convolved", "gru")


def build(kind: str = "clock", vocabulary: int = 50) -> SequenceModel:
    """Random, but sure of what it says: a tie would be broken by rounding."""
    torch.manual_seed(0)
    model = ModelConfig(
        layers=2, width=32, block="feedforward", norm="rms", tied_embedding=True, **MODELS[kind]
    )
    gate = InputGateConfig() if kind == "input" else RhythmConfig(rate=0.5)
    made = SequenceModel(model, gate, Tokens(vocabulary), Output(vocabulary, "step"), 30)
    nn.init.constant_(made.norm.norm.weight, 8.0)
    for block in made.blocks:  # nor does it say the same again and again
        if hasattr(block, "narrow"):
            nn.init.normal_(block.narrow.weight)
    return made


def text_of(model, prompt: torch.Tensor, **options) -> torch.Tensor:
    return torch.stack(list(surnn.generate(model, prompt, 20, **options)), 1)


@pytest.mark.parametrize("kind", MODELS)
def test_greedy_text_is_that_of_whole_forward_passes(kind):
    model = build(kind).eval()
    prompt = torch.randint(0, 50, (3, 7))
    whole = prompt
    for _ in range(20):
        whole = torch.cat((whole, model(whole)[:, -1:].argmax(-1)), 1)
    model.train()
    found = text_of(model, prompt, temperature=0)
    assert torch.equal(found, whole[:, 7:])
    assert len(found.unique()) > 3
    assert model.training


@pytest.mark.skipif(not LIBRARY.exists(), reason="the engine was not built")
@pytest.mark.parametrize("kind", ENGINE)
def test_the_engine_writes_the_same_text(kind, tmp_path):
    model = build(kind)
    engine = surnn.Engine(to_engine(model, tmp_path / "model.surnn"))
    prompt = torch.randint(0, 50, (1, 7))
    assert torch.equal(
        text_of(engine, prompt, temperature=0), text_of(model, prompt, temperature=0)
    )
    with pytest.raises(ValueError, match="one prompt at a time, got 2"):
        text_of(engine, prompt.expand(2, -1))


def test_seeds_repeat():
    model, prompt = build(), torch.zeros(2, 1, dtype=torch.long)
    one, again, other = (text_of(model, prompt, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def drawn(scores: list[float], **options) -> torch.Tensor:
    """How often each token comes."""
    many = torch.tensor([scores]).expand(20_000, -1)
    tokens = choose(many, torch.Generator().manual_seed(0), **options)
    return torch.bincount(tokens, minlength=len(scores)) / len(tokens)


def test_tokens_are_drawn_by_their_probability():
    scores = [0.0, 3.0, 1.0, 2.0]
    close = {"rtol": 0, "atol": 0.02}
    torch.testing.assert_close(drawn(scores), torch.tensor(scores).softmax(0), **close)
    halved = torch.tensor(scores).div(0.5).softmax(0)
    torch.testing.assert_close(drawn(scores, temperature=0.5), halved, **close)
    best = torch.tensor([-torch.inf, 3.0, -torch.inf, 2.0]).softmax(0)
    torch.testing.assert_close(drawn(scores, top_k=2), best, **close)
    # Probabilities are .03, .64, .09, .24: two are needed for .65, one for .6, and one at least.
    torch.testing.assert_close(drawn(scores, top_p=0.65), best, **close)
    assert drawn(scores, top_p=0.6)[1] == drawn(scores, top_p=0.01)[1] == 1
    assert drawn(scores, temperature=0)[1] == drawn(scores, top_k=1)[1] == 1
    torch.testing.assert_close(drawn(scores, top_k=99, top_p=1.0), drawn(scores))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "at least 0, got -1"),
        ({"temperature": float("nan")}, "at least 0, got nan"),
        ({"top_k": 0}, "at least 1, got 0"),
        ({"top_p": 0.0}, "at most 1, got 0.0"),
    ],
)
def test_odd_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):  # before a token is asked for
        surnn.generate(build(), torch.zeros(1, 1, dtype=torch.long), 3, **options)
    with pytest.raises(ValueError, match=r"T at least 1, got .1, 0."):
        surnn.generate(build(), torch.zeros(1, 0, dtype=torch.long), 3)


# ---------------------------------------------------------------- the command


def test_letters_come_whole():
    codec = TextCodec(256, None)
    text = "a\u00e9\u4e2d\n"
    assert codec.encode(text) == list(text.encode())
    assert [codec.decode(codec.to_bytes(byte)) for byte in text.encode()] == [
        "a", "", "\u00e9", "", "", "\u4e2d", "\n"
    ]  # fmt: skip
    assert codec.decode(b"\xc3") == ""
    assert codec.decode(b"x") == "\ufffdx"  # never was one
    codec.decode(b"\xc3")
    assert codec.finish() == "\ufffd"
    assert codec.encode("") == [10]


VOCABULARY = {"bytes": (), "bpe": ("--task.vocabulary", "280")}


@pytest.fixture
def trained(tmp_path, monkeypatch, capsys):
    """The folder of a run of bytes or bpe."""
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path / "cache"))

    def call(tokens: str) -> Path:
        if tokens == "bpe":
            pytest.importorskip("tokenizers")
        (tmp_path / "book.txt").write_text(article(60))
        run = tmp_path / "run"
        train = [
            "train", "text_file", "--task.path", str(tmp_path / "book.txt"), "--task.tokens",
            tokens, *VOCABULARY[tokens], "--task.context", "16", "--model.width", "32",
            "--model.block", "feedforward", "--model.tied-embedding", "--train.steps", "20",
            "--train.batch", "4", "--train.warmup", "1", "--train.device", "cpu", "--out", str(run),
        ]  # fmt: skip
        assert main(train) == 0
        (tmp_path / "book.txt").unlink()  # a run is enough
        capsys.readouterr()
        return run

    return call


@pytest.fixture
def said(capsys):
    """What the command writes; or what it says of a mistake, with ``wrong``."""

    def call(source: Path, *more: str, wrong: bool = False) -> str:
        assert main(["generate", str(source), "--tokens", "40", *more]) == (2 if wrong else 0)
        out, error = capsys.readouterr()
        assert not (wrong and out)
        return error if wrong else out

    return call


def exported(run: Path, capsys) -> Path:
    """Its file for the engine."""
    assert main(["export", str(run), "--to", "engine"]) == 0
    capsys.readouterr()
    return run / "model.surnn"


GREEDY = ("--prompt", "the caf\u00e9", "--temperature", "0")


@pytest.mark.parametrize("tokens", ["bytes", "bpe"])
def test_the_command_writes_from_a_run_and_from_the_engine(tokens, trained, said, tmp_path, capsys):
    run = trained(tokens)
    text = said(run, *GREEDY)
    assert text.startswith("the caf\u00e9")
    assert len(text) > 20
    assert said(run, *GREEDY) == text
    new = said(run, "--temperature", "0")
    first = "\n" if tokens == "bytes" else "<|endoftext|>"
    assert said(run, "--temperature", "0", "--prompt", first) == first + new
    assert said(run)
    if tokens == "bpe":
        (tmp_path / "other.txt").write_text(article(60).upper())  # its own encoding would differ
        read = ["eval", str(run), "--json", "--task.path", str(tmp_path / "other.txt")]
        found = []
        for more in ([], ["--task.tokenizer", str(run / "tokenizer.json")]):
            assert main([*read, *more]) == 0
            found.append(json.loads(capsys.readouterr().out.splitlines()[-1])["bits per byte"])
        assert found[0] == found[1]
    if LIBRARY.exists():
        file = exported(run, capsys)
        assert said(file, *GREEDY) == text
        assert said(file, "--temperature", "0") == new
    if tokens == "bpe":
        elsewhere = (run / "tokenizer.json").rename(tmp_path / "elsewhere.json")
        assert "no tokenizer.json" in said(run, wrong=True)
        if LIBRARY.exists():
            assert said(file, *GREEDY, "--tokenizer", str(elsewhere)) == text


def test_bytes_of_a_shell_that_are_no_text(trained, said, monkeypatch):
    run = trained("bytes")
    asked = []
    model = SequenceModel.forward

    def forward(self, x, *more, **options):
        asked.append(bytes(x[0].tolist()))
        return model(self, x, *more, **options)

    monkeypatch.setattr(SequenceModel, "forward", forward)
    bare = os.fsdecode(b"a\xff\xc3")
    assert said(run, "--prompt", bare, "--temperature", "0").startswith("a\ufffd")
    assert asked == [b"a\xff\xc3"]
    assert "the prompt is not UTF-8 (at character 0, '\\ud800')" in said(
        run, "--prompt", "\ud800", wrong=True
    )


def test_a_letter_may_begin_in_the_prompt():
    codec = TextCodec(256, None)
    bare = os.fsdecode(b"caf\xc3")
    assert codec.echo(codec.encode(bare), bare) == "caf"
    assert codec.decode(b"\xa9") == "\u00e9"


def test_tokens_of_text_need_text(trained, said):
    told = said(trained("bpe"), "--prompt", os.fsdecode(b"\xff\xfe"), wrong=True)
    assert "is not UTF-8 (at character 0, '\\udcff'); only models of bytes take any" in told


@pytest.mark.parametrize(
    ("stop", "parts"),
    [
        ("end", ["an end", ""]),  # not before it is known that it is none
        ("aab", ["aa", "aa", "ab"]),
        ("abab!", ["xabab", "ab!y"]),
        ("caf\u00e9", ["the ca", "f\u00e9 "]),
        ("--", ["-", "a-", "b-", "-"]),
        ("never", ["nev", "e", "n", "neve"]),
        (None, ["all ", "of it"]),
    ],
)
def test_a_text_ends_before_its_stop(stop, parts):
    whole = "".join(parts)
    found, came = [], []

    def coming():
        for part in parts:
            came.append(part)
            yield part.encode()

    for part in before_stop(stop, coming()):
        found.append(part)
        shown = b"".join(found).decode()
        known = "".join(came)
        assert whole.startswith(shown)
        if stop is not None and len(came) < len(parts):
            rest = known[len(shown) :]  # held back is nothing but what may be its beginning
            assert rest == "" or stop.startswith(rest) or stop in known
    assert b"".join(found).decode() == (whole if stop is None else whole.partition(stop)[0])
    bytewise = (bytes([byte]) for byte in whole.encode())
    assert b"".join(before_stop(stop, bytewise)) == b"".join(found)


@pytest.mark.parametrize("tokens", ["bytes", "bpe"])
def test_the_command_stops(tokens, trained, said):
    run = trained(tokens)
    options = ("--prompt", "the ", "--temperature", "0.4")
    whole = said(run, *options)
    written = whole.removeprefix("the ").removesuffix("\n")
    stop = re.findall("[ -~]{3}", written)[1]  # of codec that came whole
    assert said(run, *options, "--stop", stop) == f"the {written.partition(stop)[0]}\n"
    assert said(run, *options, "--stop", "nothing like it") == whole
    assert "--stop is empty" in said(run, "--stop", "", wrong=True)


def test_several_samples_are_of_seeds_in_a_row(trained, said):
    run = trained("bytes")
    each = [said(run, "--prompt", "caf\u00e9", "--seed", seed) for seed in ("4", "5", "6")]
    assert len(set(each)) == 3
    together = said(run, "--prompt", "caf\u00e9", "--seed", "4", "--samples", "3")
    assert together == "".join(
        f"----- seed {seed} -----\n{text}" for seed, text in zip((4, 5, 6), each, strict=True)
    )
    assert "--samples must be at least 1, got 0" in said(run, "--samples", "0", wrong=True)
    told = said(run, "--samples", "2", "--temperature", "0", wrong=True)
    assert "--samples needs random samples" in told


def test_a_prompt_from_a_file_or_a_pipe(trained, said, tmp_path, monkeypatch, capsys):
    run = trained("bytes")
    (tmp_path / "prompt").write_bytes("two lines\r\nof caf\u00e9\n".encode())
    whole = said(run, "--prompt", "two lines\r\nof caf\u00e9\n")
    assert said(run, "--prompt-file", str(tmp_path / "prompt")) == whole
    with (tmp_path / "prompt").open() as pipe:
        monkeypatch.setattr("sys.stdin", pipe)
        assert said(run, "--prompt-file", "-") == whole
    told = said(run, "--prompt-file", str(tmp_path / "none"), wrong=True)
    assert "none cannot be read" in told
    with pytest.raises(SystemExit):
        main(["generate", str(run), "--prompt", "a", "--prompt-file", "-"])
    assert "--prompt-file: not allowed with argument --prompt" in capsys.readouterr().err


def test_options_without_effect_are_refused(trained, said, capsys, tmp_path):
    run = trained("bytes")
    for name in ("--top-k", "--top-p"):
        told = said(run, "--temperature", "0", name, "1", wrong=True)
        assert f"{name} needs random samples, and --temperature 0 always takes" in told
        assert said(run, "--temperature", "1", name, "1")
    assert "at least 0, got -1" in said(run, "--prompt", "a", "--temperature", "-1", wrong=True)
    for count in ("0", "-3"):
        assert f"at least 1, got {count}" in said(run, "--tokens", count, wrong=True)
    words = ("--tokenizer", str(tmp_path / "tokenizer.json"))
    assert "--tokenizer is for a .surnn file" in said(run, *words, wrong=True)
    assert said(run, "--checkpoint", "last", "--device", "cpu")
    if LIBRARY.exists():
        file = exported(run, capsys)
        assert "are bytes and need no --tokenizer" in said(file, *words, wrong=True)
        assert "--checkpoint is for a run" in said(file, "--checkpoint", "best", wrong=True)
        assert "--device is for a run" in said(file, "--device", "cpu", wrong=True)


def test_what_is_no_language_model_is_refused(tmp_path, capsys):
    train = ["train", "copying", "--task.delay", "5", "--model.width", "16", "--train.steps", "1"]
    assert main([*train, "--train.device", "cpu", "--out", str(tmp_path / "run")]) == 0
    assert main(["generate", str(tmp_path / "run")]) == 2
    assert "trained on copying, which is not text" in capsys.readouterr().err
    assert main(["generate", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["generate", str(tmp_path / "none.surnn")]) == 2
    assert f"there is no file {tmp_path / 'none.surnn'}" in capsys.readouterr().err
