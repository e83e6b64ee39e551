"""Ridge functions fitted to samples: the regression of Algorithm 5, the polish."""

import numpy as np
import pytest

from skident.samples.ridges import RidgeModel, _cost_and_gradient, _curvature, fit_ridges, regress_on_ridges
from skident.samples.sample import Sample
from skident.samples.unit_signs import as_relu
from tests.references import reference_residual_jacobian
from tests.samples.planted import in_z, planted


def some_model(rng, d=3, m=4, kind="abs", skip=True):
    u = rng.standard_normal(d) if skip else np.zeros(d)
    s = np.where(np.arange(m) % 2, 1.0, -1.0)
    return RidgeModel(rng.standard_normal((d, m)), rng.standard_normal(m), s, u, 0.3, kind, skip)


def parts_of(sample, model):
    cost, gradient = sample.reduce(_cost_and_gradient, model)
    return float(cost), gradient, sample.reduce(_curvature, model)[0]


@pytest.mark.parametrize("kind", ["abs", "relu"])
@pytest.mark.parametrize("skip", [True, False])
def test_gradient_and_curvature_are_those_of_the_residuals(kind, skip, rng):
    X, y, w = rng.standard_normal((60, 3)), rng.standard_normal(60), rng.uniform(0.5, 2, 60)
    sample, model = Sample(X, y, w), some_model(rng, kind=kind, skip=skip)
    Z, target, weights = sample._kept[0]

    def residual(theta):
        return np.sqrt(weights) * (model.unpack(theta)(Z) - target)

    theta = model.pack()
    assert len(theta) == model.n_parameters
    J, r = reference_residual_jacobian(residual, theta), residual(theta)
    cost, gradient, matrix = parts_of(sample, model)
    # Central differences of step 1e-6 on piecewise linear functions: rounding, 1e-10.
    np.testing.assert_allclose(cost, r @ r, rtol=1e-12)
    np.testing.assert_allclose(gradient, J.T @ r, atol=1e-6)
    np.testing.assert_allclose(matrix, J.T @ J, atol=1e-6)


def test_units_give_the_model_back(rng):
    model, Z = some_model(rng), rng.standard_normal((20, 3))
    U, b, a = model.units()
    np.testing.assert_allclose(0.5 * np.abs(Z @ U.T + b) @ a + Z @ model.u + model.c, model(Z), atol=1e-12)
    for signs in (None, np.array([1.0, -1.0, -1.0, 1.0])):
        np.testing.assert_allclose(as_relu(model, signs)(Z), model(Z), atol=1e-12)


def test_regression_on_the_true_units_is_exact():
    sample, U, b, a = planted(0, 4, 3, 300)
    regression = regress_on_ridges(sample, *in_z(sample, U, b))
    assert regression.rss < 1e-13 * sample.total  # a difference of Gram entries
    assert np.all(regression.removal > 1e-3)


def test_removal_is_what_leaving_a_ridge_out_costs(rng):
    sample, U, b, _ = planted(1, 4, 3, 300, noise=0.1)
    U, b = in_z(sample, U, b)
    whole = regress_on_ridges(sample, U, b)
    for i in range(3):
        rest = regress_on_ridges(sample, np.delete(U, i, 0), np.delete(b, i))
        np.testing.assert_allclose(rest.rss - whole.rss, whole.removal[i], rtol=1e-8)


def test_a_ridge_twice_is_no_trouble():
    sample, U, b, _ = planted(2, 3, 2, 200)
    U, b = in_z(sample, U[[0, 1, 1]], b[[0, 1, 1]])
    assert regress_on_ridges(sample, U, b).rss < 1e-13 * sample.total  # a difference of Gram entries


def test_part_of_the_rows_is_enough_for_the_curvature():
    sample, U, b, _ = planted(8, 3, 2, 20_000, noise=0.1)
    start = regress_on_ridges(sample, in_z(sample, U, b)[0] + 0.1, b).model
    whole, part = (fit_ridges(sample, start, ftol=1e-12, rng=r) for r in (None, np.random.RandomState(0)))
    np.testing.assert_allclose(part.rss, whole.rss, rtol=1e-8)
