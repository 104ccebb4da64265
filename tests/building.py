"""Small models for tests."""

from dataclasses import replace

import torch

from surnn.config import GateConfig, ModelConfig
from surnn.models import SequenceModel
from surnn.tasks import Output, Tokens

SMALL = ModelConfig(width=32)


def build(given=Tokens(7), wanted=Output(5, "sequence"), steps=20, gate=GateConfig(rate=0.5), **kw):  # noqa: B008
    torch.manual_seed(0)
    return SequenceModel(replace(SMALL, **kw), gate, given, wanted, steps)
