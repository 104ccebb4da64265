"""A text of yours: predict its next byte or token."""

import hashlib
import json
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from .base import Batch, Score, Split
from .tokenized import SPLITS, Tokenized, TokenKind

SHORTEST = 100
"""Bytes of which 5 % are two and more, even if a split's end must go past a letter's."""
ON_RECORD = "text.json"
"""In a run's folder: how long the text was, and its checksum."""


@dataclass(frozen=True)
class TextFile(Tokenized):
    """Any file: its first 90 % to train on, 5 % each for validation and test. Bits per byte.

    Beside them the perplexity of tokens and words.

    Args:
        path: the file; also looked for in the folder of --data.
        shares: of the file, for training, validation and test; 0 0 1 evaluates on all of it.
    """

    tokens: TokenKind = "bytes"
    vocabulary: int = 4096
    path: str = ""
    shares: tuple[float, float, float] = (0.9, 0.05, 0.05)

    name: ClassVar[str] = "text_file"
    metric: ClassVar[str] = "bits per byte"
    higher_is_better: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.shares) < 0 or abs(sum(self.shares) - 1) > 1e-6:
            raise ValueError(
                f"shares are {' '.join(f'{share:g}' for share in self.shares)}; expected three "
                "that add up to 1, such as 0.9 0.05 0.05"
            )

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
        if len(text) < SHORTEST:
            least = max(SHORTEST, -(-10 * self.context // 9))
            raise ValueError(
                f"task.path {self.path!r} is too short: it has {len(text)} bytes; expected at "
                f"least {SHORTEST} to split, and about {least:,} to train on windows of "
                f"task.context {self.context}"
            )
        until = [round(share * len(text)) for share in accumulate(self.shares)]
        ends = [_whole_letters(text, end) for end in until]
        splits: dict[Split, bytes] = {
            split: text[begin:end]
            for split, share, begin, end in zip(SPLITS, self.shares, (0, *ends), ends, strict=False)
            if share > 0
        }
        self._keep(splits, device, data)
        about = {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
        object.__setattr__(self, "_about", about)

    def files(self) -> dict[str, str]:
        about = vars(self).get("_about")
        return super().files() | ({} if about is None else {ON_RECORD: json.dumps(about) + "\n"})

    def check_same(self, run: Path) -> None:
        if not (run / ON_RECORD).exists():  # of an earlier version of surnn
            return
        was, now = json.loads((run / ON_RECORD).read_text()), vars(self)["_about"]
        if was != now:
            raise ValueError(
                f"task.path {self.path!r} is not the text that {run} was trained on: it had "
                f"{was['bytes']:,} bytes and has {now['bytes']:,}"
                + (", but others" if was["bytes"] == now["bytes"] else "")
                + ". Bring that back; or evaluate on this one under another name, with "
                "surnn eval --task.path, or train anew"
            )

    def details(self, prediction: Tensor, batch: Batch) -> dict[str, Score]:
        found = self.measures(prediction, batch)
        return {name: score for name, score in found.items() if name != self.metric}


def _whole_letters(text: bytes, at: int) -> int:
    """The first place from ``at`` on that is not inside of a letter of UTF-8."""
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at
