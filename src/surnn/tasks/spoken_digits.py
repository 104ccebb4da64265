"""Recognise a spoken digit somewhere in a long recording of noise or silence."""

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .base import Batch, Classification, Output, Split, Values, generator_for
from .batching import check_choice, get_data, row_numbers, set_data

RATE = 8000
FRAME, HOP, FFT, BANDS = 200, 80, 256, 40  # samples: 25 ms every 10 ms
LOUDNESS = 0.1
"""Root mean square of every clip, relative to full scale."""
FLOOR = 1e-6
"""Added to the energies before the logarithm, so that silence is finite."""
KEPT_NOISE = 0.8
"""Share of each noise recording for training; the rest is for validation and test."""
DIGIT, BACKGROUND = range(2)

Background = Literal["noise", "white", "silence"]
Features = Literal["filterbank", "raw"]
TAKES: dict[Split, tuple[int, int]] = {"train": (10, 50), "valid": (5, 10), "test": (0, 5)}


class Clips(NamedTuple):
    """Spoken digits of a split on the device, concatenated, all equally loud."""

    samples: Tensor
    starts: Tensor
    lengths: Tensor
    digits: Tensor


class Noise(NamedTuple):
    """Background on the device: samples, and the stretches [S, 2] that a split may take."""

    samples: Tensor
    train: Tensor
    other: Tensor


class Scene(NamedTuple):
    """The random parts of recordings: the start of the clip, the stretch of noise (first sample and
    length), and the offset into it."""

    clip_at: Tensor
    noise_from: Tensor
    noise_span: Tensor
    noise_at: Tensor


@dataclass(frozen=True)
class SpokenDigits(Classification):
    """Clips of the Free Spoken Digit Dataset (8 kHz), each at a random place in a long background.

    Recordings 0-4 of each speaker and digit are the official test (300 clips), 5-9 are for
    validation (300), 10-49 for training (2,400). Training positions and noise are drawn for every
    batch; those of validation and test are fixed, and their noise comes from the last fifth of each
    noise recording, which training does not use. The metric is accuracy over ten digits.

    All speakers are in all splits, unless one is left out: with ``new_speaker`` the test is all of
    that speaker's clips (500), and training (2,000) and validation (250) have the clips of the
    other five only. Six such runs, one for each speaker, test on every clip once.

    Args:
        seconds: length of a recording; longer clips are cut.
        background: ``"noise"`` from Speech Commands, ``"white"`` noise (nothing to download), or
            ``"silence"``.
        snr_db: power of the clip over that of the noise, in decibels.
        features: ``"filterbank"``: the logarithms of 40 triangular mel bands of 25 ms frames every
            10 ms, [B, frames, 40], standardised as a whole over training recordings; or the
            ``"raw"`` samples [B, samples, 1], in units of the clip's loudness.
        new_speaker: the speaker whose clips are the test, and who is in no other split: george,
            jackson, lucas, nicolas, theo or yweweler. By default nobody is left out.
    """

    seconds: float = 4.0
    background: Background = "noise"
    snr_db: float = 10.0
    features: Features = "filterbank"
    new_speaker: str = ""

    name: ClassVar[str] = "spoken_digits"
    kinds: ClassVar[tuple[str, ...]] = ("digit", "background")
    needs: ClassVar[tuple[str, ...]] = ("fsdd", "speech_commands_noise")

    def __post_init__(self) -> None:
        check_choice("background", self.background, Background)
        check_choice("features", self.features, Features)
        if self.samples < FRAME:
            raise ValueError(f"seconds is {self.seconds}; expected at least {FRAME / RATE}")

    @property
    def samples(self) -> int:
        return round(self.seconds * RATE)

    @property
    def input(self) -> Values:
        return Values(1 if self.features == "raw" else BANDS)

    @property
    def output(self) -> Output:
        return Output(10, "sequence")

    @property
    def steps(self) -> int:
        return self.samples if self.features == "raw" else 1 + (self.samples - FRAME) // HOP

    @property
    def chance(self) -> float:
        return 0.1

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        cpu = torch.device("cpu")  # drawn on the CPU, so that fixed sets agree on all devices
        clips, noise = _clips(data, self.new_speaker), self._noise(data)
        scenes: dict[Split, Scene] = {
            split: self._draw(own.lengths, noise.other, generator_for(0, number, cpu))
            for number, (split, own) in enumerate(clips.items())
            if split != "train"
        }
        like = (0.0, 1.0)
        set_data(self, (clips, noise, scenes, like))
        if (
            self.features == "filterbank"
        ):  # mean and deviation of the features, from some training recordings
            some = self.batch("train", 0, min(256, self.size("train")), 0, cpu).x
            like = (some.mean().item(), some.std().item())
        noise = Noise(*(part.to(device) for part in noise))
        set_data(self, (_on(device, clips), noise, _on(device, scenes), like))

    def size(self, split: Split) -> int:
        return len(get_data(self)[0][split].digits)

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        clips, noise, scenes, (mean, std) = get_data(self)
        chosen: Clips = clips[split]
        count, home = len(chosen.digits), chosen.digits.device
        rows = row_numbers(split, count, number, size, seed).to(home)
        lengths = chosen.lengths[rows]
        if split == "train":
            scene = self._draw(lengths, noise.train, generator_for(seed, number, home))
        else:
            scene = Scene(*(part[rows] for part in scenes[split]))
        sound = self._mix(chosen, rows, scene, noise.samples)
        if self.features == "filterbank":
            x = (log_bands(sound) - mean) / std
        else:
            x = (sound / LOUDNESS).unsqueeze(-1)
        kinds = self._kinds(scene.clip_at, lengths)
        return Batch(x.to(device), chosen.digits[rows].to(device), kinds=kinds.to(device))

    def _draw(self, lengths: Tensor, stretches: Tensor, generator: torch.Generator) -> Scene:
        device = lengths.device
        places, noises, which = torch.rand(3, len(lengths), device=device, generator=generator)
        clip_at = (places * ((self.samples - lengths).clamp(min=0) + 1)).long()
        first, last = stretches[(which * len(stretches)).long()].unbind(1)
        span = last - first
        return Scene(clip_at, first, span, (noises * span).long())

    def _mix(self, clips: Clips, rows: Tensor, scene: Scene, noise: Tensor) -> Tensor:
        """[B, samples]: the clip at its position, over background at the signal-to-noise ratio."""
        steps = torch.arange(self.samples, device=rows.device)
        inside = steps - scene.clip_at[:, None]
        spoken = (inside >= 0) & (inside < clips.lengths[rows][:, None])
        index = (clips.starts[rows][:, None] + inside).clamp_(0, len(clips.samples) - 1)
        sound = clips.samples[index] * spoken
        if self.background == "silence":
            return sound
        into = (scene.noise_at[:, None] + steps) % scene.noise_span[:, None]  # the stretch repeats
        hiss = noise[scene.noise_from[:, None] + into]
        loudness = LOUDNESS * 10 ** (-self.snr_db / 20)
        scale = loudness / hiss.square().mean(1, keepdim=True).sqrt().clamp_(min=1e-8)
        return sound + hiss * scale

    def _kinds(self, clip_at: Tensor, lengths: Tensor) -> Tensor:
        """A time step has the kind ``digit`` if any of its samples belongs to the clip."""
        width, hop = (1, 1) if self.features == "raw" else (FRAME, HOP)
        first = torch.arange(self.steps, device=clip_at.device) * hop
        start, end = clip_at[:, None], (clip_at + lengths)[:, None]
        return torch.where((first + width > start) & (first < end), DIGIT, BACKGROUND)

    def _noise(self, data: Path | None) -> Noise:
        if self.background == "noise":
            from surnn.data.sounds import noise  # noqa: PLC0415 (needed by training only)

            recordings = [_half_rate(samples) for samples in noise(data).values()]
        else:  # unused with silence
            generator = torch.Generator().manual_seed(0)
            recordings = [torch.randn(60 * RATE, generator=generator).numpy()]
        ends = np.cumsum([len(samples) for samples in recordings])
        starts = ends - [len(samples) for samples in recordings]
        cuts = (starts + KEPT_NOISE * (ends - starts)).astype(np.int64)
        samples = np.concatenate([r / max(1e-8, np.abs(r).max()) for r in recordings])
        return Noise(
            torch.from_numpy(samples.astype(np.float32)),
            torch.from_numpy(np.stack([starts, cuts], 1)),
            torch.from_numpy(np.stack([cuts, ends], 1)),
        )


def _clips(data: Path | None, new_speaker: str) -> dict[Split, Clips]:
    from surnn.data.sounds import fsdd  # noqa: PLC0415 (needed by training only)

    digits = fsdd(data)
    is_new = digits.speaker == new_speaker
    if new_speaker and not is_new.any():
        speakers = ", ".join(np.unique(digits.speaker))
        raise ValueError(f"new_speaker is {new_speaker!r}; expected one of {speakers}")
    lengths = digits.lengths.astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    samples = digits.samples.astype(np.float32)
    power = np.add.reduceat(samples**2, starts) / lengths
    samples *= np.repeat(LOUDNESS / np.sqrt(np.maximum(power, 1e-8)), lengths).astype(np.float32)
    heard = torch.from_numpy(samples)
    splits: dict[Split, Clips] = {}
    for split, (first, last) in TAKES.items():
        chosen = (digits.take >= first) & (digits.take < last) & ~is_new
        if split == "test" and new_speaker:
            chosen = is_new
        parts = (starts[chosen], lengths[chosen], digits.digit[chosen].astype(np.int64))
        splits[split] = Clips(heard, *(torch.from_numpy(part) for part in parts))
    return splits


def _on(device: torch.device, parts: dict[Split, Any]) -> dict[Split, Any]:
    """Named tuples of tensors, on the device."""
    return {s: part._make(tensor.to(device) for tensor in part) for s, part in parts.items()}


def _half_rate(samples: np.ndarray) -> np.ndarray:
    """16 kHz to 8 kHz: a windowed-sinc low pass (63 taps, 3.6 kHz), then every second sample."""
    taps = np.arange(-31, 32)
    kernel = np.sinc(taps * 0.45) * np.hamming(63)
    return np.convolve(samples.astype(np.float64), kernel / kernel.sum(), "same")[::2]


def log_bands(sound: Tensor) -> Tensor:
    """[B, samples] to [B, frames, 40]: log energies of mel bands under a Hann window."""
    window = torch.hann_window(FRAME, device=sound.device)
    frames = sound.unfold(1, FRAME, HOP) * window
    power = torch.fft.rfft(frames, FFT).abs().square()
    return (power @ _mel_bands().to(sound.device) + FLOOR).log()


@lru_cache
def _mel_bands() -> Tensor:
    """[129, 40] triangles, evenly spaced in mel from 20 Hz to 4 kHz."""
    low, high = (1127 * math.log1p(hertz / 700) for hertz in (20, RATE / 2))
    edges = 700 * torch.expm1(torch.linspace(low, high, BANDS + 2) / 1127)
    hertz = torch.linspace(0, RATE / 2, FFT // 2 + 1)[:, None]
    rising = (hertz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - hertz) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0)
