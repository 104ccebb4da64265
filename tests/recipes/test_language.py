"""Sizes of the language models' recipes."""

from dataclasses import replace

import pytest
import torch

from surnn.models.model import SequenceModel
from surnn_recipes import RECIPES


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("enwik8-sugru", 44_299_024),
        ("enwik8-sugru-input", 44_329_744),
        ("enwik8-hybrid", 44_295_616),
        ("enwik8-transformer", 44_250_624),
        ("enwik8-transformer-convolution", 44_272_128),
        ("enwik8-hybrid-plain", 44_277_184),
        ("enwik8-sugru-dropout", 44_299_024),
        ("enwik8-gru", 44_251_648),
        ("wikitext2-sugru", 31_835_688),
        ("wikitext2-hybrid", 31_840_296),
        ("wikitext2-transformer", 32_020_224),
        ("wikitext2-lstm", 31_753_728),
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


def test_convolutions_and_dropout_are_compared_one_at_a_time():
    def options(row):
        config = RECIPES[f"enwik8-{row}"]()
        return config.model.convolution, config.model.dropout

    assert options("hybrid") == options("transformer-convolution") == (4, 0.1)
    assert options("hybrid-plain") == options("transformer") == (1, 0.1)
    assert options("sugru-dropout") == (4, 0.1)
    assert RECIPES["enwik8-hybrid"]().train == RECIPES["enwik8-hybrid-plain"]().train


def test_models_of_words_differ_in_their_layers_only():
    ours = RECIPES["wikitext2-sugru"]()
    for kind in ("hybrid", "transformer", "lstm"):
        config = RECIPES[f"wikitext2-{kind}"]()
        assert config.task == ours.task
        assert config.task.streams
        same = {"learning_rate": ours.train.learning_rate, "rate_penalty": ours.train.rate_penalty}
        assert replace(config.train, **same) == ours.train
        for option in ("width", "convolution", "dropout", "sequence_dropout", "input_dropout"):
            assert getattr(config.model, option) == getattr(ours.model, option)
    hybrid, attention = RECIPES["wikitext2-hybrid"](), RECIPES["wikitext2-transformer"]()
    assert hybrid.model.window == attention.model.window == 2 * ours.task.context
    tokens = 2_088_628
    assert tokens // ours.train.batch // ours.task.context * 4 == ours.train.evaluate_every
