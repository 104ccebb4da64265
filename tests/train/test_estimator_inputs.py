"""Estimators refuse inputs for which an answer would mean nothing."""

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")

from surnn.errors import SurnnError  # noqa: E402
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
    with pytest.raises(ValueError, match="the label of sequence 3 is missing"):
        SuClassifier(**OPTIONS, steps=1).fit(X[:8], missing)


@pytest.mark.parametrize("kind", [complex, "datetime64[s]", "timedelta64[s]", str])
def test_values_that_are_no_numbers_are_refused_in_lists_too(fitted, kind):
    """float32 would keep the real part, or the seconds since 1970."""
    with pytest.raises(ValueError, match=r"sequence 1 has values of type .* expected numbers"):
        fitted.predict([X[0], np.zeros((6, CLASSES)).astype(int).astype(kind)])


def test_masked_values_are_refused(fitted):
    """The number under a mask is often one like -9999."""
    with pytest.raises(ValueError, match=r"masked values.*filled\(numpy\.nan\)"):
        fitted.predict(np.ma.masked_greater(X[:3], 2))
    with pytest.raises(ValueError, match="masked values"):
        fitted.predict([np.ma.masked_greater(x, 2) for x in X[:3]])
    with pytest.raises(ValueError, match="masked values"):
        SuClassifier(**OPTIONS, steps=1).fit(X[:8], np.ma.masked_equal(np.arange(8) % 2, 1))
    assert (fitted.predict(np.ma.masked_greater(X[:3], 99)) == LABELS[:3]).all()


@pytest.mark.parametrize("missing", [np.nan, None])
@pytest.mark.parametrize("kind", [None, object])
def test_a_missing_label_among_texts_is_no_class(missing, kind):
    labels = np.array(["a", missing if kind else str(np.nan), *"bababa"], kind)
    with pytest.raises(ValueError, match="the label of sequence 1 is missing"):
        SuClassifier(**OPTIONS, steps=1).fit(X[:8], labels)


def test_numbers_that_float32_does_not_tell_apart_are_refused():
    x = 1.7e9 + np.arange(24.0)[:, None] / 24 + np.arange(6)
    for given in (x, list(x)):
        with pytest.raises(SurnnError, match=r"feature '0' has values .* float32 resolves 128"):
            SuClassifier(**OPTIONS, steps=1).fit(given, np.arange(24) % 2)
