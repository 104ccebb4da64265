"""Copying Memory: ten symbols, a long silence, a signal, and then the ten symbols again.

The blank is a zero vector. "Ours" below marks options that the literature does not have.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from .base import Batch, Output, Score, Split, Values
from .batching import check_choice
from .generated import GeneratedTask, Parts

ALPHABET = 8
BLANK, SIGNAL = 0, ALPHABET + 1
CLASSES = ALPHABET + 2
IGNORED = -100
"""Target of padding, the default ``ignore_index`` of cross entropy."""

LONG = 2000
"""From this delay on, the answer is too small a share of a loss over all positions."""
DATA, DELAY, ANSWER = range(3)

Marker = Literal["one", "fill"]
Noise = Literal["none", "gaussian", "symbols", "uniform"]
Objective = Literal["auto", "all", "recall"]


def memoryless_loss(delay: int, symbols: int = 10) -> float:
    """Cross entropy over all positions of a model that answers at the right time at random."""
    return symbols * math.log(ALPHABET) / (delay + 2 * symbols)


@dataclass(frozen=True)
class Copying(GeneratedTask):
    """Copying Memory.

    Input: first the symbols, each one of 8, then ``delay - 1`` blanks, one signal, and as many
    blanks as symbols; one-hot in 9 channels (8 symbols and the signal), blanks are zero. Target:
    blanks, and the symbols at the end. Training batches are generated; validation and test have
    1000 fixed sequences each, the same on all devices. The metric is accuracy at the answer's
    positions. The cross entropies of the answer and of all positions are logged too.

    Args:
        delay: time steps from the last symbol to the signal.
        symbols: number of symbols to remember.
        marker: ``"one"``: one signal. ``"fill"``: signals up to the end, as in the TCN's version.
        variable: one delay per sequence, uniform in delay/2 to delay, right-padded. Not in the
            paper; prevents a clock gate from memorising fixed times.
        noise: noise in the delay at validation and test, never in training: the paper's stress
            test. ``"gaussian"`` with ``sigma`` or ``"uniform"`` in 0 to 1 for each of the 8 symbol
            channels; ``"symbols"``: one random symbol at each time step. The signal's channel stays
            silent: noise in it would be a false signal. The paper does not specify the noise.
        sigma: standard deviation of gaussian noise.
        objective: the loss. ``"all"``: cross entropy of all positions. ``"recall"``: cross entropy
            of the answer plus 0.1 times that of all positions; not in the paper. ``"auto"``: recall
            if the delay is 2000 or more, else all.
    """

    delay: int = 1000
    symbols: int = 10
    marker: Marker = "one"
    variable: bool = False
    noise: Noise = "none"
    sigma: float = 0.3
    objective: Objective = "auto"

    name: ClassVar[str] = "copying"
    # From the paper's text, for delay 2000; it does not state the kind of noise.
    paper: ClassVar[dict[str, float]] = {
        "GRU": 0.2781,
        "suGRU": 0.8531,
        "GRU, noise": 0.10,
        "suGRU, noise": 0.4856,
    }
    kinds: ClassVar[tuple[str, ...]] = ("data", "delay", "answer")
    fixed_size: ClassVar[int] = 1000
    fixed_seeds: ClassVar[dict[Split, int]] = {"valid": 1001, "test": 1002}

    def __post_init__(self) -> None:
        for option, kind in (("marker", Marker), ("noise", Noise), ("objective", Objective)):
            check_choice(option, getattr(self, option), kind)
        if self.symbols < 1:
            raise ValueError(f"symbols is {self.symbols}; expected at least 1")
        if self.delay < 2:
            raise ValueError(f"delay is {self.delay}; expected at least 2 steps")
        if self.sigma <= 0:
            raise ValueError(
                f"sigma is {self.sigma}; expected more than 0 (noise='none' turns noise off)"
            )

    @property
    def input(self) -> Values:
        return Values(ALPHABET + 1)

    @property
    def output(self) -> Output:
        return Output(CLASSES, "step")

    @property
    def steps(self) -> int:
        return self.delay + 2 * self.symbols

    @property
    def chance(self) -> float:
        return 1 / ALPHABET

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        flat, targets = prediction.float().flatten(0, 1), batch.target.flatten()
        if self._of_all_positions:
            return functional.cross_entropy(flat, targets, ignore_index=IGNORED)
        each = functional.cross_entropy(flat, targets, ignore_index=IGNORED, reduction="none")
        asked = (batch.target != IGNORED).sum(1)
        every = (each.view_as(batch.target).sum(1) / asked).mean()
        logits, symbols = self._answers(prediction, batch)
        recall = functional.cross_entropy(logits.float().flatten(0, 1), symbols.flatten())
        return recall + 0.1 * every

    def weight(self, batch: Batch) -> Tensor | float:
        if self._of_all_positions:
            return (batch.target != IGNORED).sum()
        return super().weight(batch)  # the mean over sequences, whatever their length

    @property
    def _of_all_positions(self) -> bool:
        return self.objective == "all" or (self.objective == "auto" and self.delay < LONG)

    def score(self, prediction: Tensor, batch: Batch) -> Score:
        logits, symbols = self._answers(prediction, batch)
        hits = logits.argmax(-1) == symbols
        return Score(hits.sum(), torch.tensor(hits.numel(), device=hits.device))

    def details(self, prediction: Tensor, batch: Batch) -> dict[str, Score]:
        logits, symbols = self._answers(prediction, batch)
        return {
            "loss of recall": _cross_entropy(logits, symbols),
            "loss of all positions": _cross_entropy(prediction, batch.target),
        }

    def _answers(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits [B, symbols, 10] and targets [B, symbols] at the answer's positions."""
        if batch.lengths is None:
            return prediction[:, -self.symbols :], batch.target[:, -self.symbols :]
        offsets = torch.arange(-self.symbols, 0, device=batch.target.device)
        where = batch.lengths.unsqueeze(1) + offsets
        return (
            prediction.take_along_dim(where.unsqueeze(-1), 1),
            batch.target.take_along_dim(where, 1),
        )

    def draw(self, split: Split, count: int, random: torch.Generator) -> Parts:
        """Symbols [B, symbols] of 1 to 8, delays [B], and noise [B, T, 9] for the blanks of the
        delay."""

        def integers(low: int, high: int, shape: tuple[int, ...]) -> Tensor:
            return torch.randint(low, high + 1, shape, generator=random, device=random.device)

        symbols = integers(1, ALPHABET, (count, self.symbols))
        shortest = (self.delay + 1) // 2 if self.variable else self.delay
        delays = integers(shortest, self.delay, (count,))
        return symbols, delays, None if split == "train" else self._noise(count, random)

    def _noise(self, count: int, random: torch.Generator) -> Tensor | None:
        """Noise [B, T, 9] in the symbols' channels; the last channel, the signal's, is zero."""
        shape, device = (count, self.steps, ALPHABET), random.device
        if self.noise == "none":
            return None
        if self.noise == "symbols":
            symbols = torch.randint(1, ALPHABET + 1, shape[:2], generator=random, device=device)
            return _one_hot(symbols)
        if self.noise == "gaussian":
            values = self.sigma * torch.randn(shape, generator=random, device=device)
        else:
            values = torch.rand(shape, generator=random, device=device)
        return functional.pad(values, (0, 1))

    def assemble(self, parts: Parts) -> Batch:
        symbols, delays, noise = parts
        count, device = len(symbols), symbols.device
        position = torch.arange(self.steps, device=device).expand(count, -1)
        answer = (delays + self.symbols).unsqueeze(1)
        end = answer + self.symbols
        signal = position == answer - 1
        if self.marker == "fill":
            signal = (position >= answer - 1) & (position < end)
        tokens = torch.where(signal, SIGNAL, BLANK)
        tokens[:, : self.symbols] = symbols

        inside = (position >= answer) & (position < end)
        recalled = symbols.take_along_dim((position - answer).clamp(0, self.symbols - 1), 1)
        target = torch.where(inside, recalled, torch.where(position < end, BLANK, IGNORED))

        kinds = torch.where((position >= answer - 1) & (position < end), ANSWER, DELAY)
        kinds[:, : self.symbols] = DATA
        x = _one_hot(tokens)
        if noise is not None:
            silent = (kinds == DELAY) & (position < end)
            x = torch.where(silent.unsqueeze(-1), noise, x)
        return Batch(x, target, end.squeeze(1) if self.variable else None, kinds)


def _cross_entropy(logits: Tensor, target: Tensor) -> Score:
    flat, targets = logits.float().flatten(0, 1), target.flatten()
    total = functional.cross_entropy(flat, targets, ignore_index=IGNORED, reduction="sum")
    return Score(total, (targets != IGNORED).sum())


def _one_hot(tokens: Tensor) -> Tensor:
    return (tokens.unsqueeze(-1) == torch.arange(1, CLASSES, device=tokens.device)).float()
