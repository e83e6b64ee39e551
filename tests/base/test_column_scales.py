"""Scales of columns: a floor where variances tell what matters, none where units differ."""

import numpy as np

from skident.base.column_scales import scales_for_classes


def table(unit):
    rng = np.random.RandomState(0)
    y = np.arange(100) % 2
    X = 0.1 * rng.standard_normal((100, 20))
    X[:, 0] = 2.0 * y + 0.5 * rng.standard_normal(100)
    X[:, 1] = unit * rng.standard_normal(100)
    return X, y


def test_columns_that_hardly_vary_are_not_lifted():
    X, y = table(0.1)
    np.testing.assert_allclose(scales_for_classes(X, y), np.sqrt(X.var(axis=0) + X.var(axis=0).mean()))


def test_columns_in_other_units_have_their_own():
    X, y = table(1000.0)
    np.testing.assert_allclose(scales_for_classes(X, y), X.std(axis=0))


def test_few_or_constant_rows_have_their_own():
    X, y = table(0.1)
    np.testing.assert_allclose(scales_for_classes(X[:20], y[:20]), X[:20].std(axis=0))
    assert np.all(scales_for_classes(np.ones((50, 2)), y[:50]) == 1.0)
