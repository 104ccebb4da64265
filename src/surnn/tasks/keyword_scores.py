"""Misses against false alarms of online detections, over many thresholds at once."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from .base import Score

FRAME_RATE = 50
AVERAGED = 5
"""Frames over which probabilities are averaged."""
QUIET = 25
"""Frames below the threshold after which a keyword can be detected again."""
LOGITS = torch.linspace(-3, 11, 43)
"""Logits of the thresholds."""
FALSE_ALARMS = 5.0
"""False alarms an hour of the main metric."""
LONGEST = 90
"""More frames than a keyword and the time in which its detection counts."""


@dataclass(frozen=True)
class Sweep(Score):
    """Counts for each threshold: ``total`` [K, 3] has hits, false alarms, and the frames from the
    ends of words to their hits; ``count`` [2] has keywords and frames."""

    kind: Literal["misses", "latency", "curve"] = "misses"
    per_hour: float = FALSE_ALARMS

    def reading(self, kind: Literal["misses", "latency", "curve"], per_hour: float = FALSE_ALARMS):
        """The same counts, read in another way."""
        return replace(self, kind=kind, per_hour=per_hour)

    @property
    def value(self) -> Any:
        hits, alarms, frames = self.total.double().cpu().unbind(1)
        keywords, all_frames = self.count.double().cpu().unbind()
        misses = 1 - hits / keywords.clamp(min=1)
        per_hour = alarms / (all_frames / FRAME_RATE / 3600)
        if self.kind == "curve":
            rows = torch.stack((LOGITS.double().sigmoid(), misses, per_hour), 1)
            return [[round(number, 7) for number in row] for row in rows.tolist()]
        allowed = per_hour <= self.per_hour
        if not allowed.any():
            return 1.0 if self.kind == "misses" else 0.0
        best = torch.where(allowed, misses, torch.inf).argmin()
        if self.kind == "misses":
            return misses[best].item()
        return (1000 / FRAME_RATE * frames[best] / hits[best]).item() if hits[best] else 0.0


def threshold_at(curve: list[list[float]], per_hour: float = FALSE_ALARMS) -> float | None:
    """The threshold that the metric chooses, from a logged curve; None if all have more alarms."""
    allowed = [(misses, threshold) for threshold, misses, alarms in curve if alarms <= per_hour]
    return min(allowed)[1] if allowed else None


def averaged(prediction: Tensor) -> Tensor:
    """[B, 10, T]: each keyword's probability, averaged over the last frames."""
    probability = prediction.float().softmax(-1)[..., 1:].transpose(1, 2)
    padded = functional.pad(probability, (AVERAGED - 1, 0))
    return functional.avg_pool1d(padded, AVERAGED, 1)


def detections(above: Tensor) -> Tensor:
    """Where ``above`` [..., T] becomes True after at least QUIET frames of False."""
    t = torch.arange(above.shape[-1], device=above.device, dtype=torch.int32)
    last = torch.where(above, t, -QUIET - 1).cummax(-1).values
    before = functional.pad(last[..., :-1], (1, 0), value=-QUIET - 1)
    return above & (t - before > QUIET)


@lru_cache(maxsize=1)  # the metric and the details of a batch need the same counts
def sweep(prediction: Tensor, target: Tensor) -> Sweep:
    """The counts of a batch, from predictions [B, T, 11] and targets [B, T, 2]: the answer, and
    the keyword whose detection would be a hit."""
    answer, window = target.unbind(-1)
    probability = averaged(prediction)
    device = window.device
    steps = window.shape[1]
    begins = (window > 0) & (window != functional.pad(window[:, :-1], (1, 0)))
    row, first = begins.nonzero(as_tuple=True)
    keyword = window[row, first]
    at = first[:, None] + torch.arange(LONGEST, device=device)
    inside = at < steps
    at = at.clamp(max=steps - 1)
    inside &= (window[row[:, None], at] == keyword[:, None]).cumprod(1).bool()
    ends = (answer[row[:, None], at] == keyword[:, None]).int().argmax(1)
    names = torch.arange(1, probability.shape[1] + 1, device=device)[:, None]
    elsewhere = window[:, None] != names  # [B, 10, T]
    totals = []
    for threshold in LOGITS.sigmoid().tolist():
        risen = detections(probability > threshold)
        hit = risen[row[:, None], (keyword - 1)[:, None], at] & inside
        caught = hit.any(1)
        late = torch.where(caught, hit.int().argmax(1) - ends, 0)
        totals.append(torch.stack((caught.sum(), (risen & elsewhere).sum(), late.sum())))
    count = torch.tensor([len(row), window.numel()], device=device)
    return Sweep(torch.stack(totals), count)
