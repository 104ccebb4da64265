"""enwik8: predict the next byte of Wikipedia."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from .base import Split
from .language import BYTES, Language

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
        from surnn.data.texts import enwik8  # noqa: PLC0415 (needed by training only)

        text = enwik8(data)
        texts: dict[Split, np.ndarray] = {}
        begin = 0
        for split, end in ENDS.items():
            texts[split] = text[begin:end]
            begin = end - 1
        self._set_texts(texts, list(BYTES), device)
