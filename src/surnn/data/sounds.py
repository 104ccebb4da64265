"""Readers of the sound sets, as 16-bit samples."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from .archives import Limited, members, npz, reading
from .locate import need
from .registry import DataError

NOISES = "_background_noise_"


class Clips(NamedTuple):
    """Spoken digits at 8 kHz, concatenated in ``samples``."""

    samples: np.ndarray
    lengths: np.ndarray
    digit: np.ndarray
    take: np.ndarray
    """The number of the recording among those of its speaker and digit; 0-4 are for testing."""
    speaker: np.ndarray
    """The speaker's name."""


def fsdd(data: Path | None = None) -> Clips:
    """All clips, sorted by file name."""
    stored = need("fsdd", data)
    path = stored.paths[0]
    with reading(path):
        if stored.kind == "packed":
            arrays = npz(path)
            return Clips(*(arrays[k] for k in ("pcm", "lens", "digit", "index", "speaker")))
        clips = {
            name.rsplit("/", 1)[-1]: read_wav(name, content, 8000)
            for name, content in members(path)
            if name.endswith(".wav")
        }
    if not clips:
        raise DataError(f"there are no recordings (DIGIT_SPEAKER_INDEX.wav) in {path}")
    names = sorted(clips)
    parts = [name.removesuffix(".wav").split("_") for name in names]
    return Clips(
        np.concatenate([clips[name] for name in names]),
        np.array([len(clips[name]) for name in names], np.int64),
        np.array([int(part[0]) for part in parts], np.uint8),
        np.array([int(part[-1]) for part in parts], np.uint8),
        np.array([part[1] for part in parts]),
    )


def noise(data: Path | None = None) -> dict[str, np.ndarray]:
    """The noise recordings of Speech Commands at 16 kHz, by name, in sorted order."""
    stored = need("speech_commands_noise", data)
    source = stored.folder if stored.kind == "folder" else stored.paths[0]
    with reading(source):
        recordings = {
            Path(name).stem: read_wav(name, content, 16000)
            for name, content in members(source)
            if name.endswith(".wav") and Path(name).parent.name in ("", NOISES)
        }
    lost = {Path(name).stem for name in stored.entry.layouts[0].files} - recordings.keys()
    if lost:
        raise DataError(
            f"{source} lacks the recordings {', '.join(sorted(lost))}; delete it and fetch it "
            "again: surnn data get speech_commands_noise"
        )
    return dict(sorted(recordings.items()))


def read_wav(name: str, file: Limited, rate: int) -> np.ndarray:
    """The samples of a mono 16-bit WAV file (read here because extra chunks are common)."""
    raw = file.read()
    if raw[:4] != b"RIFF" or raw[8:12] != b"WAVE":
        raise ValueError(f"{name} is not a WAV file")
    at, form = 12, None
    while at + 8 <= len(raw):
        chunk, size = raw[at : at + 4], int.from_bytes(raw[at + 4 : at + 8], "little")
        body = raw[at + 8 : at + 8 + size]
        if chunk == b"fmt ":
            form = tuple(np.frombuffer(body, "<u2", 2)) + tuple(np.frombuffer(body, "<u4", 1, 4))
            bits = int.from_bytes(body[14:16], "little")
            if form != (1, 1, rate) or bits != 16:
                raise ValueError(
                    f"expected 16-bit mono PCM at {rate} Hz in {name}, got {form}, {bits} bits"
                )
        elif chunk == b"data" and form is not None:
            if len(body) < size:
                raise ValueError(f"{name} ends after {len(body)} of {size} bytes of samples")
            return np.frombuffer(body[: len(body) // 2 * 2], "<i2").astype(np.int16)
        at += 8 + size + size % 2
    raise ValueError(f"{name} holds no samples")
