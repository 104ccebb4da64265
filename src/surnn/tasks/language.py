"""What language models are trained on: windows of a text, or streams of it."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .base import Batch, Output, Score, Split, Task, Tokens, generator_for
from .stored import kept, row_numbers

IGNORED = -100
"""Target of padding; cross entropy's own default."""
SPACE = frozenset(b" \t\n\v\f\r")


class Corpus(NamedTuple):
    """Texts as tokens, and what the tokens are."""

    texts: dict[Split, Tensor]
    """Of each split, all tokens in a row. The first is given, all others are predicted."""
    spelling: Tensor
    """[vocabulary, 5] int64: of each token its bytes, the words that begin inside it, its lines'
    ends, whether it begins with a word's letter, and whether one may begin right after it."""


@dataclass(frozen=True)
class Language(Task):
    """Base of language models' tasks: predict the next token of a text.

    A sequence is ``context`` tokens, its target the same one token on. Training windows lie end to
    end and come in random order; after the first epoch each epoch cuts them at other places, so
    that no token always comes at the same step of a clock (the last window then ends with the text,
    and overlaps the one before it). Those of validation and test lie end to
    end (or overlap) from the split's first token to its last, so that every token is predicted
    once; the last window is shorter and padded. Models start each window from nothing.

    As streams, the text is cut into as many parts as a batch has sequences, and each sequence goes
    through its part, window after window; models start each window in the state that they ended the
    one before in (gradients end there), and from nothing at the beginning of an epoch.

    Args:
        context: tokens in a window.
        streams: carry the state from window to window, in validation and test too.
        overlap: of windows in validation and test, tokens that the window before has predicted
            already: they are read, and not counted. So every token has so many before it.
    """

    looks_ahead: ClassVar[bool] = True
    context: int = 1024
    streams: bool = False
    overlap: int = 0

    def __post_init__(self) -> None:
        if self.context < 1:
            raise ValueError(f"context is {self.context}; expected at least 1 token")
        if not 0 <= self.overlap < self.context:
            raise ValueError(
                f"overlap is {self.overlap}; expected at least 0 and less than the context, "
                f"{self.context}"
            )
        if self.streams and self.overlap:
            raise ValueError("streams have no windows that could overlap; expected overlap 0")

    @property
    def vocabulary_size(self) -> int:
        """How many tokens there are."""
        return 256

    @property
    def input(self) -> Tokens:
        return Tokens(self.vocabulary_size)

    @property
    def output(self) -> Output:
        return Output(self.vocabulary_size, "step")

    @property
    def steps(self) -> int:
        return self.context

    @property
    def carries(self) -> bool:
        return self.streams

    # ------------------------------------------------------------ batches

    def size(self, split: Split) -> int:
        """Windows. As streams: so many batches of n as n streams have windows, times n."""
        targets = len(self._text(split)) - 1
        if split == "train":
            return targets // self.context
        stride = self.context - self.overlap
        return 1 + max(0, -(-(targets - self.context) // stride))

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        text = self._text(split)
        targets = len(text) - 1
        fresh = None
        if self.streams:
            starts, ends, first = self._streams(split, number, size, targets)
            fresh = torch.tensor(first, device=device)
        else:
            if split == "train" and targets < self.context:
                raise ValueError(
                    f"the training text has {targets:,} tokens, less than one window of "
                    f"task.context {self.context}; use a smaller context"
                )
            rows = row_numbers(split, self.size(split), number, size, seed)
            if split == "train":
                shift = self._shift(number // (self.size(split) // size), seed)
                starts = (rows * self.context + shift).clamp_(max=targets - self.context)
            else:
                starts = rows * (self.context - self.overlap)
            ends = torch.full_like(starts, targets)
        place = torch.arange(self.context + 1)
        index = starts.to(text.device)[:, None] + place.to(text.device)
        window = text[index.clamp_(max=targets)].long().to(device)
        x, target = window[:, :-1], window[:, 1:]
        left = ends - starts
        counted = place[:-1] < left[:, None]
        lengths = None
        if (left < self.context).any():
            lengths = left.clamp(1, self.context).to(device)  # of a stream that is over, one step
            x = x.masked_fill(~counted.to(device), 0)
        if split != "train" and self.overlap:
            counted &= (place[:-1] >= self.overlap) | (starts[:, None] == 0)
        if not counted.all():
            target = target.masked_fill(~counted.to(device), IGNORED)
        return Batch(x, target, lengths, fresh=fresh)

    def _text(self, split: Split) -> Tensor:
        texts = kept(self).texts
        if split not in texts:
            raise ValueError(f"there is no {split} text: the task's options leave none for it")
        return texts[split]

    def _shift(self, epoch: int, seed: int) -> int:
        """Where an epoch's first training window begins."""
        if epoch == 0:
            return 0
        draw = generator_for(seed, epoch, torch.device("cpu"))
        return int(torch.randint(self.context, (), generator=draw))

    def _streams(
        self, split: Split, number: int, size: int, targets: int
    ) -> tuple[Tensor, Tensor, bool]:
        """Where the windows of a batch begin, where streams end, and whether they just begin."""
        stream = torch.arange(size)
        if split != "train":
            length = -(-targets // size)
            starts = stream * length + number * self.context
            return starts, ((stream + 1) * length).clamp_(max=targets), number == 0
        length = targets // size
        windows = length // self.context
        if windows == 0:
            raise ValueError(
                f"{size} streams of {targets:,} tokens have less than a window of {self.context} "
                "each; use a smaller batch or context"
            )
        starts = stream * length + number % windows * self.context
        return starts, starts + self.context, number % windows == 0

    # ------------------------------------------------------------ judgement

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        return functional.cross_entropy(prediction.flatten(0, 1).float(), batch.target.flatten())

    def weight(self, batch: Batch) -> Tensor:
        return (batch.target != IGNORED).sum()

    def score(self, prediction: Tensor, batch: Batch) -> Score:
        return self.measures(prediction, batch)[self.metric]

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Score]:
        """Bits per byte, perplexity, and word-normalised perplexity: words are what stands between
        spaces, and line ends."""
        target = batch.target.flatten()
        nats = functional.cross_entropy(prediction.flatten(0, 1).float(), target, reduction="sum")
        there = target != IGNORED
        spelled = kept(self).spelling.to(target.device)
        size, words, lines, letter, _ = spelled[target.clamp(min=0)].unbind(-1)
        words = words + lines + letter * spelled[batch.x.flatten(), 4]
        return {
            "bits per byte": Score(nats / math.log(2), (size * there).sum()),
            "perplexity": Score(nats, there.sum(), exponential=True),
            "word perplexity": Score(nats, (words * there).sum(), exponential=True),
        }


def spelling(tokens: list[bytes | None]) -> Tensor:
    """:attr:`Corpus.spelling` of tokens, or None for those that are no text."""
    return torch.tensor([_spelled(token) for token in tokens], dtype=torch.int64)


def _spelled(token: bytes | None) -> list[int]:
    if not token:
        return [0, 0, 0, 0, 1]
    spaces = [byte in SPACE for byte in token]
    inside = sum(before and not now for before, now in pairwise(spaces))
    return [len(token), inside, token.count(b"\n"), not spaces[0], spaces[-1]]


BYTES = [bytes([byte]) for byte in range(256)]
