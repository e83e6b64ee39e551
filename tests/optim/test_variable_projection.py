"""Variable projection against least squares over all parameters, and derivatives against differences."""

import numpy as np
import pytest
import scipy.optimize

from skident.optim import (
    BatchedSeparableProblem,
    Ending,
    SeparableProblem,
    batched_levenberg_marquardt,
    fit_coefficients,
    levenberg_marquardt,
)


@pytest.mark.parametrize("rank", [3, 2])
def test_coefficients_are_those_of_least_norm(rng, rank):
    Phi = rng.standard_normal((4, 12, rank)) @ rng.standard_normal((4, rank, 3))
    Y = rng.standard_normal((12, 2))
    fit = fit_coefficients(Phi, Y)
    for one, C, residual in zip(Phi, fit.coefficients, fit.residual, strict=True):
        expected = np.linalg.lstsq(one, Y, rcond=1e-13)[0]
        np.testing.assert_allclose(C, expected, atol=1e-10)
        np.testing.assert_allclose(residual, one @ expected - Y, atol=1e-12)
    np.testing.assert_allclose(fit.project_out(Phi), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(fit.basis, axis=(1, 2)) ** 2, rank)


def test_exact_outputs_leave_rounding_only_where_columns_nearly_agree(rng):
    """Inverses would lose as many digits as the condition number, 1e10, has."""
    Phi = rng.standard_normal((50, 3))
    Phi[:, 2] = Phi[:, 1] + 1e-10 * Phi[:, 2]
    Y = Phi @ rng.standard_normal((3, 2))
    assert np.abs(fit_coefficients(Phi, Y).residual).max() < 1e-13


def sigmoids(t):
    """One constant column and two of ``tanh(a t + b)``, whose parameters are (a_1, a_2, b_1, b_2)."""

    def columns(x):
        g = np.tanh(t[:, None] * x[:2] + x[2:])
        slopes = 1.0 - g**2
        return np.column_stack([np.ones(len(t)), g]), np.hstack([slopes * t[:, None], slopes])

    return columns


@pytest.fixture
def problem(rng):
    """Two noisy outputs, so that the residual is not zero at the minimum."""
    t = np.linspace(-2.0, 2.0, 60)
    columns = sigmoids(t)
    Y = columns(np.array([1.0, 3.0, 0.5, -1.0]))[0] @ rng.standard_normal((3, 2)) + 1e-3 * rng.standard_normal((60, 2))
    return SeparableProblem(columns, Y, [1, 2, 1, 2])


START = np.array([0.8, 2.5, 0.3, -0.7])


def test_the_gradient_is_that_of_differences(problem):
    h = 1e-6
    slopes = [(problem.cost(START + h * e) - problem.cost(START - h * e)) / (4.0 * h) for e in np.eye(4)]
    np.testing.assert_allclose(problem.linearize(START).gradient, slopes, rtol=1e-6)


def test_the_minimum_is_that_of_all_parameters(problem):
    result = levenberg_marquardt(problem.cost, problem.linearize, START, ftol=1e-12)

    def residual(z):
        return (problem.columns(z[:4])[0] @ z[4:].reshape(3, 2) - problem.Y).ravel()

    start = np.concatenate([START, problem.fit(START).coefficients.ravel()])
    expected = scipy.optimize.least_squares(residual, start, xtol=1e-13, ftol=1e-13, gtol=1e-13)
    assert result.cost == pytest.approx(2.0 * expected.cost, rel=1e-8)
    np.testing.assert_allclose(result.x, expected.x[:4], rtol=1e-4)


def test_columns_that_are_not_finite_cost_infinitely_much(problem):
    assert problem.cost(np.array([np.nan, 1.0, 0.0, 0.0])) == np.inf
    batch = BatchedSeparableProblem(lambda x: x[:, :, None] * np.ones((1, 3, 1)), np.ones((3, 1)))
    np.testing.assert_array_equal(batch.cost(np.array([[1.0, 1.0, 1.0], [np.nan, 1.0, 1.0]])), [0.0, np.inf])


def test_a_batch_ends_where_its_problems_do(problem, rng):
    columns = sigmoids(np.linspace(-2.0, 2.0, 60))
    Y = np.stack([problem.Y, problem.Y + 1e-3 * rng.standard_normal(problem.Y.shape)])
    batch = BatchedSeparableProblem(lambda x: np.stack([columns(one)[0] for one in x]), Y[[0, 1, 1]])
    starts = START + 0.05 * rng.standard_normal((3, 4))
    result = batched_levenberg_marquardt(batch, starts, Ending(ftol=1e-12))
    for x, cost, wanted in zip(result.x, result.cost, Y[[0, 1, 1]], strict=True):
        one = SeparableProblem(columns, wanted, [1, 2, 1, 2])
        alone = levenberg_marquardt(one.cost, one.linearize, START, ftol=1e-12)
        assert cost == pytest.approx(alone.cost, rel=1e-9)
        np.testing.assert_allclose(x, alone.x, rtol=1e-5)
