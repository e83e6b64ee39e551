"""All estimators of tables: bad input, order of rows, and warnings if another model is better."""

import contextlib
import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning

from skident import (
    HierarchicalQuadraticNet,
    HierarchicalQuadraticNetClassifier,
    PassiveNetworkIdentifier,
    QuadraticNetClassifier,
    QuadraticNetRegressor,
    SaddleToSaddleClassifier,
    SaddleToSaddleRegressor,
    TensorReLURegressor,
)

SMALL = [
    TensorReLURegressor(random_state=0),
    QuadraticNetRegressor(random_state=0),
    HierarchicalQuadraticNet((2, 2), n_starts=1, max_iter=20, random_state=0),
    SaddleToSaddleRegressor(width=10, max_iter=80, random_state=0),
    PassiveNetworkIdentifier((2, 1), n_starts=2, max_work=1e8, random_state=0),
    QuadraticNetClassifier(random_state=0),
    HierarchicalQuadraticNetClassifier((2, 2), max_epochs=5, random_state=0),
    SaddleToSaddleClassifier(width=10, max_iter=80, random_state=0),
]
REGRESSORS = [model for model in SMALL if not is_classifier(model)]
every = pytest.mark.parametrize("model", SMALL, ids=lambda model: type(model).__name__)
seeds = pytest.mark.parametrize("seed", range(3))


@contextlib.contextmanager
def any_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def table(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    return X, X[:, 0] + np.abs(X[:, 1]) + 0.2 * rng.standard_normal(n)


def fitted(model, X, y):
    with any_warning():
        return clone(model).fit(X, np.where(y > np.median(y), "b", "a") if is_classifier(model) else y)


@every
@seeds
def test_a_column_that_is_constant_in_the_training_samples(model, seed):
    X, y = table(seed=seed)
    X[:, 2] = np.arange(80) >= 60  # a flag that is set in the last fold only
    found = fitted(model, X[:60], y[:60])
    new = found.predict(X[60:])
    assert len(new) == 20 and (is_classifier(model) or np.abs(new).max() < 10 * np.abs(y).max())


@every
@seeds
def test_one_outlier_in_the_inputs(model, seed):
    X, y = table(seed=seed)
    row, column = 7 + 20 * seed, seed % 4
    X[row, column] = 1e8
    found = fitted(model, X, y)
    new = found.predict(np.delete(X, row, axis=0))
    assert is_classifier(model) or (np.isfinite(new).all() and np.abs(new).max() < 10 * np.abs(y).max())


@pytest.mark.parametrize("model", REGRESSORS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("kind", [str, object])
def test_strings_as_targets_name_a_classifier(model, kind):
    X, y = table()
    labels = np.where(y > 0, "yes", "no").astype(kind)
    with pytest.raises(ValueError, match=r"y holds strings \('(yes|no)'\), .* HierarchicalQuadraticNetClassifier"):
        clone(model).fit(X, labels)


@pytest.mark.parametrize("kind", [SaddleToSaddleRegressor, SaddleToSaddleClassifier, QuadraticNetRegressor,
                                  QuadraticNetClassifier, TensorReLURegressor, HierarchicalQuadraticNet,
                                  HierarchicalQuadraticNetClassifier])  # fmt: skip
def test_predictions_do_not_depend_on_the_order_of_rows(kind):
    model = next(one for one in SMALL if type(one) is kind)
    X, y = table()
    order = np.random.default_rng(1).permutation(len(X))
    one, other = fitted(model, X, y), fitted(model, X[order], y[order])
    if is_classifier(model):
        np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), atol=1e-6)
    else:
        np.testing.assert_allclose(one.predict(X), other.predict(X), atol=1e-6)  # sums in another order


TREES_ARE_BETTER = [
    TensorReLURegressor(random_state=0),
    QuadraticNetRegressor(random_state=0),
    HierarchicalQuadraticNet(max_iter=40, n_starts=1, random_state=0),
    SaddleToSaddleRegressor(width=20, random_state=0),
    QuadraticNetClassifier(random_state=0),
    HierarchicalQuadraticNetClassifier(random_state=0),
    SaddleToSaddleClassifier(width=20, random_state=0),
]


@pytest.mark.parametrize("model", TREES_ARE_BETTER, ids=lambda model: type(model).__name__)
def test_every_estimator_warns_if_boosting_is_better(model):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 4))
    y = (np.floor(4 * X[:, 0]) % 2) + (np.floor(4 * X[:, 1]) % 2) * (X[:, 2] > 0.5) + 0.05 * rng.standard_normal(300)
    y = (y > 0.7).astype(int) if is_classifier(model) else y
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clone(model).fit(X, y)
    own = [w for w in caught if "boosting of trees is better for these data" in str(w.message)]
    assert len(own) == 1 and own[0].category is ConvergenceWarning and own[0].filename == __file__
