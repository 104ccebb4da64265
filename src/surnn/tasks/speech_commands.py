"""Name the command word in a one-second clip."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from surnn.data import DataError

from .base import Batch, Classification, Output, Split, Values, generator_for
from .batching import get_data, row_numbers, set_data
from .sound import Sound
from .speech_frames import (
    BANDS,
    CLIP,
    MEAN,
    SPREAD,
    Noise,
    NoiseDraw,
    background,
    draw_noise,
    from_decibels,
    load_noise,
    masked,
    shifted,
    to_features,
    to_power,
    uniform,
    word_bounds,
)

SPLITS: tuple[Split, ...] = ("train", "valid", "test")
COMMANDS = 12
"""Classes of the official protocol."""
SILENCE, UNKNOWN = 0, 1
EXTRA = 10
"""Clips of silence, and of unknown words, for each hundred commands."""
FIXED_SEED = 59185
"""Of the unknown words and the silence in validation and test."""
SHIFT = 5
"""Most frames, 100 ms, by which a clip is moved."""
NOISY = 0.8
"""Share of the training clips with background noise."""
SPEECH, PAUSE = range(2)


class Clips(NamedTuple):
    """The clips of a split on the device."""

    x: Tensor
    """[n, 49, 40] uint8: commands first, unknown words after them."""
    label: Tensor
    """[n]"""
    start: Tensor
    end: Tensor
    """[n] the frames of the word."""
    commands: int
    """The number of clips that count once; those after them are drawn from."""
    unknown: int
    silence: int
    """How many unknown words and silences belong to the split."""


class Draw(NamedTuple):
    """The random parts of a batch."""

    row: Tensor
    """[B]: the clip."""
    silent: Tensor
    """[B]: whether it is silence."""
    noise: NoiseDraw
    noise_decibels: Tensor


@dataclass(frozen=True)
class SpeechCommands(Classification):
    """Clips of Speech Commands: 49 log-mel frames of 40 bands, and their word.

    With 12 classes, the official protocol: silence, unknown, and the ten commands. To each hundred
    commands there are ten unknown words, which training draws again in each epoch, and ten clips of
    silence: background noise at a random level. (The original's silence is digital zero in tests.)
    With as many classes as there are words (30 in version 0.01, 35 in 0.02) every clip counts
    once; this needs the complete set. Speakers of validation and test are not in training, nor is
    their stretch of the noise.

    Training clips are moved by up to 100 ms, made louder or quieter by up to 6 dB, mixed with noise
    (four in five) and masked in part (SpecAugment).

    Args:
        classes: 12, or the number of words.
        augment: change training clips at random.
        mask_bands: SpecAugment: mask at most this many neighbouring bands.
        mask_frames: SpecAugment: mask at most this many successive frames.
    """

    classes: int = COMMANDS
    augment: bool = True
    mask_bands: int = 6
    mask_frames: int = 8

    name: ClassVar[str] = "speech_commands"
    kinds: ClassVar[tuple[str, ...]] = ("word", "pause")
    needs: ClassVar[tuple[str, ...]] = ("speech_commands", "speech_commands_noise")

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"classes is {self.classes}; expected 12, or the number of words")
        if not (0 <= self.mask_bands <= BANDS and 0 <= self.mask_frames <= CLIP):
            raise ValueError(
                f"expected mask_bands 0 to {BANDS} and mask_frames 0 to {CLIP}, got "
                f"{self.mask_bands} and {self.mask_frames}"
            )

    @property
    def input(self) -> Values:
        return Values(BANDS)

    @property
    def output(self) -> Output:
        return Output(self.classes, "sequence")

    @property
    def sound(self) -> Sound | None:
        if self.classes != COMMANDS:  # names of other classes are in the data
            return None
        from surnn.data.speech import CORE  # noqa: PLC0415 (numpy)

        names = ("silence", "unknown", *CORE)
        return Sound(names, MEAN, SPREAD, nothing=(SILENCE, UNKNOWN), clip=CLIP)

    @property
    def steps(self) -> int:
        return CLIP

    @property
    def chance(self) -> float:
        """Of the most frequent class."""
        clips: Clips = get_data(self)[0]["test"]
        counts = torch.bincount(clips.label[: clips.commands])
        most = max(int(counts.max()), clips.unknown, clips.silence)
        return most / self.size("test")

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        from surnn.data.speech import speech_commands  # noqa: PLC0415 (needed by training only)

        words = speech_commands(data)
        labels = self._labels(words)
        splits: dict[Split, Clips] = {}
        for number, split in enumerate(SPLITS):
            chosen = np.flatnonzero(words.split == number)
            chosen = chosen[np.argsort(labels[chosen] == UNKNOWN, kind="stable")]
            if self.classes != COMMANDS:
                chosen = np.flatnonzero(words.split == number)
            splits[split] = self._clips(words.x[chosen], labels[chosen], device)
        noise = {s: Noise(*(p.to(device) for p in n)) for s, n in load_noise(data).items()}
        set_data(self, (splits, noise))
        fixed = {s: self._draw(s, self._fixed_rows(s), s) for s in SPLITS if s != "train"}
        set_data(self, (splits, noise, fixed))

    def _labels(self, words) -> np.ndarray:
        """The class of each clip."""
        from surnn.data.speech import CORE  # noqa: PLC0415

        if self.classes == COMMANDS:
            table = [2 + CORE.index(w) if w in CORE else UNKNOWN for w in words.words]
            return np.array(table)[words.word]
        if not words.complete:
            raise DataError(
                f"{self.classes} classes need all clips of all words, and the packed files have "
                "all clips of the ten commands only; use --task.classes 12, or the whole set: "
                "surnn data get speech_commands"
            )
        if self.classes != len(words.words):
            raise DataError(
                f"there are {len(words.words)} words; use --task.classes 12 or "
                f"{len(words.words)}, not {self.classes}"
            )
        return words.word.astype(np.int64)

    def _clips(self, x: np.ndarray, label: np.ndarray, device: torch.device) -> Clips:
        ten_percent = 0
        commands = len(label)
        if self.classes == COMMANDS:
            commands = int((label != UNKNOWN).sum())
            ten_percent = -(-commands * EXTRA // 100)
            if commands == len(label):
                raise DataError("speech_commands: a split has no clips of unknown words")
        arrays = (x, label.astype(np.int64), *word_bounds(x))
        frames, labels, start, end = (torch.from_numpy(a).to(device) for a in arrays)
        return Clips(frames, labels, start, end, commands, ten_percent, ten_percent)

    def _fixed_rows(self, split: Split) -> Tensor:
        return torch.arange(self.size(split))

    def size(self, split: Split) -> int:
        clips: Clips = get_data(self)[0][split]
        return clips.commands + clips.unknown + clips.silence

    def _draw(self, split: Split, rows: Tensor, seed: object, number: int = 0) -> Draw:
        """Random parts for rows of the split: commands, then unknown words, then silence."""
        clips, noise = get_data(self)[0][split], get_data(self)[1][split]
        home = clips.x.device
        fixed = isinstance(seed, str)
        random = generator_for(
            FIXED_SEED + SPLITS.index(split) if fixed else int(seed),  # type: ignore[call-overload]
            -1 if fixed else number,
            torch.device("cpu") if fixed else home,  # one fixed set for all devices
        )
        pool = len(clips.label) - clips.commands
        if fixed:  # each unknown word once
            unknown = torch.randperm(pool, generator=random) if pool else torch.zeros(1).long()
            unknown = unknown[(rows - clips.commands).clamp(0, max(pool, 1) - 1)]
        else:
            share = torch.rand(len(rows), generator=random, device=home)
            unknown = (share * pool).long().to(rows.device)
        row = torch.where(rows < clips.commands, rows, clips.commands + unknown)
        row = row.clamp(max=len(clips.label) - 1)
        silent = rows >= clips.commands + clips.unknown
        drawn = draw_noise(noise, len(rows), CLIP, random)
        decibels = uniform(-30, 5, (len(rows),), random)
        return Draw(
            row.to(home), silent.to(home), NoiseDraw(*(p.to(home) for p in drawn)),
            decibels.to(home),
        )  # fmt: skip

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        data = get_data(self)
        clips: Clips = data[0][split]
        rows = row_numbers(split, self.size(split), number, size, seed)
        home = clips.x.device
        if split == "train":
            draw = self._draw(split, rows, seed, number)
        else:
            whole: Draw = data[2][split]
            at = rows.to(home)
            draw = Draw(
                whole.row[at], whole.silent[at], NoiseDraw(*(p[at] for p in whole.noise)),
                whole.noise_decibels[at],
            )  # fmt: skip
        power = to_power(clips.x[draw.row]) * ~draw.silent[:, None, None]
        hiss = background(data[1][split], draw.noise, CLIP)
        hiss = hiss * from_decibels(draw.noise_decibels)[:, None, None]
        start, end = clips.start[draw.row], clips.end[draw.row]
        changed = split == "train" and self.augment
        random = generator_for(seed + 1, number, home)
        if changed:
            move = torch.randint(-SHIFT, SHIFT + 1, (size,), generator=random, device=home)
            louder = from_decibels(uniform(-6, 6, (size,), random))
            noisy = torch.rand(size, generator=random, device=home) < NOISY
            power = shifted(power, move) * louder[:, None, None]
            power = power + hiss * (noisy | draw.silent)[:, None, None]
            start, end = start + move, end + move
        else:
            power = power + hiss * draw.silent[:, None, None]
        x = to_features(power)
        if changed:
            x = masked(x, self.mask_bands, self.mask_frames, random)
        if self.classes == COMMANDS:
            target = clips.label[draw.row].masked_fill(draw.silent, SILENCE)
        else:
            target = clips.label[draw.row]
        t = torch.arange(CLIP, device=home)
        spoken = (t >= start[:, None]) & (t < end[:, None]) & ~draw.silent[:, None]
        kinds = torch.where(spoken, SPEECH, PAUSE)
        return Batch(x.to(device), target.to(device), kinds=kinds.to(device))
