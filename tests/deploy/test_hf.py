"""Models in Hugging Face's transformers: generation, padding, files, its Trainer."""

import importlib
import os
import re
import subprocess
import sys
from dataclasses import asdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import surnn
from helpers.tiny_sets import article
from surnn.cli.main import main
from surnn.config import InputGateConfig, ModelConfig
from surnn.deploy.engine import LIBRARY

transformers = pytest.importorskip("transformers")  # an extra; surnn.hf itself must be there
hf = importlib.import_module("surnn.deploy.hf")
_tuples = importlib.import_module("surnn.deploy.hf_base")._tuples

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
MODELS = {
    "clock": {},
    "input": {},
    "lstm cell": {"kind": "sulstm"},
    "convolved": {"convolution": 4},
    "far convolved": {"convolution": 12},
    "linear": {"kind": "linear"},
    "hybrid": {"attention_every": 2, "attention_heads": 2},
    "window": {"attention_every": 1, "attention_heads": 2, "window": 4},
    "gru": {"kind": "gru"},
    "mingru": {"kind": "mingru"},
    "transformer": {"kind": "transformer"},
}


def build(kind: str = "clock"):
    torch.manual_seed(0)
    gate = {"kind": "input", "source": "layer"} if kind == "input" else {"rate": 0.5}
    gate = {} if kind in ("gru", "mingru", "linear", "transformer") else gate
    options = {"layers": 2, "width": 32, "tied_embedding": True, **MODELS[kind]}
    config = hf.SuRNNConfig(50, 30, options, gate, pad_token_id=0, eos_token_id=49)
    model = hf.SuRNNForCausalLM(config).eval()
    nn.init.constant_(model.model.norm.norm.weight, 8.0)  # sure of what it says
    for block in model.model.blocks:  # and not always the same
        if hasattr(block, "narrow"):
            nn.init.normal_(block.narrow.weight)
    return model


def prompts(*lengths: int) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randint(1, 49, (n,)) for n in lengths]


def padded(texts: list[torch.Tensor], side: str) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(text) for text in texts)
    ids = torch.zeros(len(texts), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts):
        place = slice(longest - len(text), None) if side == "left" else slice(0, len(text))
        ids[row, place], mask[row, place] = text, 1
    return ids, mask


def ours(model, text: torch.Tensor, tokens: int = 6) -> list[int]:
    return [int(token) for token in surnn.generate(model.model, text[None], tokens, temperature=0)]


def theirs(model, ids: torch.Tensor, mask: torch.Tensor | None = None, **options) -> torch.Tensor:
    found = model.generate(
        ids, attention_mask=torch.ones_like(ids) if mask is None else mask, max_new_tokens=6,
        **{"do_sample": False, "eos_token_id": None, **options},
    )  # fmt: skip
    return found[:, ids.shape[1] :]


@pytest.mark.parametrize("kind", ["clock", "convolved", "window", "transformer", "gru"])
def test_generate_is_ours(kind):
    model = build(kind)
    texts = prompts(6, 6, 6)
    expected = [ours(model, text) for text in texts]
    assert len({token for text in expected for token in text}) > 2
    assert theirs(model, torch.stack(texts)).tolist() == expected
    assert theirs(model, torch.stack(texts), use_cache=False).tolist() == expected


@pytest.mark.parametrize("kind", ["clock", "input", "hybrid"])
def test_a_batch_of_unequal_prompts_goes_on_as_each_alone(kind):
    model = build(kind)
    texts = prompts(6, 2, 4)
    ids, mask = padded(texts, "left")
    found = theirs(model, ids, mask)
    for text, row in zip(texts, found, strict=True):
        assert row.tolist() == ours(model, text)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_padding_moves_neither_states_nor_clocks(kind, side):
    model = build(kind)
    texts = prompts(6, 2, 4)
    ids, mask = padded(texts, side)
    found = model(ids, mask, use_cache=True)
    plain = model(ids, mask)
    assert plain.state is None
    for row, text in enumerate(texts):
        alone = model(text[None], use_cache=True)
        here = found.logits[row][mask[row] == 1]
        torch.testing.assert_close(here, alone.logits[0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(plain.logits[row][mask[row] == 1], here, rtol=1e-4, atol=1e-4)
        state = found.state.select(torch.tensor([row]))
        next_one = model(torch.tensor([[7]]), state=state, use_cache=True)
        after = model(torch.tensor([[7]]), state=alone.state, use_cache=True)
        torch.testing.assert_close(next_one.logits, after.logits, rtol=1e-4, atol=1e-4)
        for one, other in zip(next_one.state.stream.layers, after.state.stream.layers, strict=True):
            if hasattr(one, "gates") or hasattr(one, "keys"):
                assert one.t.flatten().tolist() == other.t.flatten().tolist() == [len(text) + 1]


def test_options_of_an_earlier_version_are_read():
    flat = {"kind": "input", "rate": 0.2, "mode": None, "knots": None, "surrogate": "sigmoid"}
    config = hf.SuRNNConfig(model={"width": 32, "ungated_layers": 1}, gate=flat)
    assert config.gate == asdict(InputGateConfig(rate=0.2))
    assert config.model["ungated_layers"] == 1
    assert hf.SuRNNConfig(model=config.model, gate=config.gate).to_dict() == config.to_dict()


def test_nothing_but_padding_is_refused():
    ids, mask = padded([*prompts(4), torch.tensor([], dtype=torch.long)], "left")
    with pytest.raises(ValueError, match="only padding"):
        build()(ids, mask)


@pytest.mark.parametrize("kind", ["window", "mingru", "convolved"])
def test_beams_and_samples(kind):
    model = build(kind)
    texts = prompts(6, 3)
    ids, mask = padded(texts, "left")
    cached = theirs(model, ids, mask, num_beams=3)
    assert torch.equal(cached, theirs(model, ids, mask, num_beams=3, use_cache=False))
    drawn = theirs(model, ids, mask, do_sample=True, top_k=5, num_return_sequences=3)
    assert drawn.shape == (6, 6)


def test_a_loss_is_that_of_shifted_labels():
    model = build()
    ids, mask = padded(prompts(6, 4), "right")
    labels = ids.masked_fill(mask == 0, -100)
    logits = model(ids, mask).logits
    expected = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    torch.testing.assert_close(model(ids, mask, labels=labels).loss, expected)
    loss, scores = model(ids, mask, labels=labels, return_dict=False, logits_to_keep=1)
    torch.testing.assert_close(loss, expected)
    assert scores.shape == (2, 1, 50)


def test_attentions_are_refused():
    model, ids = build(), prompts(4)[0][None]
    assert model(ids, output_attentions=False).logits is not None
    with pytest.raises(ValueError, match="output_attentions=True: SuRNNForCausalLM"):
        model(ids, output_attentions=True)


@pytest.fixture(scope="module")
def byte_tokenizer(tmp_path_factory):
    """Written and read back."""
    folder = tmp_path_factory.mktemp("bytes")
    hf.tokenizer_of(folder, 256).save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


LETTERS = "".join(
    map(chr, [*range(0x3000), *range(0x3000, 0xD800, 97), *range(0xE000, 0x110000, 97)])
)


def test_bytes_are_their_own_tokens(byte_tokenizer):
    assert byte_tokenizer("\u0100gra").input_ids[:2] == [196, 128]  # not GPT-2's letter for 0
    ids = byte_tokenizer(LETTERS).input_ids
    assert ids == list(LETTERS.encode())
    assert byte_tokenizer.decode(ids) == LETTERS
    assert len(byte_tokenizer) == len(set(byte_tokenizer.convert_ids_to_tokens(range(256)))) == 256
    assert byte_tokenizer.eos_token_id == byte_tokenizer.pad_token_id == 0
    assert byte_tokenizer(["a", "bc"], padding=True).input_ids == [[0, 97], [98, 99]]
    assert byte_tokenizer.decode([0, 97], skip_special_tokens=True) == "a"


@given(st.text())
def test_any_text_is_its_bytes(byte_tokenizer, text):
    ids = byte_tokenizer(text).input_ids
    assert ids == list(text.encode())
    assert byte_tokenizer.decode(ids) == text


FROM_A_FOLDER = """
import sys
from dataclasses import asdict
from pathlib import Path
import transformers

first, second = map(Path, sys.argv[1:])
for folder in (first, second):
    assert "surnn.hf" not in sys.modules or folder is second
    assert (folder / "modeling_surnn.py").exists()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    assert type(model).__module__ == "surnn.deploy.hf"
    type(model).register_for_auto_class("AutoModelForCausalLM")  # some versions do
    if folder is first:
        model.save_pretrained(second)
print(*sorted(path.name for path in second.iterdir()))
"""


def test_a_folder_brings_its_code(tmp_path):
    """In a process that has not imported surnn.hf; and what that saves, too."""
    first, second = tmp_path / "first", tmp_path / "second"
    build().save_pretrained(first)
    done = subprocess.run(
        [sys.executable, "-c", FROM_A_FOLDER, first, second],
        check=False, capture_output=True, text=True,
        env={**os.environ, "HF_MODULES_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        "config.json", "generation_config.json", "model.safetensors", "modeling_surnn.py"
    ]  # fmt: skip
    assert (first / "config.json").read_text() == (second / "config.json").read_text()


@pytest.mark.parametrize("kind", ["clock", "hybrid"])
def test_saved_and_reloaded(kind, tmp_path):
    model = build(kind)
    model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(again, hf.SuRNNForCausalLM)
    assert ModelConfig(**_tuples(again.config.model)) == ModelConfig(**_tuples(model.config.model))
    ids = prompts(9)[0][None]
    assert torch.equal(again.eval()(ids).logits, model(ids).logits)
    tied = sum(p.numel() for p in again.parameters())
    assert tied == sum(p.numel() for p in model.model.parameters())


VOCABULARY = {"bytes": (), "bpe": ("--task.vocabulary", "280")}


def trained(path, tokens: str, *options: str) -> str:
    """The folder of a run."""
    (path / "book.txt").write_text(article(60))
    run = str(path / tokens)
    train = [
        "train", "text_file", "--task.path", str(path / "book.txt"), "--task.tokens", tokens,
        *VOCABULARY[tokens], "--task.context", "16", "--model.width", "32",
        "--model.block", "feedforward", "--train.steps", "20", "--train.batch", "4",
        "--train.warmup", "1", "--train.device", "cpu", "--out", run, *options,
    ]  # fmt: skip
    assert main(train) == 0
    return run


@pytest.fixture
def export(tmp_path, monkeypatch, capsys):
    """The command: its exit status, what it says, and what it says of mistakes."""
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path / "cache"))

    def call(*words: str):
        capsys.readouterr()
        return main(["export", *words, "--to", "hf"]), *capsys.readouterr()

    return call


EVERY_SECOND = ("--gate.kind", "every_n", "--gate.n", "2")
HYBRID = ("--model.layers", "2", "--model.attention-every", "2", "--model.attention-heads", "2")


@pytest.mark.parametrize(("tokens", "options"), [("bytes", HYBRID), ("bpe", EVERY_SECOND)])
def test_a_run_becomes_a_folder(tokens, options, export, tmp_path, capsys):
    run = trained(tmp_path, tokens, *options)
    status, told, _ = export(run, "--checkpoint", "last")
    assert status == 0
    folder = f"{run}/model-hf"
    wrote, checked, use, *lines = told.splitlines()
    assert re.fullmatch(rf"wrote {folder} \(\S+ kB\): last weights \(step 20\)", wrote)
    assert checked == "checked: 400 random steps, largest difference from Python 0.0e+00"
    assert use == "usage:"
    names = {}
    exec("\n".join(line.strip() for line in lines), names)
    model, tokenizer = names["model"], names["tokenizer"]
    assert isinstance(model, hf.SuRNNForCausalLM)
    ids = torch.randint(256, (2, 20))
    last = surnn.load(run, "last").model
    assert torch.equal(model(ids).logits, last(ids))

    text = "the caf\u00e9 of\n  Wiki"
    batch = tokenizer(text, return_tensors="pt")
    ids = batch["input_ids"][0].tolist()
    assert tokenizer.decode(ids) == text
    assert ids == list(text.encode()) or tokens == "bpe"
    found = model.generate(**batch, max_new_tokens=9, eos_token_id=None, do_sample=False)
    expected = tokenizer.decode(found[0])
    capsys.readouterr()
    words = ["--prompt", text, "--temperature", "0", "--tokens", "9"]
    assert main(["generate", run, *words, "--checkpoint", "last"]) == 0
    assert capsys.readouterr().out == expected + "\n"
    if options is EVERY_SECOND and LIBRARY.exists():
        assert main(["export", run, "--to", "engine", "--checkpoint", "last"]) == 0
        capsys.readouterr()
        assert main(["generate", f"{run}/model.surnn", *words]) == 0
        assert capsys.readouterr().out == expected + "\n"
    assert main(["generate", folder]) == 2
    assert f"{folder} is a Hugging Face folder; give the run" in capsys.readouterr().err


def test_a_folder_must_be_whole_and_new(export, tmp_path, monkeypatch):
    run, folder = trained(tmp_path, "bpe", "--train.steps", "1"), tmp_path / "new" / "folder"
    save = hf.SuRNNForCausalLM.save_pretrained

    def save_another(model, path):
        with torch.no_grad():
            model.model.norm.norm.weight += 0.01
        save(model, path)

    with monkeypatch.context() as broken:
        broken.setattr(hf.SuRNNForCausalLM, "save_pretrained", save_another)
        status, told, error = export(run, "--out", str(folder))
    assert (status, told) == (2, "")
    assert "was deleted: 400 random steps, largest difference from Python" in error
    assert not list(folder.parent.iterdir())
    tokenizer = tmp_path / "bpe" / "tokenizer.json"
    tokenizer.rename(tmp_path / "elsewhere")
    status, _, error = export(run, "--out", str(folder))
    assert status == 2
    assert f"No such file or directory: '{tokenizer}'" in error
    folder.mkdir()
    status, _, error = export(run, "--out", str(folder))
    assert status == 2
    assert "folder exists already; remove it, or choose another name with --out" in error
    assert list(folder.parent.rglob("*")) == [folder]


def test_what_is_no_language_model_is_refused(export, tmp_path):
    run = str(tmp_path / "copying")
    main(["train", "copying", "--train.steps", "1", "--train.device", "cpu", "--train.batch", "2",
          "--task.delay", "5", "--model.width", "16", "--model.heads", "2",
          "--train.evaluation-batches", "1", "--out", run])  # fmt: skip
    status, told, error = export(run)
    assert (status, told) == (2, "")
    assert re.search("error: .*copying was trained on copying, .*expected", error)
    assert not (tmp_path / "copying" / "model-hf").exists()


def test_their_trainer_trains_it(tmp_path):
    pytest.importorskip("accelerate")
    model = build().train()
    texts = [{"input_ids": text, "labels": text} for text in torch.randint(1, 5, (8, 12))]
    options = transformers.TrainingArguments(
        str(tmp_path), max_steps=6, per_device_train_batch_size=4, learning_rate=1e-2,
        report_to=[], use_cpu=True, save_steps=6, logging_steps=1, disable_tqdm=True,
    )  # fmt: skip
    trainer = transformers.Trainer(model, options, train_dataset=texts)
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert losses[-1] < losses[0] - 0.1
    assert (tmp_path / "checkpoint-6" / "modeling_surnn.py").exists()
    again = hf.SuRNNForCausalLM.from_pretrained(tmp_path / "checkpoint-6")
    for one, other in zip(again.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)
