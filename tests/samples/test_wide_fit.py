"""Units from a fit with more of them: found, counted, polished without a matrix of parameters squared."""

import numpy as np
import pytest

from skident import TensorReLURegressor
from skident.datasets import make_relu_network
from skident.samples.ridges import RidgeFit, RidgeModel, RidgeProducts, _cost_and_gradient, _curvature, fit_ridges
from skident.samples.sample import Sample
from skident.samples.unit_count import further_ridge_pays, unit_penalty
from skident.samples.wide_fit import WideFit, eliminate, fit_wide, wide_candidate
from tests.samples.planted import in_z, planted


@pytest.mark.parametrize("kind", ["abs", "relu"])
@pytest.mark.parametrize("skip", [True, False])
def test_products_are_those_of_the_matrix(kind, skip, rng):
    X, y, w = rng.standard_normal((400, 3)), rng.standard_normal(400), rng.uniform(0.5, 2, 400)
    s, u = np.array([1.0, -1.0, 1.0, -1.0]), rng.standard_normal(3) if skip else np.zeros(3)
    model = RidgeModel(rng.standard_normal((3, 4)), rng.standard_normal(4), s, u, 0.3, kind, skip)
    sample = Sample(X, y, w)
    (matrix,) = sample.reduce(_curvature, model)
    _, gradient = sample.reduce(_cost_and_gradient, model)
    equations = RidgeProducts(sample, rng, model).normal_equations(model, gradient, 1.0)
    eye = np.eye(len(gradient))
    np.testing.assert_allclose(np.array([equations.product(e) for e in eye]), matrix, atol=1e-4 * matrix.max())
    np.testing.assert_allclose(equations.diagonal.sum(), np.trace(matrix), rtol=0.5)  # rows are white on average
    inverse = np.array([equations.preconditioner(0.1)(e) for e in eye])
    np.testing.assert_allclose(inverse, inverse.T, atol=1e-9)
    assert np.linalg.eigvalsh(inverse)[0] > 0
    damped = matrix + 0.1 * np.diag(equations.diagonal)
    (step, predicted), best = equations.solve(0.1), gradient @ np.linalg.solve(damped, gradient)
    # Conjugate gradients stop early, and so nearly at the minimum of the quadratic function.
    assert predicted > 0 and -2.0 * gradient @ step - step @ damped @ step > 0.95 * best


def test_a_fit_by_products_is_exact_too(monkeypatch):
    monkeypatch.setattr("skident.samples.ridges.PRODUCT_PARAMETERS", 10)
    sample, U, b, _ = planted(3, 5, 4, 1500)
    U, b = in_z(sample, U, b)
    start = eliminate(sample, WideFit(U + 0.05 * np.random.RandomState(0).standard_normal(U.shape), b), lambda m, _: -m)
    assert start.rss > 1e-4 * sample.total
    fit = fit_ridges(sample, start.model, rng=np.random.RandomState(0))
    assert fit.rss < 1e-20 * sample.total


def test_elimination_is_the_regression_without_them():
    sample, U, b, _ = planted(4, 5, 3, 800, noise=0.1)
    U, b = in_z(sample, U, b)
    more = np.random.RandomState(1).standard_normal((4, 5))
    wide = WideFit(np.vstack([more / np.linalg.norm(more, axis=1, keepdims=True), U]), np.append(np.zeros(4), b))
    seen = {}

    def size(m, rss):
        seen[m] = rss
        return abs(m - 3)

    left = eliminate(sample, wide, size)
    np.testing.assert_allclose(left.rss, seen[3], rtol=1e-6)
    assert np.abs(left.model.units()[0] @ U.T).max(axis=0).min() > 1 - 1e-9
    assert sorted(seen) == list(range(8)) and np.all(np.diff([seen[m] for m in range(8)]) <= 0)


@pytest.mark.parametrize("draw", ["normal", "laplace", "uniform"])
def test_units_are_found_and_counted(draw, monkeypatch):
    """Inputs of any distribution: nothing but the rows is used."""
    monkeypatch.setattr("skident.samples.wide_fit._STEPS", 1500)
    rng = np.random.RandomState(5)
    X = getattr(rng, draw)(size=(4000, 5))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = make_relu_network(1, 5, 3, random_state=5)[2](X)[:, 0]
    sample = Sample(X, y + 0.1 * y.std() * rng.standard_normal(4000))
    wide = fit_wide(sample, 12, rng)
    assert wide.U.shape == (12, 5)
    np.testing.assert_allclose(np.linalg.norm(wide.U, axis=1), 1.0)
    counted = wide_candidate(sample, 6, rng, unit_price=unit_penalty(sample))
    fit = fit_ridges(sample, counted.model)
    assert fit.model.n_units == 3 and fit.rss < 0.0102 * sample.total
    assert not further_ridge_pays(sample, fit, rng)
    two = fit_ridges(sample, wide_candidate(sample, 2, rng).model)
    assert two.model.n_units == 2 and further_ridge_pays(sample, two, rng)


def test_nothing_pays_beyond_an_exact_fit(rng):
    sample, U, b, _ = planted(6, 4, 2, 300)
    fit = fit_ridges(sample, eliminate(sample, WideFit(*in_z(sample, U, b)), lambda m, _: -m).model)
    assert isinstance(fit, RidgeFit) and not further_ridge_pays(sample, fit, rng)


@pytest.mark.parametrize("given", [True, False])
def test_the_estimator_takes_it_where_units_are_many(given, monkeypatch, capsys):
    monkeypatch.setattr("skident.samples.learning.TENSOR_UNITS", 3)
    monkeypatch.setattr("skident.samples.learning._TENSOR_RANK", 1)
    monkeypatch.setattr("skident.samples.wide_fit._STEPS", 1500)
    X, y, network = make_relu_network(4000, 6, 5, noise=0.1, random_state=7)
    reg = TensorReLURegressor(n_units=5 if given else None, random_state=0, verbose=1).fit(X, y)
    assert reg.n_units_ == 5 and "wide fit: 5 units" in capsys.readouterr().err
    fresh = np.random.RandomState(8).standard_normal((2000, 6))
    target = network(fresh)[:, 0]
    assert np.mean((reg.predict(fresh) - target) ** 2) < 3 * 0.01 * 5 * 7 / 4000 * target.var()
    np.testing.assert_array_equal(reg.linear_, 0)
