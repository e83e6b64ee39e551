"""Fitted estimators that would be trained again: a warning with targets, an error without."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skident import NetworkCompressor
from skident.oracle.black_box import resolve_black_box

X = np.random.RandomState(0).standard_normal((30, 2))
Y = X @ [1.0, -2.0]
LABELS = (Y > 0).astype(int)

FITTED = [LinearRegression().fit(X, Y), make_pipeline(StandardScaler(), LinearRegression()).fit(X, Y)]


@pytest.mark.parametrize("estimator", FITTED)
def test_a_second_training_is_warned_of(estimator):
    with pytest.warns(UserWarning, match=r"is fitted already, .* pass FrozenEstimator\(regressor\) \(or regressor.pre"):
        box = resolve_black_box(estimator, X, 2 * Y, 0)
    np.testing.assert_allclose(box.predict(X), 2 * Y)  # trained again, as was said
    with pytest.raises(
        ValueError, match=r"is fitted, but would be .* y is None\. .* pass FrozenEstimator\(regressor\)"
    ):
        resolve_black_box(estimator, X, None, 0)


def test_a_fitted_classifier():
    classifier = LogisticRegression().fit(X, LABELS)
    with pytest.warns(UserWarning, match=r"LogisticRegression is fitted .* pass FrozenEstimator\(classifier\)\."):
        resolve_black_box(classifier, X, LABELS, 0, classifiers=True)


@pytest.mark.parametrize("estimator", [None, clone(FITTED[0]), clone(FITTED[1]), FrozenEstimator(FITTED[0])])
def test_nothing_is_warned_of_otherwise(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resolve_black_box(estimator, X, Y, 0)


def test_an_unfitted_estimator_without_targets():
    with pytest.raises(ValueError, match=r"LinearRegression is not fitted and y is None: requires y to be passed"):
        resolve_black_box(LinearRegression(), X, None, 0)


@pytest.mark.parametrize("wrap", [FrozenEstimator, lambda regressor: regressor.predict])
def test_what_the_message_recommends_runs(wrap):
    box = resolve_black_box(wrap(FITTED[0]), X, None, 0)
    answers = box.predict(X) if hasattr(box, "predict") else box(X)
    np.testing.assert_allclose(answers, Y)


def test_estimators_pass_the_warning_on():
    """The line that is named is the user's call of `fit`."""
    mlp = MLPRegressor(hidden_layer_sizes=(2,), solver="lbfgs", max_iter=500, tol=1e-2, random_state=0).fit(X, Y)
    with pytest.warns(UserWarning, match="MLPRegressor is fitted already") as caught:
        NetworkCompressor(mlp, tol=0.5, max_iter=2, random_state=0).fit(X, Y)
    assert caught[0].filename == __file__
