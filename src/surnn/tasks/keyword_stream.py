"""Spot keywords in long streams of background noise, frame by frame."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from .base import Batch, Output, Score, Split, Task, Values, generator_for
from .batching import get_data, row_numbers, set_data
from .keyword_scores import AVERAGED, QUIET, sweep
from .sound import Sound
from .speech_frames import (
    BANDS,
    CLIP,
    FRAME_RATE,
    MEAN,
    SPREAD,
    Noise,
    NoiseDraw,
    background,
    below,
    draw_noise,
    from_decibels,
    load_noise,
    loudness,
    masked,
    to_features,
    to_power,
    uniform,
    word_bounds,
)

SPLITS: tuple[Split, ...] = ("train", "valid", "test")
KEYWORDS = 10
SLOT = 125
"""Frames, 2.5 s, with at most one word each."""
HOLD, TAIL = 20, 15
"""Frames after a word's end at which its name is the answer, and after these, any answer counts."""
IGNORED = -100
KEYWORD_WEIGHT = 4.0
"""Weight of frames with a name in the loss; there are few of them."""
VALID_SHARE = 0.1
"""Length of the validation set, as a share of the test set."""
FIXED_SEED = 3001
RAMP = 3
"""Frames over which a clip fades in and out."""
KEYWORD, DISTRACTOR, NOISE = range(3)


class Clips(NamedTuple):
    """The clips of a split on the device: keywords first, then other words."""

    x: Tensor
    label: Tensor
    """[n] 1 to 10 for a keyword, 0 for another word."""
    loudness: Tensor
    start: Tensor
    end: Tensor
    keywords: int


class Scene(NamedTuple):
    """The random parts of streams. A slot [B, S] has a word, or none."""

    phase: Tensor
    """[B] the frame at which slots begin."""
    word: Tensor
    """[B, S] whether there is a word."""
    clip: Tensor
    offset: Tensor
    """[B, S] its clip, and the frame in the slot at which it begins."""
    signal_to_noise: Tensor
    """[B, S] decibels."""
    level: Tensor
    """[B] decibels of the noise."""
    noise: NoiseDraw


@dataclass(frozen=True)
class KeywordStream(Task):
    """Streams of noise with a word here and there: say which of ten keywords has just ended.

    Ten command words are keywords, all other words distractors. Words lie at random places and
    levels in background noise, which moves from recording to recording every four seconds; they
    are mixed in mel power. Speakers and stretches of noise in validation and test are not in
    training. Input: 50 log-mel frames of 40 bands per second. Output at each frame: none, or one of
    the keywords. The target is the keyword for 0.4 s from its end; frames of the keyword, and 0.3 s
    after the target, do not count; all others are none.

    Decisions are made frame by frame: the probabilities are averaged over the last 5 frames, and a
    keyword is detected when its average rises over a threshold and was not over it in the last 0.5
    s. A detection between a keyword's beginning and 0.7 s after its end is a hit, if it has the
    right name; every other detection is a false alarm. The metric is the share of keywords missed
    at the lowest threshold with at most 5 false alarms an hour. Also logged: misses at 1 an hour,
    the mean latency from the end of the word in milliseconds (at 5 an hour), and the curve of
    [threshold, misses, false alarms an hour].

    Args:
        seconds: length of a training stream.
        test_seconds: length of a stream in validation and test.
        test_hours: total length of the test set; validation has a tenth.
        words_per_minute: words in training streams, at most 24; half are keywords.
        test_words_per_minute: the same in validation and test.
        snr_db: range of the level of a word over that of the noise, in decibels.
        noise_db: range of the level of the noise; 0 is typical of the recordings.
        mask_bands: SpecAugment in training: mask at most this many neighbouring bands.
        mask_frames: SpecAugment in training: mask at most this many successive frames.
    """

    seconds: float = 10.0
    test_seconds: float = 60.0
    test_hours: float = 20.0
    words_per_minute: float = 16.0
    test_words_per_minute: float = 6.0
    snr_db: tuple[float, float] = (5.0, 25.0)
    noise_db: tuple[float, float] = (-10.0, 15.0)
    mask_bands: int = 6
    mask_frames: int = 8

    name: ClassVar[str] = "keyword_stream"
    metric: ClassVar[str] = "misses"
    higher_is_better: ClassVar[bool] = False
    kinds: ClassVar[tuple[str, ...]] = ("keyword", "distractor", "noise")
    needs: ClassVar[tuple[str, ...]] = ("speech_commands", "speech_commands_noise")

    def __post_init__(self) -> None:
        least = SLOT / FRAME_RATE
        if min(self.seconds, self.test_seconds) < least:
            raise ValueError(
                f"seconds is {self.seconds} and test_seconds {self.test_seconds}; expected at "
                f"least {least:g}"
            )
        most = 60 * FRAME_RATE / SLOT
        if not (0 < self.words_per_minute <= most and 0 < self.test_words_per_minute <= most):
            raise ValueError(
                f"words_per_minute is {self.words_per_minute} and test_words_per_minute "
                f"{self.test_words_per_minute}; expected more than 0, at most {most:g}"
            )
        if self.test_hours * VALID_SHARE * 3600 < self.test_seconds:
            raise ValueError(
                f"test_hours is {self.test_hours}; a tenth of it must hold a stream of "
                f"{self.test_seconds:g} s"
            )
        for name in ("snr_db", "noise_db"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name} is {low} {high}; expected the lower end first")

    @property
    def input(self) -> Values:
        return Values(BANDS)

    @property
    def output(self) -> Output:
        return Output(1 + KEYWORDS, "step")

    @property
    def sound(self) -> Sound:
        from surnn.data.speech import CORE  # noqa: PLC0415 (numpy)

        return Sound(("none", *CORE), MEAN, SPREAD, average=AVERAGED, pause=QUIET)

    @property
    def steps(self) -> int:
        return round(self.seconds * FRAME_RATE)

    @property
    def chance(self) -> float:
        """Of a model that never answers."""
        return 1.0

    def frames(self, split: Split) -> int:
        """Frames of a stream."""
        return round((self.seconds if split == "train" else self.test_seconds) * FRAME_RATE)

    def size(self, split: Split) -> int | None:
        if split == "train":
            return None
        share = VALID_SHARE if split == "valid" else 1.0
        return max(1, round(self.test_hours * share * 3600 / self.test_seconds))

    # ------------------------------------------------------------ data

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        from surnn.data.speech import CORE, speech_commands  # noqa: PLC0415 (training only)

        words = speech_commands(data)
        label = np.array([1 + CORE.index(w) if w in CORE else 0 for w in words.words])[words.word]
        clips: dict[Split, Clips] = {}
        for number, split in enumerate(SPLITS):
            chosen = np.flatnonzero(words.split == number)
            chosen = chosen[np.argsort(label[chosen] == 0, kind="stable")]
            x = words.x[chosen]
            parts = (x, label[chosen], loudness(x), *word_bounds(x))
            x, name, level, start, end = (torch.from_numpy(part).to(device) for part in parts)
            clips[split] = Clips(x, name, level, start, end, int((label[chosen] > 0).sum()))
        noise = load_noise(data)
        cpu = torch.device("cpu")  # drawn there, so that fixed sets agree on all devices
        fixed: dict[Split, Scene] = {}
        for number, split in enumerate(SPLITS[1:]):
            random = generator_for(FIXED_SEED + number, -1, cpu)
            count = self.size(split)
            assert count is not None
            fixed[split] = _on(device, self._draw(split, count, clips[split], noise[split], random))
        noise = {split: _on(device, part) for split, part in noise.items()}
        set_data(self, (clips, noise, fixed))

    def _draw(
        self, split: Split, count: int, clips: Clips, noise: Noise, random: torch.Generator
    ) -> Scene:
        steps = self.frames(split)
        slots = steps // SLOT
        shape, device = (count, slots), random.device
        train = split == "train"
        density = self.words_per_minute if train else self.test_words_per_minute
        word = torch.rand(shape, generator=random, device=device) < density * SLOT / FRAME_RATE / 60
        is_keyword = torch.rand(shape, generator=random, device=device) < 0.5
        keyword = below(clips.keywords, shape, random)
        other = clips.keywords + below(len(clips.label) - clips.keywords, shape, random)
        return Scene(
            phase=below(steps - slots * SLOT + 1, (count,), random),
            word=word,
            clip=torch.where(is_keyword, keyword, other),
            offset=1 + below(SLOT - CLIP - HOLD, shape, random),
            signal_to_noise=uniform(*self.snr_db, shape, random),
            level=uniform(*self.noise_db, (count,), random),
            noise=draw_noise(noise, count, steps, random),
        )

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        every_clip, every_noise, fixed = get_data(self)
        clips, noise = every_clip[split], every_noise[split]
        home = clips.x.device
        if split != "train":
            count = self.size(split)
            assert count is not None
            rows = row_numbers(split, count, number, size, seed).to(home)
            return self._mix(_rows(fixed[split], rows), clips, noise, self.frames(split), device)
        random = generator_for(seed, number, home)
        scene = self._draw(split, size, clips, noise, random)
        batch = self._mix(scene, clips, noise, self.frames(split), device)
        x = masked(batch.x, self.mask_bands, self.mask_frames, random)
        return batch._replace(x=x.to(device))

    def _mix(
        self, scene: Scene, clips: Clips, noise: Noise, steps: int, device: torch.device
    ) -> Batch:
        home = clips.x.device
        level = from_decibels(scene.level)[:, None, None]
        power = background(noise, scene.noise, steps) * level
        gain = scene.level[:, None] + scene.signal_to_noise - clips.loudness[scene.clip]
        gain = from_decibels(gain.clamp(-60, 30)) * scene.word
        slots = torch.arange(scene.word.shape[1], device=home) * SLOT
        begin = scene.phase[:, None] + slots + scene.offset  # [B, S]
        inside = torch.arange(CLIP, device=home)
        ramp = (torch.minimum(inside + 1, CLIP - inside) / (RAMP + 1)).clamp_(max=1)
        spoken = to_power(clips.x[scene.clip]) * (gain[..., None] * ramp).unsqueeze(-1)
        at = (begin[..., None] + inside).flatten(1)
        power.scatter_add_(1, at.unsqueeze(-1).expand(-1, -1, BANDS), spoken.flatten(1, 2))
        target, kinds = self._answers(scene, clips, begin, steps)
        return Batch(to_features(power).to(device), target.to(device), kinds=kinds.to(device))

    def _answers(
        self, scene: Scene, clips: Clips, begin: Tensor, steps: int
    ) -> tuple[Tensor, Tensor]:
        """Targets [B, T, 2], the answer and the keyword that would be a hit; and kinds [B, T]."""
        t = torch.arange(steps, device=begin.device)
        slots = begin.shape[1]
        slot = (t - scene.phase[:, None]).div(SLOT, rounding_mode="floor")
        known = (slot >= 0) & (slot < slots)
        slot = slot.clamp(0, slots - 1)

        def of_frame(values: Tensor) -> Tensor:
            return values.gather(1, slot)

        known &= of_frame(scene.word)
        label = of_frame(clips.label[scene.clip])
        start = of_frame(begin + clips.start[scene.clip])
        end = of_frame(begin + clips.end[scene.clip])
        is_keyword = known & (label > 0)
        answer = torch.where(is_keyword & (t >= end) & (t < end + HOLD), label, 0)
        open_answer = (t >= start) & (t < end + HOLD + TAIL) & ~((t >= end) & (t < end + HOLD))
        answer = answer.masked_fill(is_keyword & open_answer, IGNORED)
        hit = torch.where(is_keyword & (t >= start) & (t < end + HOLD + TAIL), label, 0)
        spoken = known & (t >= start) & (t < end)
        kinds = torch.where(spoken, torch.where(label > 0, KEYWORD, DISTRACTOR), NOISE)
        return torch.stack((answer, hit), -1), kinds

    # ------------------------------------------------------------ how it is judged

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        weights = prediction.new_full((1 + KEYWORDS,), KEYWORD_WEIGHT)
        weights[:1].fill_(1.0)
        flat, answer = prediction.float().flatten(0, 1), batch.target[..., 0].flatten()
        total = functional.cross_entropy(
            flat, answer, weights, ignore_index=IGNORED, reduction="sum"
        )
        return total / self.weight(batch).clamp(min=1)

    def weight(self, batch: Batch) -> Tensor:
        answer = batch.target[..., 0]
        return (answer == 0).sum() + KEYWORD_WEIGHT * (answer > 0).sum()

    def score(self, prediction: Tensor, batch: Batch) -> Score:
        return sweep(prediction, batch.target)

    def details(self, prediction: Tensor, batch: Batch) -> dict[str, Score]:
        whole = sweep(prediction, batch.target)
        return {
            "misses at 1 an hour": whole.reading("misses", 1.0),
            "latency ms": whole.reading("latency"),
            "curve": whole.reading("curve"),
        }


def _on(device: torch.device, parts: Any) -> Any:
    """A named tuple of tensors, or of such tuples, on the device."""
    return parts._make(
        part.to(device) if torch.is_tensor(part) else _on(device, part) for part in parts
    )


def _rows(parts: Any, rows: Tensor) -> Any:
    """The same, some rows of it."""
    return parts._make(part[rows] if torch.is_tensor(part) else _rows(part, rows) for part in parts)
