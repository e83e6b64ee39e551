"""Estimators that learn from samples, on anything: a fit works, with finite predictions, or says why not.

A few examples each, always the same; ``SKIDENT_FUZZ=2000`` tries as many, and others every time.
"""

import os
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.utils.validation import has_fit_parameter

from skident import (
    HierarchicalQuadraticNet,
    HierarchicalQuadraticNetClassifier,
    QuadraticNetRegressor,
    SaddleEscapeAnalyzer,
    SaddleToSaddleClassifier,
    SaddleToSaddleRegressor,
    TensorReLURegressor,
)

N_EXAMPLES = int(os.environ.get("SKIDENT_FUZZ", "0"))
FUZZ = settings(
    max_examples=N_EXAMPLES or 12,
    derandomize=not N_EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
DOCUMENTED = (ConvergenceWarning, UserWarning, DataConversionWarning)
SHORT = {"depth": 3, "width": 4, "max_iter": 5, "record_every": 2, "random_state": 0}
SMALL = {"widths": (3,), "n_starts": 1, "max_iter": 5, "max_epochs": 2, "random_state": 0}
ESTIMATORS = {
    "ReLU network": TensorReLURegressor(n_candidates=2, random_state=0),
    "ReLU network, one unit": TensorReLURegressor(n_units=1, n_candidates=2, random_state=0),
    "quadratic": QuadraticNetRegressor(random_state=0),
    "quadratic by descent": QuadraticNetRegressor(n_hidden=2, solver="descent", alpha=0.1, max_iter=20, random_state=0),
    "saddle-to-saddle": SaddleToSaddleRegressor(**SHORT),
    "saddle-to-saddle, float32": SaddleToSaddleRegressor(**SHORT, dtype="float32", batch_size=4),
    "saddle-to-saddle classifier": SaddleToSaddleClassifier(**SHORT),
    "escapes": SaddleEscapeAnalyzer(width=3, n_starts=2, max_iter=3, random_state=0),
    "escapes, float32": SaddleEscapeAnalyzer("squared_error", width=3, n_starts=2, max_iter=3, dtype="float32"),
    "hierarchical": HierarchicalQuadraticNet(**SMALL),
    "hierarchical by Adam": HierarchicalQuadraticNet(**SMALL, solver="adam"),
    "hierarchical classifier": HierarchicalQuadraticNetClassifier(**SMALL),
}
EXTREME = ("1e150", "1e-150")  # numbers whose squares float64 does not hold


ORDINARY = [""] * 12


@st.composite
def tables(draw, extreme):
    """Inputs (n, D), mostly ordinary; sometimes with odd scales, columns, types or entries."""
    n, n_columns = (
        draw(st.sampled_from([40, 100, 60, 12, 40, 100, 5, 3, 2, 1])),
        draw(st.sampled_from([3, 2, 4, 6, 3, 2, 4, 1])),
    )
    rng = np.random.RandomState(draw(st.integers(0, 99)))
    X = rng.standard_normal((n, n_columns)) * 10.0 ** draw(st.one_of(st.just(0), st.integers(-12, 12)))
    oddities = ["constant", "twice", "zero", "ranges", "offset", "ties", "NaN", "inf", *extreme]
    oddity = draw(st.sampled_from([*ORDINARY, *oddities]))
    if oddity in extreme:
        return X * float(oddity)
    if oddity == "constant":
        X[:, 0] = X[0, 0]
    elif oddity == "twice":
        X[:, -1] = X[:, 0]
    elif oddity == "zero":
        X[:] = 0.0
    elif oddity == "ranges":
        X *= 10.0 ** rng.randint(-12, 13, n_columns)
    elif oddity == "offset":
        X += 10.0 ** draw(st.integers(0, 12))
    elif oddity == "ties":
        X = X[rng.randint(0, max(1, n // 4), n)]
    elif oddity:
        X[rng.randint(n), rng.randint(n_columns)] = float(oddity)
    dtype = draw(st.sampled_from([np.float64] * 4 + [np.float32, np.int64, np.uint8, bool]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what does not fit into the type
        X = X.astype(dtype)
    return np.asfortranarray(X) if draw(st.booleans()) else X


@st.composite
def targets(draw, X, extreme):
    """Numbers (n,), sometimes (n, k), that X has to do with or not."""
    n, rng = len(X), np.random.RandomState(draw(st.integers(0, 99)))
    y = rng.standard_normal(n)
    if draw(st.booleans()):
        with np.errstate(all="ignore"):
            y = np.nan_to_num(np.abs(X[:, 0] / np.abs(X[:, 0].astype(float)).max()), posinf=0.0) + 0.1 * y
    y = y if draw(st.sampled_from([True] * 7 + [False])) else np.stack([y, y[::-1]], axis=1)
    oddities = ["scale", "offset", "constant", "zero", "integers", "NaN", *extreme]
    oddity = draw(st.sampled_from([*ORDINARY, *oddities]))
    if oddity in extreme:
        return y * float(oddity)
    if oddity == "scale":
        return y * 10.0 ** draw(st.integers(-12, 12))
    if oddity == "offset":
        return y + 10.0 ** draw(st.integers(0, 12))
    if oddity in ("constant", "zero"):
        return np.full_like(y, 3.7 if oddity == "constant" else 0.0)
    if oddity == "integers":
        return np.clip(y, -3, 3).astype(int)
    if oddity:
        y.flat[0] = float(oddity)
    return y


@st.composite
def samples(draw, classes, extreme):
    """Inputs, targets or labels, and weights or None."""
    X = draw(tables(extreme))
    n, rng = len(X), np.random.RandomState(draw(st.integers(0, 99)))
    if classes:
        labels = draw(st.sampled_from([[0, 1], [0, 1, 2], ["a", "b"], [-1.0, 1.0], [True, False], [0]]))
        y = np.array(labels)[rng.randint(0, len(labels), n)]
    else:
        y = draw(targets(X, extreme))
    weights = {"ones": np.ones(n), "some zero": np.arange(n) % 2.0, "all zero": np.zeros(n)}
    weights |= {"tiny": np.full(n, 1e-12), "negative": -np.ones(n), "one only": np.eye(n)[0]}
    return X, y, weights.get(draw(st.sampled_from([None] * 9 + [*weights])))


def answers(estimator, X):
    """All that a fitted estimator says of rows."""
    for name in ("predict", "transform", "predict_proba", "decision_function"):
        if hasattr(estimator, name):
            yield name, np.asarray(getattr(estimator, name)(X))


def undocumented(caught):
    return [f"{w.category.__name__}: {w.message}" for w in caught if not issubclass(w.category, DOCUMENTED)]


@pytest.mark.parametrize("key", ESTIMATORS)
def test_a_fit_works_or_says_why_not(key):
    weighted = has_fit_parameter(ESTIMATORS[key], "sample_weight")

    @FUZZ
    @given(samples(is_classifier(ESTIMATORS[key]), EXTREME))
    def check(sample):
        X, y, w = sample
        estimator = clone(ESTIMATORS[key])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                estimator.fit(X, y, **({"sample_weight": w} if weighted else {}))
            except ValueError as error:
                said = str(error)
                assert len(said) > 20 and "math domain" not in said
                assert not vars(estimator).keys() & {"n_features_in_", "n_iter_"} or key.startswith("hierarchical")
            else:
                for name, answer in answers(estimator, X):
                    assert len(answer) == len(X), name
                    assert answer.dtype.kind not in "fc" or np.isfinite(answer).all(), name
        assert undocumented(caught) == []

    check()
