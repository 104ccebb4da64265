"""Log-mel frames of speech on a device: clips, background noise, mixing, augmentation.

Sounds are mixed as sums of mel power. A frame is the logarithm of that, standardised by two fixed
numbers, so that a device in use needs no statistics of the training data.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .base import Split

FRAME_RATE = 50
"""Frames per second."""
BANDS, CLIP = 40, 49
"""Mel bands; frames of a clip."""
FLOOR, OFFSET, STEPS_PER_UNIT = 1e-6, 14.0, 255 / 24
"""Of stored frames, see ``surnn.data.speech``."""
MEAN, SPREAD = -6.0, 4.5
"""Models read (ln(power + FLOOR) - MEAN) / SPREAD."""
NOISE_SHARES: dict[Split, tuple[float, float]] = {
    "train": (0.0, 0.8), "valid": (0.8, 0.9), "test": (0.9, 1.0)
}  # fmt: skip
"""The part of each noise recording that a split may take."""
PIECE, FADE = 200, 25
"""Frames until the background moves on to another piece of a recording, and of the cross-fade."""


class Noise(NamedTuple):
    """Background of a split: frames [n, 40] of mel power, and stretches [S] of them.

    Every stretch has a mean power of 1 per frame, summed over bands.
    """

    power: Tensor
    first: Tensor
    span: Tensor


class NoiseDraw(NamedTuple):
    """The random parts of backgrounds: for each piece [B, P] a stretch and a place in it."""

    which: Tensor
    at: Tensor
    phase: Tensor
    """[B] frames by which the first piece is shorter."""


def to_power(stored: Tensor) -> Tensor:
    """Mel power of stored integers."""
    return ((stored.float() / STEPS_PER_UNIT - OFFSET).exp() - FLOOR).clamp_(min=0)


def to_features(power: Tensor) -> Tensor:
    """What models read, from mel power."""
    return ((power + FLOOR).log() - MEAN) / SPREAD


def from_decibels(decibels: Tensor) -> Tensor:
    """A factor of power."""
    return 10 ** (decibels / 10)


def uniform(low: float, high: float, shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    """Uniform numbers from the generator, on its device."""
    return low + (high - low) * torch.rand(shape, generator=random, device=random.device)


def below(limit: Tensor | int, shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    """Uniform integers from 0 to ``limit`` - 1."""
    number = torch.rand(shape, generator=random, device=random.device)
    limit = torch.as_tensor(limit, device=random.device)
    return torch.minimum((number * limit).long(), limit - 1)


# ---------------------------------------------------------------------------- background


def load_noise(data: Path | None) -> dict[Split, Noise]:
    """The background of every split, on the CPU."""
    from surnn.data.speech import noise_power  # noqa: PLC0415 (needed by training only)

    recordings = [power for _, power in noise_power(data)]
    return {split: _cut(recordings, *share) for split, share in NOISE_SHARES.items()}


def _cut(recordings: list[np.ndarray], begin: float, end: float) -> Noise:
    parts = [r[int(begin * len(r)) : int(end * len(r))] for r in recordings]
    parts = [part / max(part.sum(1).mean(), FLOOR) for part in parts]
    spans = np.array([len(part) for part in parts])
    return Noise(
        torch.from_numpy(np.concatenate(parts).astype(np.float32)),
        torch.from_numpy(spans.cumsum() - spans),
        torch.from_numpy(spans),
    )


def draw_noise(noise: Noise, count: int, steps: int, random: torch.Generator) -> NoiseDraw:
    """The random parts of ``count`` backgrounds of ``steps`` frames."""
    pieces = steps // PIECE + 2
    which = below(len(noise.span), (count, pieces), random)
    span = noise.span.to(random.device)[which]
    return NoiseDraw(which, below(span, (count, pieces), random), below(PIECE, (count,), random))


def background(noise: Noise, draw: NoiseDraw, steps: int) -> Tensor:
    """[B, T, 40]: pieces of recordings that fade into each other; short stretches repeat."""
    t = torch.arange(steps, device=draw.phase.device)
    piece, inside = (t + draw.phase[:, None]).div(PIECE, rounding_mode="floor"), None
    inside = t + draw.phase[:, None] - piece * PIECE
    share = ((inside - (PIECE - FADE)).float() / FADE).clamp_(0, 1).unsqueeze(-1)
    here, then = (_piece(noise, draw, piece + ahead, t) for ahead in (0, 1))
    return torch.lerp(here, then, share)


def _piece(noise: Noise, draw: NoiseDraw, piece: Tensor, t: Tensor) -> Tensor:
    piece = piece.clamp(max=draw.which.shape[1] - 1)
    which, at = draw.which.gather(1, piece), draw.at.gather(1, piece)
    return noise.power[noise.first[which] + (at + t) % noise.span[which]]


# ---------------------------------------------------------------------------- clips


def loudness(stored: np.ndarray) -> np.ndarray:
    """[n]: decibels of the louder frames of clips [n, 49, 40], the tenth percentile from above."""
    return np.percentile(_decibels(stored), 90, axis=1).astype(np.float32)


def word_bounds(stored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[n] first frame of the word in each clip, and [n] the frame after its last.

    The word is where the power is more than a third of the way from the quietest tenth of the
    frames to the loudest, in decibels.
    """
    level = _decibels(stored)
    low = np.percentile(level, 10, axis=1, keepdims=True)
    loud = level > low + (level.max(1, keepdims=True) - low) / 3
    first, end = loud.argmax(1), CLIP - loud[:, ::-1].argmax(1)
    return np.where(loud.any(1), first, 0), np.where(loud.any(1), end, CLIP)


def _decibels(stored: np.ndarray) -> np.ndarray:
    """[n, 49]: the power of each frame."""
    table = np.exp(np.arange(256) / STEPS_PER_UNIT - OFFSET).astype(np.float32)
    blocks = np.array_split(stored, max(1, len(stored) // 2000))
    return np.concatenate([10 * np.log10(table[block].sum(-1)) for block in blocks])


# ---------------------------------------------------------------------------- augmentation


def shifted(power: Tensor, frames: Tensor) -> Tensor:
    """Clips [B, T, 40] moved by ``frames`` [B] to later times; silence comes in."""
    t = torch.arange(power.shape[1], device=power.device) - frames[:, None]
    inside = (t >= 0) & (t < power.shape[1])
    index = t.clamp(0, power.shape[1] - 1)[..., None].expand_as(power)
    return power.gather(1, index) * inside[..., None]


def masked(x: Tensor, bands: int, frames: int, random: torch.Generator) -> Tensor:
    """SpecAugment (Park et al., 2019) without warping: one stripe of up to ``bands`` bands and one
    of up to ``frames`` frames of every sequence become 0, the mean."""
    count, steps, size = x.shape
    for axis, most, length in ((2, bands, size), (1, frames, steps)):
        if most:
            width = below(most + 1, (count,), random)
            first = below(length - width + 1, (count,), random)
            place = torch.arange(length, device=x.device)
            hidden = (place >= first[:, None]) & (place < (first + width)[:, None])
            x = x.masked_fill(hidden.unsqueeze(3 - axis), 0.0)
    return x
