import numpy as np
import pytest

from skident.linalg import hermite_features, n_symmetric_entries
from skident.samples.paper.hermite_regression import (
    hermite_gram,
    n_hermite_features,
    regress_on_hermite,
    tensors_from_gram,
)
from skident.samples.paper.scalars import population_tensors


def polynomial(T, X):
    """``sum_k <T_k, He_k(x)> / k!``"""
    factorials = np.cumprod([1, 1, 2, 3, 4, 5, 6])
    return sum(hermite_features(X, k) @ t / factorials[k] for k, t in T.items())


@pytest.mark.parametrize(("D", "degree"), [(1, 6), (3, 4), (4, 2), (2, 0)])
def test_polynomials_come_back(D, degree, rng):
    T = {k: rng.normal(size=n_symmetric_entries(D, k)) for k in range(degree + 1)}
    assert sum(map(len, T.values())) == n_hermite_features(D, degree)
    X = rng.normal(size=(20 * n_hermite_features(D, degree), D))
    found = regress_on_hermite(X, polynomial(T, X), degree)
    for k in T:
        np.testing.assert_allclose(found[k], T[k], atol=1e-7)


def test_weighted_and_in_chunks(rng, monkeypatch):
    X, y, weights = rng.normal(size=(500, 3)), rng.normal(size=500), rng.uniform(size=500)
    A = np.concatenate([hermite_features(X, k) / np.sqrt([1, 1, 2, 6][k]) for k in range(4)], axis=1)
    root = np.sqrt(weights)
    expected = np.linalg.lstsq(root[:, None] * A, root * y)[0]
    whole = regress_on_hermite(X, y, 3, sample_weight=weights)
    monkeypatch.setattr("skident.samples.paper.hermite_regression.BATCH_NUMBERS", 64)
    parts = regress_on_hermite(X, y, 3, sample_weight=weights)
    solution = np.concatenate([whole[k] / np.sqrt([1, 1, 2, 6][k]) for k in range(4)])
    np.testing.assert_allclose(solution, expected, atol=1e-12)
    for k in whole:
        np.testing.assert_allclose(parts[k], whole[k], atol=1e-12)


def test_sums_of_blocks_add_up(rng):
    X, y = rng.normal(size=(90, 2)), rng.normal(size=90)
    sums = [hermite_gram(X[s : s + 40], y[s : s + 40], None, 3) for s in (0, 40, 80)]
    found = tensors_from_gram(sum(g for g, _ in sums), sum(p for _, p in sums), 2, 3)
    expected = regress_on_hermite(X, y, 3)
    for k in expected:
        np.testing.assert_allclose(found[k], expected[k], atol=1e-12)


def test_errors_are_smaller_than_those_of_means():
    """Of every sample, and mostly by a factor of three or more."""
    b, a = np.array([0.3, -0.5, 0.8]), np.array([1.0, -2.0, 1.5])
    factors = np.empty((20, 3))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        W = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        X = rng.normal(size=(5000, 3))
        y = np.maximum(X @ W + b, 0) @ a
        T, found = population_tensors(W, b, a, 6), regress_on_hermite(X, y, 6)
        for k in range(2, 5):
            mean = y @ hermite_features(X, k) / len(X)
            factors[seed, k - 2] = np.linalg.norm(mean - T[k]) / np.linalg.norm(found[k] - T[k])
    assert factors.min() > 1 and np.median(factors, axis=0).min() > 3


@pytest.mark.parametrize(
    ("shape", "degree", "message"),
    [((400, 5), 6, "400 rows do not determine 462.*give 462"), ((10, 20), 6, "too many, 5000 are allowed")],
)
def test_errors(shape, degree, message):
    with pytest.raises(ValueError, match=message):
        regress_on_hermite(np.ones(shape), np.ones(shape[0]), degree)
