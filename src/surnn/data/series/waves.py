"""WAV files as sequences: the logarithms of mel bands, or frames of raw samples."""

import os
import wave
from functools import lru_cache
from pathlib import Path

import numpy as np

from surnn.data import DataError
from surnn.data.text_files import open_regular

MAX_RATE = 1 << 20
"""Most samples a second: the memory of a spectrum follows the rate that a file claims."""
UNKNOWN_SIZE = 0x7FFFF000
"""Bytes from which on a size means that a program wrote to a pipe and did not know it."""
FLOOR = 1e-6
"""Added to energies before the logarithm, so that silence is finite."""


def read_wave(path: Path) -> tuple[np.ndarray, int]:
    """Samples from -1 to 1, channels averaged, and the sampling rate."""
    try:
        with os.fdopen(open_regular(path), "rb") as raw_file, wave.open(raw_file) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            raw = file.readframes(file.getnframes())
            claimed = file.getnframes() * channels * width
            if len(raw) < claimed < UNKNOWN_SIZE:
                raise EOFError(f"it ends early, after {len(raw):,} of {claimed:,} bytes")
    except (wave.Error, EOFError, OSError) as error:
        reason = str(error) or "it ends early"
        raise DataError(
            f"{path} cannot be read as a PCM WAV file: {reason}. Convert it, for example with "
            "ffmpeg -i IN OUT.wav"
        ) from error
    if width > 4 or not 0 < rate <= MAX_RATE:
        raise DataError(
            f"{path} claims {8 * width} bits and {rate} samples a second; expected 8, 16, 24 or 32 "
            f"bits and at most {MAX_RATE}"
        )
    if width == 3:  # 24 bits: shift them into the upper bytes of 32
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        samples = wide.view("<i4")[:, 0] / 2**31
    elif width == 1:
        samples = np.frombuffer(raw, np.uint8) / 128 - 1
    else:
        samples = np.frombuffer(raw, f"<i{width}") / 2 ** (8 * width - 1)
    return samples.reshape(-1, channels).mean(1), rate


def wave_features(
    samples: np.ndarray, rate: int, bands: int, frame_ms: float, hop_ms: float
) -> np.ndarray:
    """[T, bands] log energies every ``hop_ms``; [T, hop] raw samples if ``bands`` is 0."""
    hop = max(1, round(rate * hop_ms / 1000))
    if bands == 0:
        count = max(1, -(-len(samples) // hop))
        return np.pad(samples, (0, count * hop - len(samples))).reshape(count, hop)
    size = max(hop, round(rate * frame_ms / 1000))
    samples = np.pad(samples, (0, max(0, size - len(samples))))
    frames = np.lib.stride_tricks.sliding_window_view(samples, size)[::hop] * np.hanning(size)
    points = 1 << (size - 1).bit_length()
    power = np.abs(np.fft.rfft(frames, points)) ** 2
    return np.log(power @ mel_bands(rate, points, bands) + FLOOR)


@lru_cache(maxsize=4)
def mel_bands(rate: int, points: int, bands: int) -> np.ndarray:
    """[points / 2 + 1, bands] triangles, evenly spaced in mel from 20 Hz to half the rate."""
    low, high = (1127 * np.log1p(hertz / 700) for hertz in (20, rate / 2))
    edges = 700 * np.expm1(np.linspace(low, high, bands + 2) / 1127)
    hertz = np.linspace(0, rate / 2, points // 2 + 1)[:, None]
    rising = (hertz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - hertz) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rising, falling))
