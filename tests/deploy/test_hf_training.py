"""Hugging Face's options for training: embeddings, hidden states, checkpointing, classification."""

import importlib

import pytest
import torch
from torch import nn

import surnn
from surnn.tasks import Tokens

transformers = pytest.importorskip("transformers")
hf = importlib.import_module("surnn.deploy.hf")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
IDS = torch.tensor([[3, 5, 7, 9, 11], [2, 4, 6, 0, 0]])
MASK = (IDS != 0).long()


def build(cls="SuRNNForCausalLM", *, tied: bool = True, rate: float = 0.5, **options):
    torch.manual_seed(0)
    model = {"layers": 3, "width": 32, "tied_embedding": tied, **options.pop("model", {})}
    config = hf.SuRNNConfig(50, 30, model, {"rate": rate}, pad_token_id=0, **options)
    return getattr(hf, cls)(config).eval()


@pytest.mark.parametrize("use_cache", [False, True])
def test_embeddings_in_place_of_tokens(use_cache):
    model = build()
    expected = model(IDS, MASK, use_cache=use_cache)
    found = model(
        inputs_embeds=model.get_input_embeddings()(IDS), attention_mask=MASK, use_cache=use_cache
    )
    assert torch.equal(found.logits, expected.logits)
    for wrong in ({}, {"input_ids": IDS, "inputs_embeds": torch.zeros(2, 5, 32)}):
        with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
            model(**wrong)


def test_generation_from_embeddings():
    model = build()
    options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    expected = model.generate(IDS[:1], attention_mask=MASK[:1], **options)[:, 5:]
    embedded = model.get_input_embeddings()(IDS[:1])
    found = model.generate(inputs_embeds=embedded, attention_mask=MASK[:1], **options)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("use_cache", [False, True])
@torch.no_grad()
def test_hidden_states_are_those_of_the_blocks(use_cache):
    model, outputs = build(), []
    for block in model.model.blocks:
        block.register_forward_hook(lambda *parts: outputs.append(parts[-1]))
    plain = model(IDS[:1])
    expected = [model.get_input_embeddings()(IDS[:1]), *(y.transpose(0, 1) for y in outputs)]
    found = model(IDS[:1], output_hidden_states=True, use_cache=use_cache)
    assert len(found.hidden_states) == 4
    for one, other in zip(found.hidden_states[:-1], expected[:-1], strict=True):
        torch.testing.assert_close(one, other)
    assert torch.equal(model.model.head(found.hidden_states[-1]), found.logits)
    assert plain.hidden_states is None
    model.config.output_hidden_states = True
    assert len(model(IDS, MASK).hidden_states) == 4
    padded = model(IDS, MASK).hidden_states[1][1, :3]
    torch.testing.assert_close(padded, model(IDS[1:, :3]).hidden_states[1][0])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("tokens", [60, 40])
def test_the_vocabulary_is_resized(tied, tokens, tmp_path):
    model = build(tied=tied)
    before = model(IDS, MASK).logits[..., :40].detach()
    model.resize_token_embeddings(tokens, mean_resizing=False)
    with torch.no_grad():
        after = model(IDS, MASK)
    assert after.logits.shape[-1] == model.config.vocab_size == tokens
    torch.testing.assert_close(after.logits[..., :40], before)
    assert model(torch.tensor([[tokens - 1]])).logits.isfinite().all()
    model(IDS, MASK, labels=IDS).loss.backward()
    assert model.get_input_embeddings().weight.grad is not None
    model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert torch.equal(again(IDS, MASK).logits, after.logits)
    inner = model.model.eval()
    assert (inner.inputs, inner.output.size) == (Tokens(tokens), tokens)
    engine = surnn.Engine(surnn.export.to_engine(inner, tmp_path / "model.surnn"))
    y = engine.stream().run(IDS[0, :5].numpy())
    torch.testing.assert_close(torch.from_numpy(y), after.logits[0, :5], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_gradients_from_less_memory(reentrant):
    ids = torch.randint(1, 50, (4, 30))
    gradients, kept = [], []
    for checkpointing in (False, True):
        model = build().train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
            assert model.is_gradient_checkpointing
        sizes: list[int] = []

        def pack(tensor, sizes=sizes):
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = model(ids, labels=ids).loss
        kept.append(sum(sizes))
        loss.backward()
        gradients.append([p.grad for p in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
    assert kept[1] < kept[0] / 2


@pytest.mark.parametrize("pool", ["last", "mean"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_class_for_each_sequence(pool, side):
    model = build("SuRNNForSequenceClassification", num_labels=3, model={"pool": pool})
    ids, mask = (IDS, MASK) if side == "right" else (IDS.flip(1), MASK.flip(1))
    scores = model(ids, mask).logits
    assert scores.shape == (2, 3)
    for row in range(2):
        alone = ids[row][mask[row] == 1][None]
        torch.testing.assert_close(model(alone).logits[0], scores[row])
    labels = torch.tensor([2, 0])
    expected = nn.functional.cross_entropy(scores, labels)
    torch.testing.assert_close(model(ids, mask, labels=labels).loss, expected)
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("to", ["SuRNNForSequenceClassification", "SuRNNForCausalLM"])
def test_a_readout_that_the_checkpoint_lacks_is_initialised(tmp_path, to):
    other = {"SuRNNForCausalLM", "SuRNNForSequenceClassification"} - {to}
    build(other.pop(), tied=False).save_pretrained(tmp_path)
    torch.use_deterministic_algorithms(True)  # fills memory that nobody has written with NaN
    try:
        model = getattr(hf, to).from_pretrained(tmp_path)
    finally:
        torch.use_deterministic_algorithms(False)
    for name, parameter in model.named_parameters():
        assert parameter.isfinite().all(), name
    (readout,) = model._readouts().values()
    assert 0 < readout.weight.abs().max() < 1


def test_other_weights_must_be_in_the_checkpoint(tmp_path):
    build(model={"layers": 2}).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"lacks \d+ weights .* model\.blocks\.2"):
        hf.SuRNNForCausalLM.from_pretrained(
            tmp_path, config=build(model={"layers": 3}).config, output_loading_info=True
        )


def test_a_classifier_starts_with_a_language_model_and_learns(tmp_path):
    pytest.importorskip("accelerate")
    language = build(tied=False)
    language.save_pretrained(tmp_path / "language")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "language", num_labels=2
    )
    assert isinstance(model, hf.SuRNNForSequenceClassification)
    for one, other in zip(
        model.model.blocks.parameters(), language.model.blocks.parameters(), strict=True
    ):
        assert torch.equal(one, other)
    ids = torch.randint(2, 20, (16, 8))
    ids[::2, 3] = 30
    texts = [{"input_ids": row, "labels": int(30 in row)} for row in ids]
    options = transformers.TrainingArguments(
        str(tmp_path / "run"), max_steps=60, per_device_train_batch_size=16, learning_rate=1e-2,
        report_to=[], use_cpu=True, save_strategy="no", logging_steps=60, disable_tqdm=True,
        gradient_checkpointing=True,
    )  # fmt: skip
    trainer = transformers.Trainer(model, options, train_dataset=texts)
    trainer.train()
    found = model.eval()(ids).logits.argmax(-1)
    assert (found == torch.tensor([text["labels"] for text in texts])).float().mean() > 0.9
    model.save_pretrained(tmp_path / "classes")
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "classes")
    assert torch.equal(again.eval()(ids).logits, model(ids).logits)
