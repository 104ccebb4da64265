"""Speech Commands as log-mel frames, from the canonical wav files or from packed arrays.

The front end, for a clip at 16 kHz: zero-pad or cut it to one second; periodic Hann windows of 640
samples every 320; power of a 640-point real FFT of samples / 32768; 40 triangular mel bands (HTK's
scale) from 20 to 8000 Hz with unit peak; v = ln(power + 1e-6); stored as the integer
round((v + 14) * 255 / 24), clipped to 0..255.
"""

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .archives import members, npz, reading
from .cache import Progress, load_or_make
from .locate import StoredSet, need
from .registry import DataError
from .sounds import NOISES, noise, read_wav

RATE, FRAME, HOP, BANDS = 16_000, 640, 320, 40
"""Samples per second, per frame, between frames; mel bands."""
FRAMES = 1 + (RATE - FRAME) // HOP
"""Frames of a clip of one second."""
LOWEST, HIGHEST = 20.0, 8000.0
"""Hertz."""
FLOOR = 1e-6
"""Added to the power before the logarithm, so that silence is finite."""
OFFSET, STEPS_PER_UNIT = 14.0, 255 / 24
"""Stored integers are (v + OFFSET) * STEPS_PER_UNIT, rounded."""
CORE = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
"""The ten command words, in the order of the official protocol."""
TRAIN, VALID, TEST = range(3)
LISTS = {"validation_list.txt": VALID, "testing_list.txt": TEST}
MOST_PER_WORD = 2**27 - 1
"""Constant of the hash rule."""


class Words(NamedTuple):
    """One-second clips of single words."""

    x: np.ndarray
    """[n, 49, 40] uint8."""
    word: np.ndarray
    """[n] uint8: index into ``words``."""
    split: np.ndarray
    """[n] uint8: 0 train, 1 validation, 2 test. No speaker is in two of them."""
    names: np.ndarray
    """[n] names of the files; the part before ``_nohash_`` is the speaker."""
    words: tuple[str, ...]
    complete: bool
    """Whether all clips of all words are there; packed files have a sample of most words."""


# ---------------------------------------------------------------------------- the front end


def log_mel(samples: np.ndarray) -> np.ndarray:
    """[49, 40] uint8: the frames of a clip of int16 samples, padded or cut to one second."""
    clip = np.zeros(RATE)
    clip[: len(samples)] = samples[:RATE]
    return quantized(mel_power(clip))


def mel_power(samples: np.ndarray) -> np.ndarray:
    """[n, 40] float64: the mel power of every whole frame of int16 samples."""
    if len(samples) < FRAME:
        raise ValueError(f"expected at least {FRAME} samples, one frame; got {len(samples)}")
    scaled = np.asarray(samples, np.float64) / 32768
    frames = np.lib.stride_tricks.sliding_window_view(scaled, FRAME)[::HOP]
    spectrum = np.fft.rfft(frames * _window())
    return (spectrum.real**2 + spectrum.imag**2) @ mel_bands()


def quantized(power: np.ndarray) -> np.ndarray:
    """Mel power as stored integers."""
    v = np.log(power + FLOOR)
    return np.clip(np.round((v + OFFSET) * STEPS_PER_UNIT), 0, 255).astype(np.uint8)


@cache
def _window() -> np.ndarray:
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / FRAME)


@cache
def mel_bands() -> np.ndarray:
    """[321, 40]: weights of the bands, triangles that are evenly spaced in mel."""
    low, high = (2595 * np.log10(1 + hertz / 700) for hertz in (LOWEST, HIGHEST))
    edges = 700 * (10 ** (np.linspace(low, high, BANDS + 2) / 2595) - 1)
    hertz = np.arange(FRAME // 2 + 1)[:, None] * (RATE / FRAME)
    rising = (hertz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - hertz) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rising, falling))


# ---------------------------------------------------------------------------- reading


def speech_commands(data: Path | None = None, progress: Progress | None = None) -> Words:
    """All clips of the set. Wav files are analysed once, and their frames stored in the cache."""
    stored = need("speech_commands", data)
    if stored.kind == "packed":
        parts = []
        for path in stored.paths:
            with reading(path):
                parts.append(npz(path))
        words = tuple(map(str, parts[0]["words"]))
        x, word, split, names = (
            np.concatenate([p[k] for p in parts]) for k in ("x", "y", "split", "name")
        )
        return Words(x, word, split, names, words, complete=False)
    source = stored.folder if stored.kind == "folder" else stored.paths[0]
    arrays = load_or_make(
        "speech_commands_log_mel.npz",
        {"form": 1, **_identity(stored, source)},
        lambda report: _analyse(source, report),
        progress=progress,
    )
    x, word, split, names = (arrays[k] for k in ("x", "word", "split", "names"))
    return Words(x, word, split, names, tuple(map(str, arrays["words"])), complete=True)


def _identity(stored: StoredSet, source: Path) -> dict[str, int | str]:
    """What a cached analysis depends on."""
    if stored.kind == "archive":
        return {"source": source.name, "size": source.stat().st_size}
    clips = sum(1 for _ in source.glob("*/*.wav"))
    return {"source": str(source.resolve()), "clips": clips}


def _analyse(source: Path, report: Progress) -> dict[str, np.ndarray]:
    listed: dict[str, int] = {}
    found: list[tuple[str, str, np.ndarray]] = []
    with reading(source):
        for path, content in members(source, deep=True):
            folder, _, name = path.removeprefix("./").rpartition("/")
            if name in LISTS and not folder.strip("./"):
                lines = content.read().decode().split()
                listed.update(dict.fromkeys(lines, LISTS[name]))
            elif name.endswith(".wav") and folder.rpartition("/")[2] != NOISES:
                word = folder.rpartition("/")[2]
                found.append((word, name, log_mel(read_wav(path, content, RATE))))
                report(len(found), max(len(found), 64_727))
    if not found:
        raise DataError(f"there are no recordings (WORD/NAME.wav) in {source}")
    found.sort(key=lambda clip: clip[:2])
    words = sorted({word for word, _, _ in found})
    splits = [
        listed.get(f"{word}/{name}", TRAIN) if listed else split_of(name) for word, name, _ in found
    ]
    return {
        "x": np.stack([x for _, _, x in found]),
        "word": np.array([words.index(word) for word, _, _ in found], np.uint8),
        "split": np.array(splits, np.uint8),
        "names": np.array([name.removesuffix(".wav") for _, name, _ in found]),
        "words": np.array(words),
    }


def split_of(name: str) -> int:
    """The split of a clip by the official rule, for archives without lists: a hash of the speaker,
    10 % for validation and 10 % for test."""
    speaker = re.sub(r"_nohash_.*$", "", name)
    number = int(hashlib.sha1(speaker.encode()).hexdigest(), 16)
    percentage = number % (MOST_PER_WORD + 1) * (100 / MOST_PER_WORD)
    return VALID if percentage < 10 else TEST if percentage < 20 else TRAIN


def noise_power(data: Path | None = None) -> Iterator[tuple[str, np.ndarray]]:
    """The mel power [n, 40] of each noise recording, with its name."""
    for name, samples in noise(data).items():
        yield name, mel_power(samples)
