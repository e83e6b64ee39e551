"""What a linear model reaches on held-out rows."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skident.base.linear_reference import linear_accuracy, linear_r2


def test_scores_on_held_out_rows():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((90, 3))
    folds = np.array_split(np.arange(90), 3)
    Y = X @ rng.standard_normal((3, 2))
    assert linear_r2(X, Y, folds) > 0.999 and linear_r2(X, Y[::-1], folds) < 0.3
    # A target that does not vary does not count.
    assert linear_r2(X, np.column_stack([Y[:, 0], np.ones(90)]), folds) > 0.999
    labels = np.digitize(X[:, 0] + 0.5 * rng.standard_normal(90), [-0.5, 0.5])
    model = make_pipeline(StandardScaler(), LogisticRegression())
    expected = np.mean(cross_val_predict(model, X, labels, cv=KFold(3)) == labels)
    assert linear_accuracy(X, labels, folds) == pytest.approx(expected)


def test_one_class_outside_of_a_fold():
    X, labels = np.random.RandomState(0).standard_normal((9, 2)), np.array([0] * 6 + [1] * 3)
    assert linear_accuracy(X, labels, [np.arange(6, 9)]) == 0.0
