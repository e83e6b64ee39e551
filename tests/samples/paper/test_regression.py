import numpy as np
import pytest

from skident.network import FeedforwardNetwork
from skident.samples.paper.regression import consolidate, regress_on_features, ridge_features


def random_network(rng, D, m):
    W = rng.normal(size=(D, m))
    W /= np.linalg.norm(W, axis=0)
    return W, rng.uniform(-1, 1, m), rng.choice([-1, 1], m) * rng.uniform(1, 2, m)


def function(X, W, b, a):
    return np.maximum(X @ W + b, 0) @ a


def unconsolidated(X, W, b, plus, minus, linear, intercept):
    z = X @ W + b
    return np.maximum(z, 0) @ plus + np.maximum(-z, 0) @ minus + X @ linear + intercept


# -- regression --------------------------------------------------------------------------------------------------------


def test_any_signs_give_the_function_back(rng):
    W, b, a = random_network(rng, 6, 4)
    X, s = rng.normal(size=(300, 6)), np.array([1, -1, -1, 1])
    found = regress_on_features(X, function(X, W, b, a), W * s, b * s)
    np.testing.assert_allclose(found.coefficients, a / 2, rtol=1e-11)
    np.testing.assert_allclose(found.linear, W @ a / 2, atol=1e-12)
    assert found.intercept == pytest.approx(b @ a / 2, abs=1e-12)
    assert found.loss < 1e-26 and found.n_used == 300


@pytest.mark.parametrize("n", [40, 2000])
def test_streamed_and_weighted_against_lstsq(n, rng, monkeypatch):
    monkeypatch.setattr("skident.samples.paper.regression.BATCH_NUMBERS", 300)
    W, b, _ = random_network(rng, 3, 5)
    X, y, weights = rng.normal(size=(n, 3)), rng.normal(size=n), rng.uniform(size=n)
    A, root = ridge_features(X, W, b), np.sqrt(weights)
    expected = np.linalg.lstsq(root[:, None] * A, root * y)[0]
    found = regress_on_features(X, y, W, b, sample_weight=weights)
    np.testing.assert_allclose(np.r_[found[0], found[1], found[2]], expected, atol=1e-10)
    assert found.loss == pytest.approx(weights @ (y - A @ expected) ** 2 / weights.sum(), rel=1e-10)


def test_long_features_do_not_count(rng):
    W, b, _ = random_network(rng, 3, 2)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    A = ridge_features(X, W, b)
    short = np.linalg.norm(A, axis=1) <= 2.5
    found = regress_on_features(X, y, W, b, tau=2.5)
    assert 20 < found.n_used == short.sum() < 180
    np.testing.assert_allclose(np.r_[found[0], found[1], found[2]], np.linalg.lstsq(A[short], y[short])[0], atol=1e-11)


@pytest.mark.parametrize("share", [0.999, 0.5, 1e-3])
def test_bounded_coefficients_are_optimal(share, rng):
    W, b, a = random_network(rng, 3, 2)
    X = rng.normal(size=(60, 3))
    y = function(X, W, b, a)
    free = regress_on_features(X, y, W, b)
    radius = share * np.linalg.norm(np.r_[free[0], free[1], free[2]])
    found = regress_on_features(X, y, W, b, max_norm=radius)
    beta = np.r_[found[0], found[1], found[2]]
    assert np.linalg.norm(beta) == pytest.approx(radius, rel=1e-9)
    # The minimum on a sphere: the gradient points outwards along beta.
    A = ridge_features(X, W, b)
    gradient = A.T @ (A @ beta - y)
    assert gradient @ beta == pytest.approx(-np.linalg.norm(gradient) * np.linalg.norm(beta), rel=1e-9)
    np.testing.assert_allclose(regress_on_features(X, y, W, b, max_norm=1e3).linear, free.linear, atol=1e-11)


def test_collinear_features_share(rng):
    W, b, a = random_network(rng, 4, 2)
    X = rng.normal(size=(200, 4))
    y = function(X, W, b, a)
    # The second unit twice, with both signs, and one that no row gets to the other side of.
    V, far = np.column_stack([W, -W[:, 1], W[:, 0]]), np.r_[b, -b[1], 50.0]
    found = regress_on_features(X, y, V, far)
    assert np.abs(ridge_features(X, V, far) @ np.r_[found[0], found[1], found[2]] - y).max() < 1e-10
    assert np.abs(found.coefficients).max() < 10


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((np.ones((9, 2)), np.ones(9), np.ones((3, 1)), np.ones(1)), {}, r"W \(D, m\).*got \(9, 2\), \(3, 1\)"),
        ((np.ones((9, 2)), np.ones(8), np.ones((2, 1)), np.ones(1)), {}, r"y must have shape \(9,\).*got \(8,\)"),
        ((np.ones((9, 2)), np.ones(9), np.ones((2, 1)), np.ones(1)), {"tau": 0.1}, "0 of 9 rows.*4 coefficients"),
        ((np.ones((3, 2)), np.ones(3), np.ones((2, 1)), np.ones(1)), {}, "3 of 3 rows.*give more rows"),
    ],
)
def test_regression_errors(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        regress_on_features(*arguments, **options)


# -- consolidation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("D", "m"), [(1, 1), (4, 3), (3, 7)])
def test_consolidated_is_the_same_function(D, m, rng):
    W, b, plus = random_network(rng, D, m)
    minus, linear, intercept = rng.normal(size=m), rng.normal(size=D), rng.normal()
    network = consolidate(W, b, plus, minus, linear, intercept)
    assert isinstance(network, FeedforwardNetwork) and network.activation == "relu"
    assert network.layer_widths == (m + 2, 1)
    np.testing.assert_allclose(np.linalg.norm(network.weights[0], axis=0), 1, rtol=1e-12)
    X = 3 * rng.normal(size=(500, D))
    expected = unconsolidated(X, W, b, plus, minus, linear, intercept)
    np.testing.assert_allclose(network(X)[:, 0], expected, atol=1e-13 * np.abs(expected).max() * m)


def test_no_more_units_than_needed(rng):
    W, b, a = random_network(rng, 5, 3)
    X = rng.normal(size=(200, 5))
    for s, width in ((np.ones(3), 3), (np.array([1, -1, 1]), 5)):
        found = regress_on_features(X, function(X, W, b, a), W * s, b * s)
        network = consolidate(W * s, b * s, found.coefficients, found.coefficients, found.linear, found.intercept)
        assert network.layer_widths == (width, 1)
        np.testing.assert_allclose(network(X)[:, 0], function(X, W, b, a), atol=1e-12)


def test_pairs_that_cancel_leave_no_unit():
    # relu(t) - relu(-t) = t
    network = consolidate(np.eye(2), np.ones(2), [1.0, 2.0], [-1.0, -2.0], [-1.0, 0.0], 0.5)
    assert network.layer_widths == (2, 1)
    np.testing.assert_allclose(network([[3.0, -2.0], [0.1, 5.0]])[:, 0], [0.5 + 1 + 2 - 4, 0.5 + 1 + 2 + 10])
    constant = consolidate(np.eye(2), np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2), -1.5)
    assert constant.layer_widths == (1, 1) and constant([[4.0, 2.0]])[0, 0] == -1.5


def test_consolidation_errors():
    with pytest.raises(ValueError, match=r"linear \(D,\), got \(2, 2\), \(2,\), \(2,\), \(2,\) and \(3,\)"):
        consolidate(np.eye(2), np.ones(2), np.ones(2), np.ones(2), np.ones(3), 0.0)
