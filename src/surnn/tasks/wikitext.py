"""WikiText: predict the next token of selected Wikipedia articles."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from .base import Batch, Score, Split
from .language import Language
from .tokenized import SPLITS, Tokenized

END_OF_LINE = b"<eos>"


@dataclass(frozen=True)
class WikiText103(Tokenized):
    """WikiText-103 raw, 540 MB of training text: perplexity per token.

    Also logged, to compare models with other tokens: the word-normalised perplexity (the loss per
    word; line ends count as words) and bits per byte. All tokens of a split are predicted. The
    paper does not name its tokens; ours are GPT-2's if you name its tokenizer.json, or as many
    learned from the training text. Windows and streams: see
    :class:`~surnn.tasks.language.Language`; tokens: :class:`~surnn.tasks.tokenized.Tokenized`.
    """

    context: int = 256

    name: ClassVar[str] = "wikitext103"
    metric: ClassVar[str] = "perplexity"
    higher_is_better: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("wikitext103",)
    paper: ClassVar[dict[str, float]] = {
        "Transformer": 18.44, "suGRU": 19.20, "suGRU(100M)": 18.29, "Hybrid-GRU": 18.03
    }  # fmt: skip

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        from surnn.data.registry import DataError  # noqa: PLC0415 (needed by training only)
        from surnn.data.texts import wikitext  # noqa: PLC0415

        texts = wikitext(self.needs[0], data)
        if lacking := [split for split in SPLITS if split not in texts]:
            raise DataError(
                f"{self.needs[0]} is here without its {' and '.join(lacking)} text; fetch it: "
                f"surnn data get {self.needs[0]}, or train on a file of yours: surnn train "
                "text_file --task.path FILE"
            )
        self._store({split: texts[split] for split in SPLITS}, device, data)

    def details(self, prediction: Tensor, batch: Batch) -> dict[str, Score]:
        scores = self.measures(prediction, batch)
        return {name: score for name, score in scores.items() if name != self.metric}


@dataclass(frozen=True)
class WikiText2(WikiText103):
    """WikiText-2 raw, 11 MB of training text: perplexity per token.

    Otherwise like :class:`WikiText103`.
    """

    vocabulary: int = 16_384

    name: ClassVar[str] = "wikitext2"
    needs: ClassVar[tuple[str, ...]] = ("wikitext2",)
    paper: ClassVar[dict[str, float]] = {}


@dataclass(frozen=True)
class WikiText2Words(Language):
    """WikiText-2 word by word, as in the literature: perplexity per word.

    The words are those of the published files, where rare ones are ``<unk>``; each line ends with
    ``<eos>``. That makes 2,088,628, 217,646 and 245,569 tokens of 33,278 types. All are predicted
    and counted, the first of each file from an ``<eos>`` before it. The state is carried through
    the text; see ``streams`` in :class:`~surnn.tasks.language.Language`. A test reads as many
    parts of the text at a time as its batch has sequences: with ``surnn eval --batch 1`` one part,
    the whole text.

    Args:
        vocabulary: number of types, to check the files.
    """

    context: int = 128
    streams: bool = True
    vocabulary: int = 33_278

    name: ClassVar[str] = "wikitext2_words"
    metric: ClassVar[str] = "perplexity"
    higher_is_better: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ("wikitext2_tokens",)

    @property
    def vocabulary_size(self) -> int:
        return self.vocabulary

    @property
    def chance(self) -> float:
        return float(self.vocabulary)

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        from surnn.data.texts import wikitext2_tokens  # noqa: PLC0415 (needed by training only)

        files = wikitext2_tokens(data)
        types: dict[bytes, int] = {END_OF_LINE: 0}
        texts: dict[Split, np.ndarray] = {}
        for split in SPLITS:
            lines = ([*line.split(), END_OF_LINE] for line in files[split].splitlines())
            numbers = [types.setdefault(word, len(types)) for line in lines for word in line]
            texts[split] = np.array([0, *numbers], np.int32)
        if len(types) != self.vocabulary:
            raise ValueError(f"the text has {len(types):,} types; expected {self.vocabulary:,}")
        # Spelled as in the files, where each word has a space after it and each line one before it.
        self._set_texts(texts, [b"\n ", *(word + b" " for word in [*types][1:])], device)
