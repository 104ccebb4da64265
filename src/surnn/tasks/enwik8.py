"""enwik8: predict the next byte of Wikipedia."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from .base import Split
from .language import BYTES, Corpus, Language, spelling
from .stored import keep

ENDS: dict[Split, int] = {"train": 90_000_000, "valid": 95_000_000, "test": 100_000_000}


@dataclass(frozen=True)
class Enwik8(Language):
    """Byte-level language modelling of the first 100 MB of Wikipedia: 90 / 5 / 5 million bytes.

    The first byte of validation and test is predicted from the last byte before it; the very first
    byte of all is not predicted. The metric is bits per byte, the mean over bytes. Windows and
    streams: see :class:`~surnn.tasks.language.Language`.
    """

    name: ClassVar[str] = "enwik8"
    metric: ClassVar[str] = "bits per byte"
    higher_is_better: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("enwik8",)

    @property
    def chance(self) -> float:
        return 8.0

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        from ..data.texts import enwik8  # noqa: PLC0415 (only the one who trains reads files)

        text = torch.from_numpy(enwik8(data).copy()).to(device)
        texts: dict[Split, Tensor] = {}
        begin = 0
        for split, end in ENDS.items():
            texts[split] = text[begin:end]
            begin = end - 1
        keep(self, Corpus(texts, spelling(list(BYTES)).to(device)))
