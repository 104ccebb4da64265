"""Any text file: predict its next byte or token."""

import hashlib
import json
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from surnn.data.text_files import read_text

from .base import Batch, Score, Split
from .tokenized import SPLITS, Tokenized, TokenKind

PATHS = ("path", "valid_path", "test_path")
"""Options that name files; only the first is required."""
SHORTEST = 100
"""Bytes of the shortest text whose 5 % are two bytes, even if a split moves past a letter."""
ON_RECORD = "text.json"
"""File in a run's folder with the length and the checksum of each text."""


@dataclass(frozen=True)
class TextFile(Tokenized):
    """Any file: its first 90 % for training, 5 % each for validation and test. Bits per byte.

    The perplexities per token and per word are logged too.

    Args:
        path: the file; it may also lie in the folder of --data.
        shares: shares of the file for training, validation and test; 0 0 1 tests on all of it.
        valid_path: another file for validation; all of ``path`` is then for training.
        test_path: another file for the test, optional.
    """

    tokens: TokenKind = "bytes"
    vocabulary: int = 4096
    path: str = ""
    shares: tuple[float, float, float] = (0.9, 0.05, 0.05)
    valid_path: str = ""
    test_path: str = ""

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
        if self.test_path and not self.valid_path:
            raise ValueError(
                "test_path without valid_path leaves no text to validate on: name both, or let "
                "shares divide path. To evaluate on all of another text: --task.path OTHER "
                "--task.shares 0 0 1"
            )
        if self.valid_path and self.shares != type(self).shares:
            raise ValueError(
                "shares divide one file, and valid_path names another: leave out one of them. To "
                "evaluate on all of another text: --task.test-path OTHER"
            )

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        if not self.path:
            raise ValueError("which text? For example: surnn train text_file --task.path book.txt")
        texts = {name: self._read(name, data) for name in PATHS if getattr(self, name)}
        apart = dict(zip(SPLITS, texts.values(), strict=False))
        self._store(apart if self.valid_path else self._split_bytes(texts["path"]), device, data)
        about = {
            name: {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
            for name, text in texts.items()
        }
        object.__setattr__(self, "_about", about)

    def _read(self, name: str, data: Path | None) -> bytes:
        named = getattr(self, name)
        path = Path(named).expanduser()
        if data is not None and not path.exists():
            path = data / path
        try:
            return path.read_bytes()
        except OSError as error:
            raise ValueError(f"task.{name} {named!r} cannot be read: {error}") from error

    def _split_bytes(self, text: bytes) -> dict[Split, bytes]:
        if len(text) < SHORTEST:
            least = max(SHORTEST, -(-10 * self.context // 9))
            raise ValueError(
                f"task.path {self.path!r} is too short: it has {len(text)} bytes; expected at "
                f"least {SHORTEST} to split, and about {least:,} to train on windows of "
                f"task.context {self.context}"
            )
        until = [round(share * len(text)) for share in accumulate(self.shares)]
        ends = [_next_character_start(text, end) for end in until]
        return {
            split: text[begin:end]
            for split, share, begin, end in zip(SPLITS, self.shares, (0, *ends), ends, strict=False)
            if share > 0
        }

    def files(self) -> dict[str, str]:
        about = vars(self).get("_about")
        return super().files() | ({} if about is None else {ON_RECORD: json.dumps(about) + "\n"})

    def named_files(self) -> tuple[str, ...]:
        return tuple(getattr(self, name) for name in PATHS if getattr(self, name))

    def check_data_unchanged(self, run: Path) -> None:
        if not (run / ON_RECORD).exists():  # a run of an earlier version of surnn
            return
        before = json.loads(read_text(run / ON_RECORD))
        if "bytes" in before:  # one file, as an earlier version wrote it
            before = {"path": before}
        for name, was in before.items():
            now = vars(self)["_about"][name]
            if was != now:
                raise ValueError(
                    f"task.{name} {getattr(self, name)!r} is not the text that {run} was trained "
                    f"on: it had {was['bytes']:,} bytes and has {now['bytes']:,}"
                    + (", but others" if was["bytes"] == now["bytes"] else "")
                    + ". Bring that back; or evaluate on this one under another name, with "
                    f"surnn eval --task.{name.replace('_', '-')}, or train again"
                )

    def details(self, prediction: Tensor, batch: Batch) -> dict[str, Score]:
        scores = self.measures(prediction, batch)
        return {name: score for name, score in scores.items() if name != self.metric}


def _next_character_start(text: bytes, at: int) -> int:
    """The first position from ``at`` on that is not inside a UTF-8 character."""
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at
