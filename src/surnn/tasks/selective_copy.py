"""Selective Copy: recall sixteen symbols, scattered over a long noise, in order."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from .base import Batch, Output, Score, Split, Tokens
from .batching import check_choice
from .generated import GeneratedTask, Parts, random_places

VOCABULARY = 16
SYMBOLS = 14
"""Data symbols; they are the ids 1 to 14 in both layouts."""
DATA, NOISE, PROMPT = range(3)

Layout = Literal["minrnn", "mamba"]
IDS = {"minrnn": {"noise": 15, "prompt": 0}, "mamba": {"noise": 0, "prompt": 15}}


@dataclass(frozen=True)
class SelectiveCopy(GeneratedTask):
    """Selective Copy.

    Input: tokens out of 16: a body of noise tokens with ``data`` symbols (ids 1 to 14) at distinct
    uniform places, then ``data`` prompt tokens. Target [B, data]: the symbols in order, read at the
    prompt's positions at the end of the sequence; only these have a loss. Training batches are
    generated; validation and test have 4096 fixed sequences each (our choice).

    Args:
        body: time steps before the prompt in the ``"minrnn"`` layout; noise tokens in
            ``"mamba"``'s.
        data: symbols to copy.
        layout: ``"minrnn"``: noise is 15, prompt 0, and ``body`` includes the symbols (4112 time
            steps in all); ``"mamba"``: noise is 0, prompt 15, and symbols are additional (4128).
    """

    body: int = 4096
    data: int = 16
    layout: Layout = "minrnn"

    name: ClassVar[str] = "selective_copy"
    paper: ClassVar[dict[str, float]] = {"GRU": 0.163, "suGRU": 0.972, "suGRU, 3 layers": 0.995}
    kinds: ClassVar[tuple[str, ...]] = ("data", "noise", "prompt")
    fixed_size: ClassVar[int] = 64 * 64
    fixed_seeds: ClassVar[dict[Split, int]] = {"valid": 0, "test": 1}

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, Layout)
        if self.data < 1:
            raise ValueError(f"data is {self.data}; expected at least 1 symbol")
        least = self.data if self.layout == "minrnn" else 0
        if self.body < least:
            raise ValueError(f"body is {self.body}; expected at least {least}, room for the data")

    @property
    def input(self) -> Tokens:
        return Tokens(VOCABULARY)

    @property
    def output(self) -> Output:
        return Output(VOCABULARY, "step")

    @property
    def steps(self) -> int:
        return self._places + self.data

    @property
    def chance(self) -> float:
        return 1 / SYMBOLS

    @property
    def _places(self) -> int:
        """Time steps that may hold data."""
        return self.body if self.layout == "minrnn" else self.body + self.data

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        logits = prediction[:, -self.data :].float()
        return functional.cross_entropy(logits.flatten(0, 1), batch.target.flatten())

    def score(self, prediction: Tensor, batch: Batch) -> Score:
        hits = prediction[:, -self.data :].argmax(-1) == batch.target
        return Score(hits.sum(), torch.tensor(hits.numel(), device=hits.device))

    def draw(self, split: Split, count: int, random: torch.Generator) -> Parts:
        """Symbols of 1 to 14 and their increasing places, both [B, data]."""
        shape = (count, self.data)
        symbols = torch.randint(1, SYMBOLS + 1, shape, generator=random, device=random.device)
        return symbols, random_places(count, self._places, self.data, random)

    def assemble(self, parts: Parts) -> Batch:
        symbols, positions = parts
        count, device = len(symbols), symbols.device
        ids = IDS[self.layout]
        x = torch.full((count, self.steps), ids["noise"], device=device)
        x[:, self._places :] = ids["prompt"]
        kinds = torch.full_like(x, NOISE)
        kinds[:, self._places :] = PROMPT
        x.scatter_(1, positions, symbols)
        kinds.scatter_(1, positions, DATA)
        return Batch(x, symbols, kinds=kinds)
