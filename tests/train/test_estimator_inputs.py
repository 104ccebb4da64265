"""Estimators refuse inputs for which an answer would mean nothing."""

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")

from surnn.train.estimators import SuClassifier  # noqa: E402

RANDOM = np.random.default_rng(0)
CLASSES = 12
LABELS = np.arange(96) % CLASSES
X = RANDOM.normal(size=(96, 6, CLASSES)).astype(np.float32) * 0.1
X[np.arange(96), :, LABELS] += 3
OPTIONS = {"width": 32, "layers": 1, "batch": 32, "device": "cpu", "gate": "open"}


@pytest.fixture(scope="module")
def fitted():
    return SuClassifier(**OPTIONS, steps=60, learning_rate=1e-2).fit(X, LABELS)


def test_labels_above_nine_keep_their_order(fitted):
    """As texts, 10 comes before 2."""
    assert (fitted.predict(X) == LABELS).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_numbers_that_are_not_finite_are_refused(fitted, value):
    x = X[:3].astype(np.float64)
    x[1, 2, 4] = value
    for predict in (fitted.predict, fitted.predict_proba):
        with pytest.raises(ValueError, match=r"sequence 1 of X has NaN or .* at index 2"):
            predict(x)


def test_sequences_without_time_steps_are_refused(fitted):
    x = X[:3].copy()
    x[2] = np.nan
    with pytest.raises(ValueError, match="sequence 2 of X has no time steps"):
        fitted.predict(x)
    with pytest.raises(ValueError, match="X has no sequences"):
        fitted.predict(X[:0])


def test_one_feature_is_not_repeated(fitted):
    """A product with the scale of each feature would take it for all of them."""
    for x in (X[:3, :, 0], X[:3, :, :5]):
        with pytest.raises(ValueError, match="takes 12 features at each time step"):
            fitted.predict(x)


def test_labels_are_one_for_each_sequence():
    one_hot = np.eye(2)[np.arange(8) % 2]
    with pytest.raises(ValueError, match=r"y must be one label .* got \[8, 2\]"):
        SuClassifier(**OPTIONS, steps=1).fit(X[:8], one_hot)
    with pytest.raises(ValueError, match="7 targets for 8 sequences"):
        SuClassifier(**OPTIONS, steps=1).fit(X[:8], np.arange(7) % 2)
    missing = np.where(np.arange(8) == 3, np.nan, np.arange(8) % 2)
    with pytest.raises(ValueError, match="the label of sequence 3 is NaN"):
        SuClassifier(**OPTIONS, steps=1).fit(X[:8], missing)
