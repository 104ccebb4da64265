"""Heartbeats in long electrocardiograms: detect and classify each beat."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from surnn.data import DataError

from .base import Batch, Output, Score, Split, Task, Values, generator_for
from .batching import get_data, row_numbers, set_data

RATE = 360
TOLERANCE = 54
"""Time steps, 150 ms: the customary tolerance of beat detection."""
BLIND = 2 * TOLERANCE + 2
"""Time steps between answers at regular times, for chance. The best period on the real data (60 to
400 were tried): nearly all beats are within reach of an answer, with as few answers as possible."""
NEAR = 36
"""Time steps, 100 ms: tokens nearer to a beat than this have the kind ``beat``."""
IGNORED = -100
NONE, NORMAL, SUPRAVENTRICULAR, VENTRICULAR, FUSION = range(5)
UNKNOWN = 255
"""Stored class of time steps near a beat that the experts could not classify."""

# Symbols of the annotations, by class of the standard (AAMI EC57).
TYPES = {
    **dict.fromkeys("NLRej", NORMAL),
    **dict.fromkeys("AaJS", SUPRAVENTRICULAR),
    **dict.fromkeys("VE", VENTRICULAR),
    "F": FUSION,
    **dict.fromkeys("/fQ", UNKNOWN),
}

# De Chazal's division by patient: DS1 (training and validation) and DS2 (test). The four paced
# recordings are left out; so is 201 of DS1, whose patient is that of 202 in DS2.
RECORDS: dict[Split, tuple[int, ...]] = {
    "train": (
        101, 106, 108, 109, 112, 114, 115, 116, 119, 122,
        203, 207, 208, 209, 215, 220, 230,
    ),
    "valid": (118, 124, 205, 223),
    "test": (
        100, 103, 105, 111, 113, 117, 121, 123,
        200, 202, 210, 212, 213, 214, 219, 221, 222, 228, 231, 232, 233, 234,
    ),
}  # fmt: skip


class Signals(NamedTuple):
    """The records of a split on the device, [R, T] each."""

    signal: Tensor
    """int16, as recorded."""
    classes: Tensor
    """uint8: the class at each time step, or UNKNOWN."""
    near: Tensor
    """bool: near a beat."""


@dataclass(frozen=True)
class EcgBeats(Task):
    """Detect and classify the beats of the MIT-BIH arrhythmia database, sampled at 360 Hz.

    Input: windows of the first lead (MLII, except in record 114), normalised by the mean and the
    standard deviation of all training records. A record's own statistics are not used: a monitor
    that is switched on does not know them. Output at each time step: none, N, S, V or F (the
    standard's classes). The target is the beat's class within ``mark`` time steps of the point
    ``delay`` time steps after the annotated R peak, and none elsewhere; the few beats that could
    not be classified are masked. Loss: cross entropy with class weights, the square root of how
    much rarer than none a class is in training, at most 20.

    Metric: F1 of beats. A run of time steps whose answer is not none is one detection, at its
    middle; it belongs to the nearest true beat if that is within 150 ms. A beat with at least one
    detection is a true positive; its further detections are false positives. The sums, 2 TP over
    detections plus beats, add up over batches. A silent model has 0. Chance is the score of answers
    at regular times on the validation records: 0.55, because 300 ms are a good part of the time
    between two beats. Also logged: the F1 of detections that have the class of their beat.

    Patients are divided as in the literature: DS2 is the test set; records 118, 124, 205 and 223 of
    DS1 are for validation; 201 is left out, because its patient is in DS2 too (202): 17 / 4 / 22
    records. Windows lie end to end; the rest at a record's end is not used. Training windows are
    shifted at random by up to half a window.

    Args:
        window: time steps of a window; 4096 are 11.4 s.
        delay: time steps from a beat to its answer, to see the whole beat; 36 are 100 ms.
        mark: half width of the target, in time steps.
    """

    window: int = 4096
    delay: int = 36
    mark: int = 5

    name: ClassVar[str] = "ecg_beats"
    metric: ClassVar[str] = "beat F1"
    kinds: ClassVar[tuple[str, ...]] = ("beat", "between")
    needs: ClassVar[tuple[str, ...]] = ("mitbih",)

    def __post_init__(self) -> None:
        if self.window < 1 or self.delay < 0 or self.mark < 0:
            raise ValueError(
                f"expected window >= 1, delay >= 0 and mark >= 0, got {self.window}, {self.delay}, "
                f"{self.mark}"
            )

    @property
    def input(self) -> Values:
        return Values(1)

    @property
    def output(self) -> Output:
        return Output(5, "step")

    @property
    def steps(self) -> int:
        return self.window

    @property
    def chance(self) -> float:
        """The F1 of answers at regular times, see ``BLIND``; needs the validation records."""
        home = get_data(self)[0]["valid"].signal.device
        batch = self.batch("valid", 0, self.size("valid"), 0, home)
        answers = torch.full_like(batch.target, NONE)
        answers[:, BLIND // 2 :: BLIND] = NORMAL
        return self._f1(answers, batch, typed=False).value

    def prepare(self, device: torch.device, data: Path | None = None) -> None:
        from surnn.data.ecg import mitbih  # noqa: PLC0415 (needed by training only)

        records = mitbih(data)
        splits: dict[Split, Signals] = {}
        for split, names in RECORDS.items():
            chosen = [records[str(name)] for name in names if str(name) in records]
            if len(chosen) < len(names):
                lost = [str(name) for name in names if str(name) not in records]
                raise DataError(f"mitbih: records {', '.join(lost)} are missing; fetch it again")
            splits[split] = self._place(chosen, device)
            steps = splits[split].signal.shape[1]
            if self.window > steps:
                raise DataError(
                    f"a window of {self.window} steps is longer than the shortest record for "
                    f"{split}, which has {steps}; use --task.window {steps} or less"
                )
        train = splits["train"]
        counts = torch.bincount(train.classes.flatten(), minlength=256)[:5].double()
        weights = (counts[0] / counts.clamp(min=1)).sqrt().clamp(max=20)
        spread, middle = torch.std_mean(train.signal.double())
        set_data(self, (splits, weights.float(), middle.float(), spread.float().clamp(min=1e-6)))

    def _place(self, records, device: torch.device) -> Signals:
        steps = min(len(record.signal) for record in records)
        signal = np.stack([record.signal[:steps] for record in records])
        classes = np.zeros(signal.shape, np.uint8)
        near = np.zeros(signal.shape, bool)
        for row, record in enumerate(records):
            for at, symbol in zip(record.at.tolist(), record.symbols, strict=True):
                if symbol in TYPES:
                    kind, middle = TYPES[symbol], at + self.delay
                    reach = TOLERANCE if kind == UNKNOWN else self.mark
                    classes[row, max(0, middle - reach) : max(0, middle + reach + 1)] = kind
                    near[row, max(0, at - NEAR) : at + NEAR + 1] = True
        return Signals(*(torch.from_numpy(a).to(device) for a in (signal, classes, near)))

    def size(self, split: Split) -> int:
        records, steps = get_data(self)[0][split].signal.shape
        return records * (steps // self.window)

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        splits, _, middle, spread = get_data(self)
        stored: Signals = splits[split]
        steps, home = stored.signal.shape[1], stored.signal.device
        per_record = steps // self.window
        rows = row_numbers(split, self.size(split), number, size, seed).to(home)
        record, start = rows // per_record, rows % per_record * self.window
        if split == "train":
            half = self.window // 2
            generator = generator_for(seed, number, home)
            shift = torch.randint(-half, half + 1, rows.shape, device=home, generator=generator)
            start = (start + shift).clamp_(0, steps - self.window)
        at = (record[:, None], start[:, None] + torch.arange(self.window, device=home))
        x = (stored.signal[at] - middle) / spread
        classes = stored.classes[at].long()
        return Batch(
            x.unsqueeze(-1).to(device),
            classes.masked_fill_(classes == UNKNOWN, IGNORED).to(device),
            kinds=torch.where(stored.near[at], 0, 1).to(device),
        )

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        flat, classes = prediction.flatten(0, 1).float(), batch.target.flatten()
        total = functional.cross_entropy(flat, classes, self._weights(batch), reduction="sum")
        return total / self.weight(batch).clamp(min=1)  # a few windows may be masked completely

    def weight(self, batch: Batch) -> Tensor:
        asked = batch.target != IGNORED
        return torch.where(asked, self._weights(batch)[batch.target.clamp(min=0)], 0.0).sum()

    def _weights(self, batch: Batch) -> Tensor:
        return get_data(self)[1].to(batch.target.device)

    def score(self, prediction: Tensor, batch: Batch) -> Score:
        return self._f1(prediction.argmax(-1), batch, typed=False)

    def details(self, prediction: Tensor, batch: Batch) -> dict[str, Score]:
        return {"typed beat F1": self._f1(prediction.argmax(-1), batch, typed=True)}

    def _f1(self, answers: Tensor, batch: Batch, *, typed: bool) -> Score:
        asked = batch.target != IGNORED
        answers = torch.where(asked, answers, NONE)
        found_at, answer_classes = events(answers)
        true_at, true = events(torch.where(asked, batch.target, NONE))
        if len(true_at) == 0 or len(found_at) == 0:
            right = torch.zeros((), device=answers.device)
        else:
            nearest = _nearest(found_at, true_at)
            hit = (found_at - true_at[nearest]).abs() <= TOLERANCE
            if typed:
                hit = hit & (answer_classes == true[nearest])
            right = torch.zeros_like(true_at).index_add_(0, nearest, hit.long()).clamp_(max=1).sum()
        total = torch.tensor(len(found_at) + len(true_at), device=answers.device)
        return Score(2 * right, total)


def events(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Runs of labels other than none, in [B, T]: their middles, and the labels there.

    Middles are positions in the whole batch, with gaps that keep rows apart.
    """
    wide = functional.pad(labels, (1, 2 * TOLERANCE + 1)).flatten()
    on = (wide != NONE).to(torch.int8)
    change = on.diff()
    starts, ends = (change > 0).nonzero()[:, 0] + 1, (change < 0).nonzero()[:, 0]
    middles = (starts + ends) // 2
    return middles, wide[middles]


def _nearest(points: Tensor, others: Tensor) -> Tensor:
    """For each point, the index of the nearest of the others (sorted)."""
    after = torch.searchsorted(others, points).clamp_(max=len(others) - 1)
    before = (after - 1).clamp_(min=0)
    return torch.where(points - others[before] <= (others[after] - points).abs(), before, after)
