"""scikit-learn estimators: fit, predict and score, in pipelines and grid searches."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from surnn.config import OURS, TrainConfig, gate_config
from surnn.data.series import Series
from surnn.errors import option_errors
from surnn.tasks.python_data import PythonData, as_array, series_of_arrays

from .from_python import run_config
from .trainer import Trainer

ROWS = 256
"""Sequences that are predicted at a time."""


class SuEstimator(BaseEstimator):
    """Base of both estimators; options that are None are chosen from the data."""

    goal: str

    def __init__(
        self,
        kind: str = "sugru",
        width: int | None = None,
        layers: int = 2,
        gate: str | None = None,
        rate: float | None = None,
        steps: int | None = None,
        batch: int | None = None,
        learning_rate: float = 2e-3,
        valid_share: float = 0.1,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.kind, self.width, self.layers, self.gate, self.rate = kind, width, layers, gate, rate
        self.steps, self.batch, self.learning_rate = steps, batch, learning_rate
        self.valid_share, self.seed, self.device = valid_share, seed, device

    def _fit(self, x: Any, y: np.ndarray) -> None:
        shares = (1 - self.valid_share, self.valid_share, 0.0)
        options: Any = {"goal": self.goal, "shares": shares}
        with option_errors():
            task = PythonData(**options).attach(series_of_arrays(x, y), None, None).complete()
            config = self._config(task)
        trainer = Trainer(config)
        trainer.fit()
        trainer.close()
        self.model_, self.task_, self.config_ = trainer.model.eval(), trainer.task, config
        if isinstance(x, np.ndarray) and x.ndim == 2:
            self.n_features_in_ = x.shape[1]

    def _config(self, task: PythonData) -> Any:
        config = run_config(None, task)
        sizes = {"layers": self.layers, "pool": "mean"}
        if self.width is not None:
            sizes |= {"width": self.width, "heads": None}
        gate = config.gate
        if self.gate is not None:
            gate = gate_config(self.gate)  # type: ignore[arg-type]
        if self.rate is not None:
            gate = replace(gate, rate=self.rate)  # type: ignore[call-arg]
        given = {"steps": self.steps, "batch": self.batch}
        changes: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
        if self.steps is not None:
            changes |= {"warmup": min(config.train.warmup, self.steps // 10)}
            changes |= {"evaluate_every": max(1, self.steps // 10)}
        train: TrainConfig = replace(
            config.train, **changes, learning_rate=self.learning_rate, seed=self.seed,
            device=self.device,
        )  # type: ignore[arg-type]  # fmt: skip
        changed = replace(config, model=replace(config.model, **sizes), gate=gate, train=train)
        if self.kind in OURS:
            return replace(changed, model=replace(changed.model, kind=self.kind))
        return changed.with_model(self.kind)  # type: ignore[arg-type]

    @torch.no_grad()
    def _predict(self, x: Any) -> np.ndarray:
        series = _complete(series_of_arrays(x))
        starts, device = series.starts, next(self.model_.parameters()).device
        outputs = []
        for begin in range(0, len(starts), ROWS):
            lengths = series.lengths[begin : begin + ROWS]
            padded = np.zeros((len(lengths), lengths.max(), series.values.shape[1]), np.float32)
            for row, (start, length) in enumerate(zip(starts[begin:], lengths, strict=False)):
                padded[row, :length] = series.values[start : start + length]
            inputs = torch.from_numpy(padded).to(device), torch.from_numpy(lengths).to(device)
            outputs.append(self.model_(*inputs).float().cpu())
        return torch.cat(outputs).numpy()


def _complete(series: Series) -> Series:
    """The same sequences; ValueError where a prediction would mean nothing."""
    if not len(series.lengths):
        raise ValueError("X has no sequences")
    if not series.lengths.all():
        row = int(np.flatnonzero(series.lengths == 0)[0])
        raise ValueError(f"sequence {row} of X has no time steps, or all of them are missing (NaN)")
    if not np.isfinite(series.values).all():
        step = int(np.flatnonzero(~np.isfinite(series.values).all(1))[0])
        row = int(np.searchsorted(series.starts, step, side="right")) - 1
        raise ValueError(
            f"sequence {row} of X has NaN or a number that float32 does not hold at index "
            f"{step - series.starts[row]}; fill or remove it"
        )
    return series


class SuClassifier(ClassifierMixin, SuEstimator):
    """Classify sequences, as a scikit-learn estimator.

    X is an array [N, T] or [N, T, features], or a list of arrays [T, features] of different
    lengths. Inputs are standardised inside the model.

    Args:
        kind: kind of layer; see ``surnn list models``.
        width: units per layer.
        layers: number of layers.
        gate: kind of gate; see ``surnn list gates``.
        rate: update rate before training.
        steps: optimizer steps.
        batch: sequences per optimizer step.
        learning_rate: highest learning rate.
        valid_share: share of the sequences for validation while training.
        seed: of weights and batches.
        device: auto, cpu or cuda.

    Example:
        >>> import numpy, surnn
        >>> x = numpy.random.default_rng(0).normal(size=(40, 20)) + numpy.arange(40)[:, None] % 2
        >>> y = numpy.array(["low", "high"])[numpy.arange(40) % 2]
        >>> model = surnn.SuClassifier(width=16, layers=1, steps=30, batch=16, device="cpu")
        >>> model.fit(x, y).predict(x[:2]).tolist()
        ['low', 'high']
    """

    goal = "classify"

    def fit(self, X: Any, y: Any) -> "SuClassifier":
        """Train on sequences X with labels y."""
        labels = as_array(y)
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.ndim != 1:
            raise ValueError(
                f"y must be one label for each sequence, [N], got {list(labels.shape)}"
            )
        # numpy makes the text nan of a NaN among texts.
        missing = [v is None or v != v or str(v).lower() == "nan" for v in labels.tolist()]  # noqa: PLR0124
        if any(missing):
            raise ValueError(f"the label of sequence {missing.index(True)} is missing (NaN)")
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        self._fit(X, numbers)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """[N, classes] probabilities."""
        return torch.from_numpy(self._predict(X)).softmax(-1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """[N] labels."""
        return self.classes_[self._predict(X).argmax(-1)]


class SuRegressor(RegressorMixin, SuEstimator):
    """Predict one or several numbers for each sequence, as a scikit-learn estimator.

    Options are those of :class:`SuClassifier`. Predictions are in the units of y.

    Example:
        >>> import numpy, surnn
        >>> x = numpy.random.default_rng(0).normal(size=(40, 20))
        >>> model = surnn.SuRegressor(width=16, layers=1, steps=4, batch=16, device="cpu")
        >>> model.fit(x, 100 + x.mean(1)).predict(x).shape
        (40,)
    """

    goal = "regress"

    def fit(self, X: Any, y: Any) -> "SuRegressor":
        """Train on sequences X with numbers y, [N] or [N, K]."""
        self._shape = np.shape(y)[1:]
        self._fit(X, as_array(y).astype(np.float64))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """[N] or [N, K] numbers."""
        return self._predict(X).reshape(-1, *self._shape)
