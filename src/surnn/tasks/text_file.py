"""A text of yours: predict its next byte or token."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from .base import Batch, Score
from .tokenized import Tokenized, TokenKind


@dataclass(frozen=True)
class TextFile(Tokenized):
    """Any file: its first 90 % to train on, 5 % each for validation and test. Bits per byte.

    Beside them the perplexity of tokens and words. Windows and streams: see
    :class:`~surnn.tasks.language.Language`; tokens: :class:`~surnn.tasks.tokenized.Tokenized`.

    Args:
        path: the file; also looked for in the folder of --data.
    """

    tokens: TokenKind = "bytes"
    vocabulary: int = 4096
    path: str = ""

    name: ClassVar[str] = "text_file"
    metric: ClassVar[str] = "bits per byte"
    higher_is_better: ClassVar[bool] = False

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        if not self.path:
            raise ValueError("which text? For example: surnn train text_file --task.path book.txt")
        path = Path(self.path).expanduser()
        if data is not None and not path.exists():
            path = data / path
        try:
            text = path.read_bytes()
        except OSError as error:
            raise ValueError(f"task.path {self.path!r} cannot be read: {error}") from error
        train, valid = (_whole_letters(text, int(share * len(text))) for share in (0.9, 0.95))
        splits = {"train": text[:train], "valid": text[train:valid], "test": text[valid:]}
        self._keep(splits, device, data)  # type: ignore[arg-type] (these are the splits)

    def details(self, prediction: Tensor, batch: Batch) -> dict[str, Score]:
        found = self.measures(prediction, batch)
        return {name: score for name, score in found.items() if name != self.metric}


def _whole_letters(text: bytes, at: int) -> int:
    """The first place from ``at`` on that is not inside of a letter of UTF-8."""
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at
