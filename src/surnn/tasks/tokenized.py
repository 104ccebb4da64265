"""Texts as bytes or as tokens of a byte-pair encoding."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from .base import Split
from .batching import check_choice, get_data
from .language import BYTES, Language

TokenKind = Literal["bytes", "bpe"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


@dataclass(frozen=True)
class Tokenized(Language):
    """Base of tasks on texts.

    Args:
        tokens: ``"bytes"``, or ``"bpe"``: a byte-level byte-pair encoding.
        vocabulary: number of tokens of the encoding.
        tokenizer: its file, a ``tokenizer.json`` such as GPT-2's; by default the encoding is
            learned from the training text. A run's folder holds a copy.
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
        # All tokens equally likely: their entropy per byte of the test text, or of the text
        # that exists instead.
        corpus = get_data(self)
        text = next(corpus.texts[s] for s in reversed(SPLITS) if s in corpus.texts)[1:].long()
        size = corpus.token_counts[text, 0].float().mean().item()
        return float(np.log2(self.vocabulary)) / size

    def _store(self, texts: dict[Split, bytes], device: torch.device, data: Path | None) -> None:
        for split, text in texts.items():
            if len(text) < 2:
                raise ValueError(f"the {split} text has {len(text)} bytes; expected at least 2")
        if self.tokens == "bytes":  # a line end precedes each text
            tokens = {s: np.frombuffer(b"\n" + text, np.uint8) for s, text in texts.items()}
            token_list: list[bytes | None] = list(BYTES)
            files = {}
        else:
            from surnn.data.tokens import encode_texts, load, token_bytes  # noqa: PLC0415 (an extra)

            tokenizer, tokens = encode_texts(texts, self.vocabulary, self.tokenizer, data)
            token_list = token_bytes(load(tokenizer, self.vocabulary))
            files = {"tokenizer.json": tokenizer}
        self._set_texts({split: tokens[split] for split in texts}, token_list, device)
        object.__setattr__(self, "_files", files)

    def files(self) -> dict[str, str]:
        return vars(self).get("_files", {})
