"""Rank-deficient inputs, fewer samples than inputs, duplicated columns: finite predictions, or errors that say why."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skident import (
    HierarchicalQuadraticNet,
    HierarchicalQuadraticNetClassifier,
    PassiveNetworkIdentifier,
    QuadraticNetClassifier,
    QuadraticNetRegressor,
    SaddleEscapeAnalyzer,
    SaddleToSaddleClassifier,
    SaddleToSaddleRegressor,
    TensorReLURegressor,
)
from skident.landscape import HuberLoss
from skident.saddle import fastest_shallow_escape

REGRESSORS = {
    "squared": QuadraticNetRegressor(random_state=0),
    "huber": QuadraticNetRegressor(loss=HuberLoss(), alpha=0.1, random_state=0),
    "relu": TensorReLURegressor(random_state=0),
    "passive": PassiveNetworkIdentifier((2, 1), n_starts=2, max_work=1e8, random_state=0),
    "hierarchical": HierarchicalQuadraticNet((2, 2), n_starts=1, max_iter=20, random_state=0),
    "saddle": SaddleToSaddleRegressor(width=8, max_iter=60, random_state=0),
}
CLASSIFIERS = {
    "quadratic": QuadraticNetClassifier(random_state=0),
    "hierarchical": HierarchicalQuadraticNetClassifier((2, 2), max_epochs=3, random_state=0),
    "saddle": SaddleToSaddleClassifier(width=8, max_iter=60, random_state=0),
}


def rank_two(n, rng):
    return rng.standard_normal((n, 2)) @ rng.standard_normal((2, 4))


def fewer_samples(n, rng):
    return rng.standard_normal((6, 8))


def duplicated(n, rng):
    X = rng.standard_normal((n, 2))
    return np.column_stack([X, X, X[:, :1]])


TABLES = {table.__name__: table for table in (rank_two, fewer_samples, duplicated)}


def fitted(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_predict_finite_values_or_say_why_not(name, table):
    rng = np.random.default_rng(0)
    X = TABLES[table](60, rng)
    y = X[:, 0] ** 2 + X[:, 1] + 0.1 * rng.standard_normal(len(X))
    try:
        model = fitted(REGRESSORS[name], X, y)
    except ValueError as error:
        assert "samples" in str(error) or "rows" in str(error)
        return
    new = TABLES[table](60, rng)
    found = model.predict(new) if hasattr(model, "predict") else model.network_(new)
    assert np.isfinite(found).all() and np.abs(found).max() < 1e3 * np.abs(y).max()


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_predict_probabilities(name, table):
    rng = np.random.default_rng(0)
    X = TABLES[table](60, rng)
    y = np.where(X[:, 0] > np.median(X[:, 0]), "yes", "no")
    found = fitted(CLASSIFIERS[name], X, y).predict_proba(TABLES[table](60, rng))
    assert np.isfinite(found).all() and np.allclose(found.sum(axis=1), 1.0)


def test_duplicated_columns_do_not_change_a_certified_fit():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((80, 3))
    y = X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(80)
    once = QuadraticNetRegressor(alpha=0.01, random_state=0).fit(X, y)
    twice = QuadraticNetRegressor(alpha=0.01, random_state=0).fit(np.hstack([X, X]), y)
    assert once.certificate_.status == twice.certificate_.status == "global"


@pytest.mark.parametrize("table", ["rank_two", "duplicated"])
def test_escape_speeds_of_degenerate_inputs_have_a_bound_above_them(table):
    rng = np.random.default_rng(0)
    X = TABLES[table](30, rng)
    y = np.abs(X[:, 0]) - np.abs(X[:, 0]).mean()
    G = (y - y.mean()) / len(y)
    options = {"depth": 2, "loss": "gradient", "n_starts": 3, "random_state": 0}
    speed = fitted(SaddleEscapeAnalyzer(**options), X, G[:, None]).escape_speed_
    assert 0 < speed <= fastest_shallow_escape(X, G).upper_bound * (1 + 1e-9)
