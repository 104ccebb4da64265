"""Texts as tokens of a byte-pair encoding, with the package ``tokenizers``.

Encodings are byte-level, as GPT-2's: they can represent any text, and every token is a sequence of
bytes.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from surnn.data.text_files import read_text

from .cache import Arrays, Progress, load_or_make
from .registry import DataError

END = "<|endoftext|>"
"""Precedes a text, as with GPT-2."""
LINES_AT_A_TIME = 10_000
"""Lines encoded at a time."""


def package() -> Any:
    """The optional package ``tokenizers``."""
    try:
        import tokenizers  # noqa: PLC0415
    except ImportError as error:
        raise DataError(
            "tokenizers is not installed: pip install 'surnn[lm]', or use --task.tokens bytes"
        ) from error
    return tokenizers


def encode_texts(
    texts: Mapping[Any, bytes], vocabulary: int, file: str = "", data: Path | None = None
) -> tuple[str, dict[str, np.ndarray]]:
    """The tokenizer, as the text of its file, and the tokens of each text after a first END.

    Made once and stored in the cache; see :func:`surnn.data.cache.load_or_make`.

    Args:
        texts: by split.
        vocabulary: number of tokens.
        file: a ``tokenizer.json``; without one, an encoding is learned from the text ``train``.
        data: a folder that is searched before the cache.
    """
    package()
    digest = hashlib.sha256()
    for split, text in texts.items():
        digest.update(f"{split} {len(text)} ".encode() + text)
    chosen = _read(file) if file else ""
    header: dict[str, int | str] = {
        "texts": digest.hexdigest(),
        "tokenizer": hashlib.sha256(chosen.encode()).hexdigest() if chosen else "learned",
        "vocabulary": vocabulary,
    }

    def make(progress: Progress) -> Arrays:
        tokenizer = chosen or train_tokenizer(decode_utf8("train", texts["train"]), vocabulary)
        coder = load(tokenizer, vocabulary)
        done, total, arrays = 0, sum(len(text) for text in texts.values()), {}
        for split, text in texts.items():
            parts = [np.array([_end(coder)])]
            for lines in _batches(decode_utf8(split, text)):
                encodings = coder.encode_batch_fast(lines, add_special_tokens=False)
                parts.append(np.array([token for line in encodings for token in line.ids]))
                done += sum(len(line.encode()) for line in lines)
                progress(done, total)
            arrays[split] = np.concatenate(parts).astype(np.int32)
        return {**arrays, "tokenizer": np.array(tokenizer)}

    name = f"tokens-{hashlib.sha256(repr(header).encode()).hexdigest()[:16]}.npz"
    arrays = load_or_make(name, header, make, data)
    return str(arrays.pop("tokenizer")), arrays


def train_tokenizer(text: str, vocabulary: int) -> str:
    """The text of the ``tokenizer.json`` of a byte-level encoding, trained on ``text``.

    It has ``vocabulary`` tokens, or fewer if the text is short.
    """
    kit = package()
    level = kit.pre_tokenizers.ByteLevel
    if vocabulary < 257:
        raise DataError(f"task.vocabulary is {vocabulary}; 256 bytes and {END} make 257 at least")
    tokenizer = kit.Tokenizer(kit.models.BPE())
    tokenizer.pre_tokenizer = level(add_prefix_space=False)
    tokenizer.decoder = kit.decoders.ByteLevel()
    trainer = kit.trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=sorted(level.alphabet()),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return tokenizer.to_str()


def load(tokenizer: str, vocabulary: int) -> Any:
    """A ``tokenizers.Tokenizer`` from its file's text."""
    try:
        coder = package().Tokenizer.from_str(tokenizer)
    except Exception as error:  # tokenizers raises plain Exceptions
        raise DataError(
            f"no tokenizer: {error}; expected the text of a tokenizer.json, as Hugging Face's "
            "tokenizers write them"
        ) from error
    count = coder.get_vocab_size()
    if count != vocabulary:
        raise DataError(
            f"the tokenizer has {count:,} tokens and task.vocabulary is {vocabulary:,}; use "
            f"--task.vocabulary {count}"
        )
    probe = "A\u00e9\n  b\u4e2d."
    result = b"".join(token_bytes(coder)[i] or b"" for i in _ids(coder, probe))
    if result != probe.encode():
        raise DataError(
            f"the tokenizer spells {probe.encode()!r} as {result!r}; expected a byte-level "
            "encoding that keeps every byte, such as GPT-2's tokenizer.json"
        )
    return coder


def token_bytes(coder: Any) -> list[bytes | None]:
    """The bytes of each token; None for special ones."""
    letters = byte_letters()
    special = coder.get_added_tokens_decoder()
    all_bytes: list[bytes | None] = []
    for token in range(coder.get_vocab_size()):
        text = None if token in special else coder.id_to_token(token)
        known = text is not None and all(letter in letters for letter in text)
        all_bytes.append(bytes(letters[letter] for letter in text) if known and text else None)
    return all_bytes


def decode_utf8(split: str, text: bytes) -> str:
    """The text of UTF-8 bytes. ``split`` is its name in an error."""
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"the {split} text is not UTF-8 (byte {error.start:,}); use --task.tokens bytes"
        ) from error


def _read(file: str) -> str:
    try:
        return read_text(Path(file).expanduser())
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"task.tokenizer {file!r} cannot be read: {error}; expected a tokenizer.json, as "
            "Hugging Face's tokenizers write them"
        ) from error


def _batches(text: str) -> Iterator[list[str]]:
    lines = text.splitlines(keepends=True)
    for begin in range(0, len(lines), LINES_AT_A_TIME):
        yield lines[begin : begin + LINES_AT_A_TIME]


def _end(coder: Any) -> int:
    token = coder.token_to_id(END)
    if token is None:
        raise DataError(f"the tokenizer has no {END}, which stands before a text; add it")
    return token


def _ids(coder: Any, text: str) -> list[int]:
    return coder.encode(text, add_special_tokens=False).ids


def byte_letters() -> dict[str, int]:
    """GPT-2's mapping: printable bytes map to themselves, the others to letters from 256 on."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }
