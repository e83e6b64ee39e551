"""Classifiers that are trained at once: the trials that select the noise."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris, load_wine

from skident import HierarchicalQuadraticNetClassifier


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_trials_repeat_with_the_seed():
    X, y = load_wine(return_X_y=True)
    options = {"max_epochs": 4, "random_state": 3}
    first, second = (HierarchicalQuadraticNetClassifier(**options).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    assert first.input_noise_ == second.input_noise_ and first.held_out_score_ == second.held_out_score_


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_modules_are_those_that_were_trained(dtype):
    X, y = load_iris(return_X_y=True)
    clf = HierarchicalQuadraticNetClassifier((6,), dtype=dtype, input_noise=0.0, random_state=1).fit(X, y)
    assert next(clf._module.parameters()).dtype == getattr(torch, dtype)
    assert clf.score(X, y) > 0.95
    assert (clf._in_chunks(X, lambda module, x: module(x)).argmax(axis=1) == y).mean() > 0.95
