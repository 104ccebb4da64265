"""Texts for language models: windows, or contiguous text with the state carried over."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from surnn.errors import ConfigError

from .base import Batch, Output, Score, Split, Task, Tokens, generator_for
from .batching import get_data, row_numbers, set_data
from .documents import compile_pattern, document_starts

IGNORED = -100
"""Target of padding, the default ``ignore_index`` of cross entropy."""
SPACE = frozenset(b" \t\n\v\f\r")


class Corpus(NamedTuple):
    """Texts as tokens, and counts for each token."""

    texts: dict[Split, Tensor]
    """All tokens of each split. The first is an input only, all others are predicted."""
    token_counts: Tensor
    """[vocabulary, 5] int64, per token: number of bytes, of words that begin inside it and of line
    ends; 1 if it begins with a letter of a word; 1 if a word may begin right after it."""
    starts: dict[Split, Tensor] | None = None
    """For each token of a text, whether a document starts with it; None without documents."""


@dataclass(frozen=True)
class Language(Task):
    """Base of tasks for language models: predict the next token of a text.

    A sequence is a window of ``context`` tokens; its target is the same window, one token later.
    Training windows lie end to end and come in random order. After the first epoch each epoch cuts
    them at other places, so that no token always has the same time step (the last window then ends
    with the text and overlaps the one before it). Windows of validation and test lie end to end (or
    overlap) from the first token of the split to its last, so that every token is predicted once;
    the last window is shorter and padded. Models start each window from the initial state.

    With ``streams``, the text is cut into as many parts as a batch has sequences, and each sequence
    reads its part, window after window. Models start each window in their last state (gradients are
    cut there), and each epoch in the initial state.

    Args:
        context: tokens in a window.
        streams: carry the state from window to window, in validation and test too.
        overlap: tokens at the start of a validation or test window that the window before has
            predicted already. They are read but not counted, so that every token has context.
        documents: a regular expression that matches where a document starts, such as
            ``'\\n = [^=]'`` for WikiText. Windows are packed with documents: the model restarts
            before the first token of each and carries nothing across. By default the text is one
            document.
    """

    looks_ahead: ClassVar[bool] = True
    context: int = 1024
    streams: bool = False
    overlap: int = 0
    documents: str = ""

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
        if self.documents:
            compile_pattern(self.documents)

    @property
    def vocabulary_size(self) -> int:
        """The number of different tokens."""
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
    def is_stateful(self) -> bool:
        return self.streams

    @property
    def has_resets(self) -> bool:
        return bool(self.documents)

    # ------------------------------------------------------------ batches

    def size(self, split: Split) -> int:
        """The number of windows. With streams: n times the number of windows that n streams
        have."""
        targets = len(self._text(split)) - 1
        if split == "train":
            return targets // self.context
        stride = self.context - self.overlap
        return 1 + max(0, -(-(targets - self.context) // stride))

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        text = self._text(split)
        targets = len(text) - 1
        starts_stream = None
        if self.streams:
            starts, ends, first = self._streams(split, number, size, targets)
            starts_stream = torch.tensor(first, device=device)
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
        index.clamp_(max=targets)
        window = text[index].long().to(device)
        starts_document = get_data(self).starts
        reset = None
        if starts_document is not None:
            reset = starts_document[split][index[:, :-1]].to(device)
        x, target = window[:, :-1], window[:, 1:]
        left = ends - starts
        counted = place[:-1] < left[:, None]
        lengths = None
        if (left < self.context).any():
            # An exhausted stream gets one padded time step.
            lengths = left.clamp(1, self.context).to(device)
            x = x.masked_fill(~counted.to(device), 0)
        if split != "train" and self.overlap:
            counted &= (place[:-1] >= self.overlap) | (starts[:, None] == 0)
        if not counted.all():
            target = target.masked_fill(~counted.to(device), IGNORED)
        return Batch(x, target, lengths, starts_stream=starts_stream, reset=reset)

    def _set_texts(
        self, texts: dict[Split, np.ndarray], tokens: list[bytes | None], device: torch.device
    ) -> None:
        """Store the prepared texts, of a vocabulary of ``tokens``."""
        starts: dict[Split, Tensor] | None = None
        if self.documents:
            masks: dict[Split, np.ndarray] = {
                s: document_starts(text, tokens, self.documents) for s, text in texts.items()
            }
            if not any(mask.any() for mask in masks.values()):
                raise ValueError(
                    f"no document starts in the text: nothing matches documents {self.documents!r}"
                )
            starts = {s: torch.from_numpy(mask).to(device) for s, mask in masks.items()}
        on_device: dict[Split, Tensor] = {
            s: torch.from_numpy(text.copy()).to(device) for s, text in texts.items()
        }
        set_data(self, Corpus(on_device, token_counts(tokens).to(device), starts))

    def _text(self, split: Split) -> Tensor:
        texts = get_data(self).texts
        if split not in texts:
            raise ConfigError(f"there is no {split} text: the task's options leave none for it")
        return texts[split]

    def _shift(self, epoch: int, seed: int) -> int:
        """The first token of an epoch's first training window."""
        if epoch == 0:
            return 0
        draw = generator_for(seed, epoch, torch.device("cpu"))
        return int(torch.randint(self.context, (), generator=draw))

    def _streams(
        self, split: Split, number: int, size: int, targets: int
    ) -> tuple[Tensor, Tensor, bool]:
        """Positions of the first token of each window and of the end of each stream, and whether
        the streams start in this batch."""
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
        """Bits per byte, perplexity, and word-normalised perplexity. Words are separated by spaces;
        line ends count as words."""
        target = batch.target.flatten()
        nats = functional.cross_entropy(prediction.flatten(0, 1).float(), target, reduction="sum")
        there = target != IGNORED
        counts = get_data(self).token_counts.to(target.device)
        size, words, lines, letter, _ = counts[target.clamp(min=0)].unbind(-1)
        words = words + lines + letter * counts[batch.x.flatten(), 4]
        return {
            "bits per byte": Score(nats / math.log(2), (size * there).sum()),
            "perplexity": Score(nats, there.sum(), exponential=True),
            "word perplexity": Score(nats, (words * there).sum(), exponential=True),
        }


def token_counts(tokens: list[bytes | None]) -> Tensor:
    """:attr:`Corpus.token_counts` from the bytes of each token; None is a special token."""
    return torch.tensor([_counts(token) for token in tokens], dtype=torch.int64)


def _counts(token: bytes | None) -> list[int]:
    if not token:
        return [0, 0, 0, 0, 1]
    spaces = [byte in SPACE for byte in token]
    inside = sum(before and not now for before, now in pairwise(spaces))
    return [len(token), inside, token.count(b"\n"), not spaces[0], spaces[-1]]


BYTES = [bytes([byte]) for byte in range(256)]
