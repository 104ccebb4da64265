"""Texts in tokens of one's choice, bytes or a byte-pair encoding."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from .base import Split
from .language import BYTES, Corpus, Language, spelling
from .stored import check_choice, keep, kept

TokenKind = Literal["bytes", "bpe"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


@dataclass(frozen=True)
class Tokenized(Language):
    """Base of tasks on texts of any kind.

    Args:
        tokens: ``"bytes"``, or ``"bpe"``: a byte-level byte-pair encoding.
        vocabulary: tokens of the encoding.
        tokenizer: its file, a ``tokenizer.json`` such as GPT-2's; learned from the training text if
            there is none. A run's folder keeps it.
    """

    tokens: TokenKind = "bpe"
    vocabulary: int = 50_257
    tokenizer: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("tokens", self.tokens, TokenKind)
        if self.vocabulary < 257:
            raise ValueError(
                f"vocabulary is {self.vocabulary}; expected at least 257, for all bytes and an end"
            )
        if self.tokens == "bytes" and self.vocabulary != type(self).vocabulary:
            raise ValueError(
                f"bytes are 256 tokens, and vocabulary is {self.vocabulary}; expected tokens 'bpe' "
                "with one"
            )
        if self.tokens == "bytes" and self.tokenizer:
            raise ValueError("bytes need no tokenizer; expected tokens 'bpe' with one")

    @property
    def vocabulary_size(self) -> int:
        return 256 if self.tokens == "bytes" else self.vocabulary

    @property
    def chance(self) -> float:
        if self.metric == "perplexity":
            return float(self.vocabulary_size)
        if self.tokens == "bytes":
            return 8.0
        # All tokens alike: their entropy over the bytes that they have in the test text, or in
        # what there is instead.
        corpus = kept(self)
        text = next(corpus.texts[s] for s in reversed(SPLITS) if s in corpus.texts)[1:].long()
        size = corpus.spelling[text, 0].float().mean().item()
        return float(np.log2(self.vocabulary)) / size

    def _keep(self, texts: dict[Split, bytes], device: torch.device, data: Path | None) -> None:
        for split, text in texts.items():
            if len(text) < 2:
                raise ValueError(f"the {split} text has {len(text)} bytes; expected at least 2")
        if self.tokens == "bytes":  # a line's end stands before each text
            tokens = {s: np.frombuffer(b"\n" + text, np.uint8) for s, text in texts.items()}
            spelled: list[bytes | None] = list(BYTES)
            written = {}
        else:
            from ..data.tokens import encoded, load, spelling_of  # noqa: PLC0415 (an extra)

            written, tokens = encoded(texts, self.vocabulary, self.tokenizer, data)
            spelled = spelling_of(load(written, self.vocabulary))
            written = {"tokenizer.json": written}
        on_device: dict[Split, Tensor] = {
            s: torch.from_numpy(tokens[s].copy()).to(device) for s in texts
        }
        keep(self, Corpus(on_device, spelling(spelled).to(device)))
        object.__setattr__(self, "_files", written)

    def files(self) -> dict[str, str]:
        return vars(self).get("_files", {})
