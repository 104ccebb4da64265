"""lm-eval's harness with our models: its scores and texts are ours, for requests of any lengths."""

import importlib

import pytest
import torch

import surnn

pytest.importorskip("lm_eval", reason="lm-eval is not installed: pip install lm-eval")
hf = importlib.import_module("surnn.deploy.hf")
pytestmark = pytest.mark.filterwarnings("ignore")

QUESTIONS = ["a", "The cat is", "The bird is red.\nThe fish is", ""]
ANSWERS = [" red", " blue and green", "."]


def test_scores_and_texts_are_ours(tmp_path):
    from lm_eval.api.instance import Instance  # noqa: PLC0415
    from lm_eval.models.huggingface import HFLM  # noqa: PLC0415

    torch.manual_seed(0)
    model = hf.SuRNNForCausalLM(hf.SuRNNConfig(256, 64, {"layers": 2, "width": 32}, {"rate": 0.4}))
    with torch.no_grad():
        model.model.norm.norm.weight.mul_(8)  # sure of what it says
    model.save_pretrained(tmp_path)
    hf.tokenizer_of(tmp_path, 256).save_pretrained(tmp_path)
    harness = HFLM(pretrained=str(tmp_path), device="cpu", dtype="float32", batch_size=3)
    pairs = [(question, answer) for question in QUESTIONS for answer in ANSWERS]
    found = harness.loglikelihood(
        [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)], disable_tqdm=True
    )
    model.eval()
    for (question, answer), (score, _) in zip(pairs, found, strict=True):
        tokens = torch.tensor([list(question.encode() or b"\0") + list(answer.encode())])
        logits, _ = model.model(tokens, state=model.model.init_state(1))
        every = logits[0, :-1].log_softmax(-1).gather(1, tokens[0, 1:, None])
        expected = every[-len(answer) :].sum().item()
        assert score == pytest.approx(expected, abs=1e-4)
    options = {"until": ["\0"], "max_gen_toks": 6, "do_sample": False}
    texts = harness.generate_until(
        [
            Instance("generate_until", {}, (q, dict(options)), i)
            for i, q in enumerate(QUESTIONS[:3])
        ],
        disable_tqdm=True,
    )
    for question, text in zip(QUESTIONS, texts, strict=False):
        tokens = surnn.generate(
            model.model, torch.tensor([list(question.encode())]), 6, temperature=0
        )
        expected = bytes(int(token) for token in tokens).decode(errors="replace")
        assert text == expected.split("\0")[0]
