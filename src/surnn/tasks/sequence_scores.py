"""Loss, metric and chance level of a task about a user's sequences."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .base import Batch, Score
from .batching import get_data
from .sequence_data import SequenceData
from .sequence_goals import IGNORED

RATIO = 2.0
"""Classes are weighted from this ratio of the most to the least frequent on."""
MOST_WEIGHT = 20.0
LISTED = 10
"""Most classes whose recall is logged."""
TINY = 1e-9
"""Count of a score without cases, so that it is 0 and not NaN."""


class SequenceScores:
    """A mix-in: the options that it reads are those of ``Sequences``."""

    goal: Any
    metric: Any
    weights: Any
    classes: Any
    balance: Any
    output_mean: Any
    output_std: Any
    _copy: Any

    @property
    def per_step(self) -> bool:
        """Whether there is a prediction at each time step."""
        return self.goal in ("classify_steps", "regress_steps", "forecast")

    @property
    def is_classification(self) -> bool:
        """Whether predictions are classes; so it is by default."""
        return self.goal in ("auto", "classify", "classify_steps")

    def with_metric(self) -> Any:
        """The task with ``auto`` replaced in its metric and its class weights."""
        weights, metric = self.weights, self.metric
        if weights == "auto":
            uneven = bool(self.balance) and max(self.balance) > RATIO * min(self.balance)
            weights = "balanced" if uneven else "none"
        if metric == "auto":
            rare = bool(self.balance) and max(self.balance) > 0.5
            if not self.is_classification:
                metric = "R2"
            elif self.per_step:
                metric = "F1" if rare else "accuracy"
            else:
                metric = "balanced accuracy" if weights == "balanced" else "accuracy"
        if (metric == "R2") == self.is_classification:
            raise ValueError(f"the metric {metric} does not fit the goal {self.goal}")
        return self._copy(weights=weights, metric=metric)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Update rates are logged for events and the background, the most common class."""
        return ("event", "background") if self.per_step and self.metric == "F1" else ()

    def with_kinds(self, batch: Batch) -> Batch:
        """The batch with the kind of each time step."""
        if not self.kinds:
            return batch
        event = (batch.target != self._background) & (batch.target != IGNORED)
        return batch._replace(kinds=torch.where(event, 0, 1))

    def data_notes(self) -> Iterator[str]:
        """Classes that validation or test cannot measure."""
        if not self.is_classification:
            return
        data: SequenceData = get_data(self)  # type: ignore[arg-type]  # of a mix-in
        for split in ("valid", "test"):
            absent = [repr(self.classes[n]) for n in data.absent_classes(split, len(self.classes))]
            if absent:
                more = ", ..." if len(absent) > LISTED else ""
                yield (
                    f"the {split} part has no example of {', '.join(absent[:LISTED])}{more}: its "
                    "metric says nothing about this. --task.split random divides whole sequences, "
                    "another --task.split-seed draws others; or bring more data"
                )

    @property
    def _background(self) -> int:
        return max(range(len(self.balance)), key=self.balance.__getitem__)

    @property
    def chance(self) -> float:
        """The metric of the best constant answer, by the class shares of the training part."""
        if self.metric == "R2":
            return 0.0
        if not self.balance:
            raise RuntimeError("the chance level depends on the data")
        if self.metric == "balanced accuracy":
            return 1 / len(self.classes)
        if self.metric == "accuracy":
            return max(self.balance)
        others = [s for number, s in enumerate(self.balance) if number != self._background]
        return 2 * max(others) / (1 + sum(others))

    # ------------------------------------------------------------ loss

    def class_weights(self, device: torch.device) -> Tensor:
        """[classes] weights in the loss: how much rarer a class is than the most frequent one, at
        most 20; at time steps the root of that."""
        if self.weights != "balanced" or not self.balance:
            return torch.ones(len(self.classes), device=device)
        shares = torch.tensor(self.balance, device=device)
        ratio = (shares.max() / shares.clamp(min=1e-12)).clamp(max=MOST_WEIGHT)
        return ratio.sqrt() if self.per_step else ratio

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Cross entropy with class weights, or the squared error in standard deviations."""
        if self.is_classification:
            flat, target = prediction.float().flatten(0, -2), batch.target.flatten()
            weights = self.class_weights(prediction.device)
            total = functional.cross_entropy(
                flat, target, weights, reduction="sum", ignore_index=IGNORED
            )
        else:
            total = self._errors(prediction, batch.target).square().sum()
        return total / self.weight(batch).clamp(min=TINY)

    def weight(self, batch: Batch) -> Tensor:
        """The sum of class weights, or the number of targets."""
        target = batch.target
        if not self.is_classification:
            return (~target.isnan()).sum().float()
        weights = self.class_weights(target.device)
        return torch.where(target != IGNORED, weights[target.clamp(min=0)], 0.0).sum()

    def _errors(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Errors in standard deviations of the target; 0 where there is no target."""
        std = torch.tensor(self.output_std, device=target.device)
        return torch.where(target.isnan(), 0.0, (prediction.float() - target) / std)

    # ------------------------------------------------------------ metrics

    def score(self, prediction: Tensor, batch: Batch) -> Score:
        """The metric; see the option of this name."""
        target = batch.target
        if self.metric == "R2":
            mean = torch.tensor(self.output_mean, device=target.device).expand_as(target)
            spread = self._errors(mean, target).square().sum()
            return Score(spread - self._errors(prediction, target).square().sum(), spread)
        answers, known = prediction.argmax(-1), target != IGNORED
        right = (answers == target) & known
        if self.metric == "F1":
            background = self._background
            events = (target != background) & known
            predicted = (answers != background) & known
            hits = (right & events).sum()
            return Score(2 * hits, (events.sum() + predicted.sum()).clamp(min=TINY))
        if self.metric == "balanced accuracy":
            shares = torch.tensor(self.balance, device=target.device).clamp(min=1e-12)
            weights = torch.where(known, 1 / shares[target.clamp(min=0)], 0.0)
            return Score((weights * right).sum(), weights.sum().clamp(min=TINY))
        return Score(right.sum(), known.sum().clamp(min=TINY))

    def details(self, prediction: Tensor, batch: Batch) -> dict[str, Score]:
        """The recall of each class if they are few and weighted; the error in raw units."""
        target = batch.target
        if not self.is_classification:
            std = torch.tensor(self.output_std, device=target.device)
            errors = self._errors(prediction, target) * std
            return {"RMSE": Score(errors.square().sum(), (~target.isnan()).sum(), root=True)}
        if self.metric == "accuracy" or len(self.classes) > LISTED:
            return {}
        answers, scores = prediction.argmax(-1), {}
        for number, name in enumerate(self.classes):
            asked = target == number
            hits = (asked & (answers == number)).sum()
            scores[f"recall of {name}"] = Score(hits, asked.sum().clamp(min=TINY))
        return scores

    def skill(self, prediction: Tensor, batch: Batch, unchanged: Tensor) -> Score:
        """The share of the squared error of the forecast "no change" that is avoided."""
        plain = self._errors(unchanged, batch.target).square().sum()
        return Score(plain - self._errors(prediction, batch.target).square().sum(), plain)
