"""Do two passages of 4,000 bytes come from the same article? A stand-in for the Arena's Retrieval.

Its numbers cannot be compared with those for Retrieval: see :mod:`surnn.tasks.article_pairs`. suGRU
has gates that see time, the bytes and a memory of earlier bytes. The others have its blocks, its
training and as many parameters, within 5 %; a Transformer has half the learning rate. Each model
reads both passages with the same weights.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from surnn.config import FullGateConfig, ModelConfig, ModelKind, RunConfig
from surnn.tasks.article_pairs import ArticlePairs

from .base import IN_CUDNN, add, epochs, recipe

EQUAL: dict[ModelKind, dict[str, Any]] = {
    "gru": {"width": 304}, "s4d": {"width": 480}, "transformer": {"feedforward": 960}
}  # fmt: skip
"""Sizes at which the models have as many parameters, the readout of two passages included."""
NAMES: dict[ModelKind, str] = {
    "gru": "GRUs", "s4d": "diagonal state-space layers", "transformer": "causal attention"
}  # fmt: skip


@recipe()
def article_pairs() -> RunConfig:
    """A stand-in for Retrieval, two passages of enwik8: SuGRU with the full gate."""
    model = ModelConfig(layers=4, width=256, expand=2, pool="mean", dropout=0.1)
    gate = FullGateConfig(conv=8, hidden=32, rate=0.3, target_rate=0.3)
    train = epochs(
        100, 2_852, 32, weight_decay=0.05, rate_penalty=0.1, anneal=(0.5, 0.75),
        evaluate_every=400, cuda_graph=True,
    )  # fmt: skip
    return RunConfig(ArticlePairs(), model, gate, train)


def other(kind: ModelKind) -> RunConfig:
    """The same with another layer and as many parameters."""
    config = article_pairs().with_model(kind, half_state=kind in IN_CUDNN, **EQUAL[kind])
    rate = config.train.learning_rate / (2 if kind == "transformer" else 1)
    return replace(config, train=replace(config.train, learning_rate=rate))


for _kind, _name in NAMES.items():
    _about = f"A stand-in for Retrieval, two passages of enwik8: {_name}, as many parameters."
    add(f"article-pairs-{_kind}", partial(other, _kind), _about)
