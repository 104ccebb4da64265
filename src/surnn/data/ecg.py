"""Reader of the MIT-BIH arrhythmia database: WFDB signals (format 212) and annotations."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from .archives import members, npz, reading
from .locate import need
from .registry import DataError

# Codes of an annotation file; codes that are not listed are not used.
SYMBOLS = dict(enumerate(" NLRaVFJASEj/Q~", 0)) | {
    16: "|", 18: "s", 19: "T", 20: "*", 21: "D", 22: '"', 23: "=", 24: "p", 25: "B", 26: "^",
    27: "t", 28: "+", 29: "u", 30: "?", 31: "!", 32: "[", 33: "]", 34: "e", 35: "n", 36: "@",
    37: "x", 38: "f", 39: "(", 40: ")", 41: "r",
}  # fmt: skip
_SKIP, _NUM, _SUB, _CHANNEL, _TEXT = 59, 60, 61, 62, 63


class Record(NamedTuple):
    """The first lead of a recording at 360 Hz, and its annotations."""

    signal: np.ndarray
    """int16 [T], as recorded."""
    at: np.ndarray
    """int64 [A], the time step of each annotation."""
    symbols: list[str]
    """[A] its symbol: ``N`` is a normal beat, ``+`` a change of rhythm, and so on."""


def mitbih(data: Path | None = None) -> dict[str, Record]:
    """All recordings, by name."""
    stored = need("mitbih", data)
    source = stored.folder if stored.kind == "folder" else stored.paths[0]
    with reading(source):
        return _packed(source) if stored.kind == "packed" else _wfdb(source)


def _packed(path: Path) -> dict[str, Record]:
    arrays = npz(path)
    low, high = arrays["delta_lo"].astype(np.uint16), arrays["delta_hi"].astype(np.uint16)
    signals = np.cumsum((low | high << 8).view(np.int16)[:, 0], axis=1, dtype=np.int16)
    ends = arrays["ann_offset"]
    return {
        str(name): Record(
            signals[i],
            arrays["ann_sample"][ends[i] : ends[i + 1]].astype(np.int64),
            [str(symbol) for symbol in arrays["ann_symbol"][ends[i] : ends[i + 1]]],
        )
        for i, name in enumerate(arrays["records"])
    }


def _wfdb(source: Path) -> dict[str, Record]:
    files: dict[str, dict[str, bytes]] = {}
    for name, content in members(source):
        path = Path(name)
        if path.stem.isdigit() and path.suffix in (".hea", ".dat", ".atr"):
            files.setdefault(path.stem, {})[path.suffix] = content.read()
    whole = {name: parts for name, parts in files.items() if len(parts) == 3}
    if not whole:
        raise DataError(f"there are no records (.hea, .dat and .atr) in {source}")
    return {
        name: Record(first_lead(parts[".dat"], parts[".hea"]), *annotations(parts[".atr"]))
        for name, parts in sorted(whole.items())
    }


def first_lead(signal: bytes, header: bytes) -> np.ndarray:
    """Samples of the first lead. Format 212 packs two 12-bit samples of alternating leads into
    three bytes: two low bytes around one that holds both high halves."""
    lines = [line.split() for line in header.decode("ascii").splitlines() if line[:1] != "#"]
    leads, steps = int(lines[0][1]), int(lines[0][3])
    if lines[1][1] != "212":
        raise ValueError(f"signal format {lines[1][1]} instead of 212")
    count = leads * steps
    packed = np.frombuffer(signal, np.uint8, -(-count // 2) * 3).reshape(-1, 3).astype(np.int16)
    even = packed[:, 0] | (packed[:, 1] & 0x0F) << 8
    odd = packed[:, 2] | (packed[:, 1] & 0xF0) << 4
    samples = np.stack([even, odd], axis=1).reshape(-1)[:count]
    return np.where(samples > 2047, samples - 4096, samples)[::leads].astype(np.int16)


def annotations(raw: bytes) -> tuple[np.ndarray, list[str]]:
    """Steps and symbols. Words of 16 bits: a code (6 bits) and the steps since the last one."""
    words = np.frombuffer(raw[: len(raw) // 2 * 2], "<u2").tolist()
    at, steps, symbols, i = 0, [], [], 0
    while i < len(words):
        code, interval = words[i] >> 10, words[i] & 0x3FF
        i += 1
        if code == 0 and interval == 0:
            break
        if code == _SKIP:  # a long interval follows, high word first
            skipped = words[i] << 16 | words[i + 1]
            at += skipped - (1 << 32) if skipped >> 31 else skipped
            i += 2
        elif code == _TEXT:
            i += (interval + 1) // 2
        elif code not in (_NUM, _SUB, _CHANNEL):
            at += interval
            steps.append(at)
            symbols.append(SYMBOLS.get(code, "?"))
    return np.array(steps, np.int64), symbols
