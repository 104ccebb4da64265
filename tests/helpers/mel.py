"""The log-mel front end: in C, and its definition in double."""

import ctypes
import subprocess
from pathlib import Path

import numpy as np

from helpers.paths import ROOT

HOP, WINDOW, BANDS = 320, 640, 40


def build_mel(folder: Path, *flags: str) -> ctypes.CDLL:
    """csrc/mel.c as a library."""
    library = folder / "mel.so"
    command = ["cc", "-std=c99", "-O2", "-Wall", "-Wextra", "-pedantic", "-Werror", *flags]
    command += ["-shared", "-fPIC", str(ROOT / "csrc" / "mel.c"), "-o", str(library)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def mel_in_c(library: ctypes.CDLL, samples: np.ndarray) -> np.ndarray:
    """[frames, 40] uint8 of int16 samples."""
    state, bands = ctypes.create_string_buffer(4 + 2 * HOP + 4 * WINDOW), (ctypes.c_uint8 * BANDS)()
    frames = []
    for hop in np.ascontiguousarray(samples[: len(samples) // HOP * HOP]).reshape(-1, HOP):
        if library.surnn_mel_push(state, hop.ctypes.data_as(ctypes.c_void_p), bands):
            frames.append(list(bands))
    return np.array(frames, np.uint8)


def mel_in_double(samples: np.ndarray) -> np.ndarray:
    """The definition: periodic Hann windows, power of a real FFT, triangles in mel, logarithm."""
    low, high = (2595 * np.log10(1 + f / 700) for f in (20, 8000))
    mels = np.linspace(low, high, BANDS + 2)
    edges = 700 * (10 ** (mels / 2595) - 1)
    hertz = np.fft.rfftfreq(WINDOW, 1 / 16000)[:, None]
    rising = (hertz - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - hertz) / np.diff(edges)[1:]
    bands = np.minimum(rising, falling).clip(0)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    frames = np.lib.stride_tricks.sliding_window_view(samples / 32768, WINDOW)[::HOP]
    v = np.log(np.abs(np.fft.rfft(frames * window)) ** 2 @ bands + 1e-6)
    return np.clip(np.round((v + 14) * 255 / 24), 0, 255).astype(np.uint8)
