"""Small models for tests."""

from dataclasses import replace

import torch

from surnn.config import ModelConfig, RhythmConfig
from surnn.models.model import SequenceModel
from surnn.tasks import Output, Tokens

SMALL = ModelConfig(width=32)
INPUTS, OUTPUT, GATE = Tokens(7), Output(5, "sequence"), RhythmConfig(rate=0.5)


def build(inputs=INPUTS, output=OUTPUT, steps=20, gate=GATE, **options):
    """A model of width 32 with fixed random weights; ``options`` are those of ModelConfig."""
    torch.manual_seed(0)
    return SequenceModel(replace(SMALL, **options), gate, inputs, output, steps)
