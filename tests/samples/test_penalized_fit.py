"""Few samples with noise: units and the penalty on their weights by evidence."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV

from skident import PassiveNetworkIdentifier, TensorReLURegressor
from skident.samples.penalized_fit import _closest_to_mean, _Networks, _Search, penalty_matrix
from skident.samples.ridges import RidgeFit, RidgeModel
from skident.samples.sample import Sample
from tests.rates import fewest_successes


def fitted(X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TensorReLURegressor(random_state=0, **options).fit(X, y)


def noisy(seed, n, d=6, k=3, noise=0.2):
    """Samples of a network, new inputs, their values without noise."""
    rng = np.random.default_rng(seed)
    W, b, a = rng.standard_normal((d, k)), rng.uniform(-1.0, 1.0, k), rng.choice([-1.0, 1.0], k)
    X, new = rng.standard_normal((n, d)), rng.standard_normal((2000, d))
    values = [np.maximum(Z @ W + b, 0.0) @ a for Z in (X, new)]
    return X, values[0] + noise * values[1].std() * rng.standard_normal(n), new, values[1]


@pytest.mark.parametrize("skip", [True, False])
def test_gradients_are_those_of_the_cost(skip):
    rng = np.random.default_rng(0)
    sample = Sample(rng.standard_normal((40, 3)), rng.standard_normal(40))
    Z, y, w = sample.arrays(np.float64)
    penalty = penalty_matrix(sample, 2, skip)
    problem = _Networks((np.column_stack([Z, np.ones(40)]), y, np.sqrt(w)), np.array([[1.0, -1.0]]), penalty)
    x, step = rng.standard_normal((1, len(penalty))), 1e-6
    found = problem.linearize(x).gradient[0]
    moved = [(problem.cost(x + step * e) - problem.cost(x - step * e))[0] / (4.0 * step) for e in np.eye(len(penalty))]
    np.testing.assert_allclose(found, moved, rtol=1e-6, atol=1e-6 * np.abs(found).max())


def test_errors_are_near_those_of_the_true_units():
    good = []
    for seed in range(4):
        X, y, new, target = noisy(seed, 150)
        reg = fitted(X, y)
        floor = 0.04 * target.var() * 3 * 7 / 150
        good.append(np.mean((reg.predict(new) - target) ** 2) < 3.0 * floor and reg.n_units_ <= 4)
    assert sum(good) >= fewest_successes(4, 5, 6)


@pytest.mark.parametrize(("n", "p"), [(80, 60), (40, 60)])
def test_linear_functions_of_many_inputs_are_predicted_as_by_ridge(n, p):
    rng = np.random.default_rng(0)
    w, X, new = rng.standard_normal(p) / np.sqrt(p), rng.standard_normal((n, p)), rng.standard_normal((1000, p))
    y = X @ w + 0.3 * rng.standard_normal(n)
    ridge = RidgeCV(np.logspace(-2, 4, 30)).fit(X, y).score(new, new @ w)
    assert fitted(X, y).score(new, new @ w) > ridge - 0.1


def test_a_given_penalty_is_kept_and_none_is_least_squares():
    X, y, *_ = noisy(0, 150)
    assert fitted(X, y, alpha=0.01).alpha_ == 0.01 and fitted(X, y, alpha=0).alpha_ == 0.0
    assert fitted(X, y, alpha=10.0).predict(X).std() < 0.5 * y.std()
    assert fitted(X, y, n_units=3).n_units_ == 3


def test_the_network_closest_to_a_mean():
    """A network that is the mean itself stays; with one of opposite outputs, little is left."""
    X, y, *_ = noisy(0, 60, d=3, k=2)
    search = _Search(Sample(X, y), True)
    rng = np.random.default_rng(0)
    model = RidgeModel(rng.standard_normal((3, 2)), rng.standard_normal(2), np.ones(2), np.ones(3), 1.0, "relu")
    opposite = replace(model, s=-model.s, u=-model.u, c=-model.c)
    Z, start = search.rows[0][:, :-1], RidgeFit(model, 1.0, 1, "ftol")
    alone, beside = (
        _closest_to_mean(search, start, [(0.0, one) for one in plausible], np.random.RandomState(0)).model(Z)
        for plausible in ([model], [model, opposite])
    )
    np.testing.assert_allclose(alone, model(Z), atol=1e-3 * np.ptp(model(Z)))
    assert np.ptp(beside) < 1e-2 * np.ptp(model(Z))


def test_without_noise_no_penalty_is_taken():
    X, y, *_ = noisy(1, 400, noise=0.0)
    reg = fitted(X, y)
    assert reg.exact_ and reg.alpha_ == 0.0


@pytest.mark.parametrize("change", ["outlier", "constant", "one feature"])
def test_odd_inputs_leave_the_fit_intact(change):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((200, 1 if change == "one feature" else 4))
    y = np.maximum(X[:, 0], 0.0) + 0.1 * rng.standard_normal(200)
    if change == "outlier":
        X[7, 2] = 1e8
    if change == "constant":
        X[:, 1] = 4.0
    reg = fitted(X, y)
    assert 1 <= reg.n_units_ <= 2 and np.mean((reg.predict(X) - np.maximum(X[:, 0], 0.0)) ** 2) < 0.01


@pytest.mark.parametrize(
    "estimator", [TensorReLURegressor(random_state=0), PassiveNetworkIdentifier((1, 1), n_starts=2, random_state=0)]
)
@pytest.mark.parametrize("labels", [float, int])
def test_classes_as_numbers_are_warned_of(estimator, labels):
    X = np.random.default_rng(3).standard_normal((100, 3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(X, (X[:, 0] > 0.0).astype(labels))
    assert any("y takes 2 values" in str(w.message) for w in caught)


def test_strings_are_refused():
    with pytest.raises(ValueError, match="y|numeric"):
        TensorReLURegressor().fit(np.eye(6), list("ababab"))


def test_noise_has_no_units():
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((100, 6)), rng.standard_normal(100)
    reg = fitted(X, y)
    assert reg.n_units_ == 0 and reg.predict(X).std() < 0.5 * y.std()
