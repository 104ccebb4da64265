"""Selective Copy: sixteen symbols scattered through a long noise, then asked for in order."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .base import Batch, Output, Score, Split, Task, Tokens, generator_for
from .stored import check_choice, row_numbers

VOCABULARY = 16
SYMBOLS = 14
"""Data symbols; they are the ids 1 to 14 in both layouts."""
FIXED_SIZE = 64 * 64
FIXED_SEED = {"valid": 0, "test": 1}
FIXED_NUMBER = -1
"""A batch number that training never has, so that no training seed meets a fixed set."""
DATA, NOISE, PROMPT = range(3)

Layout = Literal["minrnn", "mamba"]
IDS = {"minrnn": {"noise": 15, "prompt": 0}, "mamba": {"noise": 0, "prompt": 15}}


class Draw(NamedTuple):
    """What is random about some sequences."""

    symbols: Tensor
    """[B, data], 1 to 14."""
    positions: Tensor
    """[B, data], increasing."""


@dataclass(frozen=True)
class SelectiveCopy(Task):
    """Selective Copy.

    Input: tokens out of 16: a body of noise tokens with ``data`` symbols (ids 1 to 14) at distinct
    uniform places, then ``data`` prompt tokens. Target [B, data]: the symbols in order, read at the
    prompt's positions, the last of the sequence; the loss is taken there only. Training batches are
    made afresh; 4096 fixed sequences each for validation and test (their size is ours).

    Args:
        body: steps before the prompt in the ``"minrnn"`` layout; noise tokens in ``"mamba"``'s.
        data: symbols to copy.
        layout: ``"minrnn"``: noise is 15, prompt 0, and the symbols are counted in ``body``
            (4112 steps in all); ``"mamba"``: noise is 0, prompt 15, and they come on top (4128).
    """

    body: int = 4096
    data: int = 16
    layout: Layout = "minrnn"

    name: ClassVar[str] = "selective_copy"
    paper: ClassVar[dict[str, float]] = {"GRU": 0.163, "suGRU": 0.972, "suGRU, 3 layers": 0.995}
    kinds: ClassVar[tuple[str, ...]] = ("data", "noise", "prompt")

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
        """Steps that may hold data."""
        return self.body if self.layout == "minrnn" else self.body + self.data

    def size(self, split: Split) -> int | None:
        return None if split == "train" else FIXED_SIZE

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        if split == "train":
            return self._assemble(self._draw(size, generator_for(seed, number, device)))
        rows = row_numbers(split, FIXED_SIZE, number, size, seed).to(device)
        symbols, positions = _fixed(self, split, device)
        return self._assemble(Draw(symbols[rows], positions[rows]))

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        logits = prediction[:, -self.data :].float()
        return functional.cross_entropy(logits.flatten(0, 1), batch.target.flatten())

    def score(self, prediction: Tensor, batch: Batch) -> Score:
        hits = prediction[:, -self.data :].argmax(-1) == batch.target
        return Score(hits.sum(), torch.tensor(hits.numel(), device=hits.device))

    def _draw(self, count: int, random: torch.Generator) -> Draw:
        device = random.device
        shape = (count, self.data)
        symbols = torch.randint(1, SYMBOLS + 1, shape, generator=random, device=device)
        order = torch.rand((count, self._places), generator=random, device=device)
        return Draw(symbols, order.topk(self.data, dim=1).indices.sort(dim=1).values)

    def _assemble(self, draw: Draw) -> Batch:
        count, device = len(draw.symbols), draw.symbols.device
        ids = IDS[self.layout]
        x = torch.full((count, self.steps), ids["noise"], device=device)
        x[:, self._places :] = ids["prompt"]
        kinds = torch.full_like(x, NOISE)
        kinds[:, self._places :] = PROMPT
        x.scatter_(1, draw.positions, draw.symbols)
        kinds.scatter_(1, draw.positions, DATA)
        return Batch(x, draw.symbols, kinds=kinds)


@lru_cache(maxsize=4)
def _fixed(task: SelectiveCopy, split: Split, device: torch.device) -> Draw:
    """Drawn on the CPU, so that all devices have the same."""
    random = generator_for(FIXED_SEED[split], FIXED_NUMBER, torch.device("cpu"))
    symbols, positions = task._draw(FIXED_SIZE, random)
    return Draw(symbols.to(device), positions.to(device))
